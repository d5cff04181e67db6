"""read_url: title and main text of a web page. The address comes from a model, so the guarded client fetches
it."""

from __future__ import annotations

from typing import Annotated

from ..definition import Tool, ToolResult, tool
from ..page_cache import PageCache
from ..page_text import PageText, read_page
from ..result_text import to_text
from ..web import WebConfig, fetch_guarded

MAX_TEXT_CHARS = 2_000


def web_page_tool(web: WebConfig) -> Tool:
    """Return read_url, within the limits of `web`."""
    cache: PageCache[tuple[str, PageText]] = PageCache(web.cache_age_s)

    def fetch(url: str) -> tuple[str, PageText]:
        page = fetch_guarded(url, web)
        return page.url, read_page(page.body, page.content_type, page.url)

    @tool(effects={"read", "network"}, group="web", needs={"url": "get_news"}, strict={"url"})
    def read_url(url: Annotated[str, "Full address, e.g. https://example.com/a"]) -> ToolResult:
        """Read a web page. Returns its title and main text."""
        (final_url, read), age_s = cache.get(url, lambda: fetch(url))
        value = {"title": read.title, "url": final_url, "text": cut_text(read.text)}
        notes = (*read.notes, f"read {age_s:.0f} s ago") if age_s else read.notes
        return ToolResult(to_text(value), value=value, notes=notes)

    return read_url


def cut_text(text: str) -> str:
    """Return at most `MAX_TEXT_CHARS` characters of `text`, ended at a line or word where one is near, marked
    if cut."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    shown = text[:MAX_TEXT_CHARS]
    for mark in ("\n", "。", ". ", " "):
        place = shown.rfind(mark)
        if place > MAX_TEXT_CHARS * 0.9:
            shown = shown[: place + len(mark)]
            break
    return f"{shown.rstrip()} … [cut: {len(shown.rstrip()):,} of {len(text):,} characters]"
