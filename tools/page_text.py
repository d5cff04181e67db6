"""A downloaded page → its title and main text. It knows HTML, PDF, JSON and plain text, and fetches nothing.

Main text is trafilatura's. Where it finds none or cannot be imported, and on pages of a few paragraphs (whose
Chinese text it takes for too short, and then adds the navigation), it is the body without navigation, header
and footer.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Any

from .errors import WebError

_SHORT_PAGE_CHARS = 1_000
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what lxml reads, but does not set
_HTML_START = re.compile(rb"^\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
NOT_TEXT = [
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "iframe",
    "object",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "button",
    "select",
]
_BLOCKS = [
    "p",
    "div",
    "br",
    "li",
    "tr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "section",
    "article",
    "main",
    "blockquote",
    "pre",
    "td",
    "th",
    "dt",
    "dd",
]
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# Pages that say GB2312 or GBK often hold characters of its superset; browsers decode them so (WHATWG
# Encoding).
_ALIASES = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "latin-1": "cp1252",
    "ascii": "cp1252",
}


@dataclass(frozen=True, slots=True)
class PageText:
    """`title` is "" where there is none; `notes` tells of fallbacks."""

    title: str
    text: str
    notes: tuple[str, ...] = ()


def read_page(body: bytes, content_type: str, url: str) -> PageText:
    """Return title and text of a page.

    Args:
        body: the decompressed bytes.
        content_type: the header's value in lower case; "" if there was none.
        url: where it came from; helps trafilatura and names the page in errors.

    Raises:
        WebError: the page is binary, or has no readable text.
    """
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip()
    if not kind or kind == "application/octet-stream":
        kind = "text/html" if _HTML_START.match(body[:2000]) else "text/plain"
    if kind == "application/pdf" or body.startswith(b"%PDF-"):
        return _read_pdf(body, url)
    is_html = kind in ("text/html", "application/xhtml+xml")
    is_text = kind.startswith("text/") or kind.endswith(("json", "xml", "javascript", "yaml", "x-ndjson"))
    has_bom = any(body.startswith(bom) for bom, _ in _BOMS)
    if not (is_html or is_text) or (b"\x00" in body[:4096] and not has_bom and "utf-16" not in parameters):
        raise WebError(
            f"{url[:200]} is {kind} ({len(body):,} bytes), which cannot be shown as text; "
            "HTML, PDF, JSON and plain text can be read"
        )
    text = decode(body, _parameter_charset(parameters), look_inside=is_html or "xml" in kind)
    if not is_html:
        if not text.strip():
            raise WebError(f"{url[:200]} is empty")
        return PageText("", text.strip())
    return _read_html(text, url)


def _read_pdf(body: bytes, url: str) -> PageText:
    """The title is the file's name: what PDFs say of themselves is seldom one."""
    from .document_text import document_lines
    from .errors import FileAccessError

    try:
        lines = document_lines("pdf", body)
    except FileAccessError as error:
        raise WebError(f"{url[:200]} is a PDF ({len(body):,} bytes) that cannot be shown as text: {error}") from error
    name = url.partition("?")[0].rpartition("/")[2]
    return PageText(name, "\n".join(line.text for line in lines))


def decode(body: bytes, charset: str | None, *, look_inside: bool) -> str:
    """Return the text of `body`: byte-order mark, header, meta tag, UTF-8, GB18030, in this order; the first
    that fits."""
    candidates = [name for bom, name in _BOMS if body.startswith(bom)]
    candidates += [charset] if charset else []
    if look_inside:
        found = _META_CHARSET.search(body[:4096]) or _XML_CHARSET.search(body[:400])
        candidates += [found.group(1).decode("ascii")] if found else []
    known = [name for name in (_codec(item) for item in candidates) if name]
    for name in (*known, "utf-8", "gb18030"):
        try:
            return body.decode(name)
        except UnicodeDecodeError:  # noqa: PERF203 - four candidates at most
            continue
    return body.decode(known[0] if known else "utf-8", "replace")


def _codec(name: str) -> str | None:
    name = _ALIASES.get(name.strip().lower(), name.strip())
    try:
        return name if codecs.lookup(name)._is_text_encoding else None
    except LookupError:
        return None


def _parameter_charset(parameters: str) -> str | None:
    found = re.search(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", parameters)
    return found.group(1) if found else None


def _read_html(html: str, url: str) -> PageText:
    from lxml import etree
    from lxml import html as lxml_html

    # lxml refuses text that declares an encoding of its own; it is decoded already.
    html = re.sub(r"^\s*<\?xml[^>]*\?>", "", html)
    try:
        tree = lxml_html.document_fromstring(html)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError) as error:
        raise WebError(f"{url[:200]} has no readable text: the page is empty or not HTML") from error
    title = _title(tree)
    text = _plain_text(tree)
    notes: tuple[str, ...] = ()
    if len(text) > _SHORT_PAGE_CHARS:
        main, notes = _main_text(html, url)
        text = main or text
    if not text:
        raise WebError(
            f"{url[:200]} has no readable text" + (f" (title: {title[:200]})" if title else "")
            + "; it may need JavaScript, so try another link"
        )  # fmt: skip
    # Most pages repeat their title as a heading; once is enough for a model that reads every token.
    return PageText(title, text.removeprefix(title).lstrip() or text, notes)


def _main_text(html: str, url: str) -> tuple[str, tuple[str, ...]]:
    try:
        import trafilatura
    except ImportError as error:  # lxml_html_clean is missing: pip before 23.3 overlooks it
        return "", (f"plain extraction: trafilatura cannot be imported ({' '.join(str(error).split())})",)
    return (trafilatura.extract(html, url=url, include_comments=False, include_tables=True) or "").strip(), ()


def _title(tree: Any) -> str:
    for query in ("//meta[@property='og:title']/@content", "//title/text()", "//h1//text()"):
        for found in tree.xpath(query):
            if title := " ".join(str(found).split()):
                return title
    return ""


def _plain_text(tree: Any) -> str:
    """Return the body's text, one line a block, without scripts, navigation and forms."""
    body = tree.find(".//body")
    root = tree if body is None else body
    for element in list(root.iter(*NOT_TEXT)):
        if element.getparent() is not None:
            element.drop_tree()
    for element in root.iter(*_BLOCKS):
        element.tail = "\n" + _NOT_XML.sub(" ", element.tail or "")
        element.text = "\n" + _NOT_XML.sub(" ", element.text or "")
    lines = (" ".join(line.split()) for line in str(root.text_content()).splitlines())
    return "\n".join(line for line in lines if line)
