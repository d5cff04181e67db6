"""get_news: titles and links of the latest news on a topic, from an RSS or Atom search."""

from __future__ import annotations

import io
import re
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

from ..definition import Tool, tool
from ..errors import WebError
from ..web import WebConfig, fetch

_MAX_ITEMS = 5
_MAX_TITLE_CHARS = 150
_WAY_OUT = "Set LAPLOOP_NEWS_URL to an RSS search that can be reached, or answer without it."


def news_tool(web: WebConfig) -> Tool:
    """Return get_news, asking the feed of `web`."""

    @tool(effects={"read", "network"}, group="web")
    def get_news(topic: Annotated[str, "What the news is about, e.g. AI"]) -> list[dict[str, str]]:
        """Latest news on a topic. Returns up to 5 items with title and link, newest first; read_url reads a
        link."""
        topic = topic.strip()
        if not topic:
            raise WebError("give a topic, such as AI")
        page = fetch(web.news_url.replace("{topic}", quote(topic, safe="")), web, way_out=_WAY_OUT)
        return _items(page.body, page.content_type)

    return get_news


def _items(body: bytes, content_type: str) -> list[dict[str, str]]:
    import feedparser

    # A stream, not bytes: feedparser would take bytes for a file name first.
    feed: Any = feedparser.parse(io.BytesIO(body), response_headers={"content-type": content_type})
    if not feed.entries and not feed.get("version"):
        raise WebError(f"the news service did not answer with RSS or Atom. {_WAY_OUT}")
    items = []
    for entry in feed.entries:
        title, link = _title(entry.get("title", "")), _direct(entry.get("link", ""))
        if title and link.startswith(("http://", "https://")):
            items.append({"title": title, "link": link})
    return items[:_MAX_ITEMS]


def _title(html: str) -> str:
    text = " ".join(re.sub(r"<[^>]+>", "", html).split())
    return text if len(text) <= _MAX_TITLE_CHARS else text[: _MAX_TITLE_CHARS - 1] + "…"


def _direct(link: str) -> str:
    """Return the article's own address where an aggregator (Bing) carries it in the link's `url`
    parameter."""
    try:
        parts = urlsplit(link)
        if (parts.hostname or "").endswith("bing.com") and parts.path.endswith("/apiclick.aspx"):
            return parse_qs(parts.query).get("url", [link])[0]
    except ValueError:
        return ""
    return link
