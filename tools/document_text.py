"""A document of a folder as lines that can be cited: text, Markdown, HTML, PDF, Word. It knows no paths and no index.

Where a line stands is what a person can look up: the line of a text file or of a page's source, the page of a PDF, the
paragraph of a Word file. PDFs are read by pypdf (extra `documents`) in a process of its own: the format is a program,
and a hostile file may take forever.
"""

from __future__ import annotations

import base64
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import FileAccessError
from .invocation import given_up
from .isolation import ProcessEndedError, ProcessLimits, run_isolated
from .page_text import NOT_TEXT, decode
from .text_file import SNIFF_BYTES, encoding_of, lines_of

MAX_DOCUMENT_BYTES = 50_000_000
_MAX_TEXT_BYTES = 5_000_000  # of a text file, and of a Word file's XML once it is unpacked
_MAX_LINE_CHARS = 2_000
_PDF_LIMITS = ProcessLimits(memory_mb=1_536, cpu_s=60)
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HTML = ("html", "htm", "xhtml")
_TEXT = (
    "txt",
    "md",
    "markdown",
    "rst",
    "org",
    "csv",
    "tsv",
    "json",
    "yaml",
    "yml",
    "toml",
    "log",
    "tex",
    "text",
    "adoc",
)
KINDS = frozenset((*_TEXT, *_HTML, "pdf", "docx"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a document; `number` counts from 1 in units of `unit`: "line", "page" or "paragraph"."""

    number: int
    text: str
    unit: str = "line"


def kind_of(name: str) -> str | None:
    """The kind of a document by its name's ending, out of KINDS; None for what is no document."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return ending if ending in KINDS else None


def document_lines(kind: str, data: bytes) -> list[Line]:
    """The lines of a document that have text in them.

    Raises:
        FileAccessError: it is too large, damaged, encrypted, or a PDF and pypdf is not installed.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise FileAccessError(f"larger than {MAX_DOCUMENT_BYTES:,} bytes")
    read = {"pdf": _pdf, "docx": _docx, **dict.fromkeys(_HTML, _html)}.get(kind, _plain)
    return [line for line in read(data) if line.text]


def _plain(data: bytes) -> Iterator[Line]:
    if len(data) > _MAX_TEXT_BYTES:
        raise FileAccessError(f"larger than {_MAX_TEXT_BYTES:,} bytes")
    encoding = encoding_of(data[:SNIFF_BYTES])
    if encoding is None:
        raise FileAccessError("binary, not text")
    for number, (text, _) in enumerate(lines_of(io.BytesIO(data), encoding, _MAX_LINE_CHARS), start=1):
        yield Line(number, text.strip())


def _html(data: bytes) -> Iterator[Line]:
    """One line for each line of the source that holds text; scripts, menus and forms have none."""
    from lxml import etree
    from lxml import html as lxml_html

    if len(data) > _MAX_TEXT_BYTES:
        raise FileAccessError(f"larger than {_MAX_TEXT_BYTES:,} bytes")
    try:
        text = decode(data, None, look_inside=True)
        parser = lxml_html.HTMLParser(encoding="utf-8", no_network=True)
        tree: Any = lxml_html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError) as error:
        raise FileAccessError(f"not HTML ({error})") from error
    for element in list(tree.iter(*NOT_TEXT)):
        if element.getparent() is not None:
            element.drop_tree()
    found: dict[int, list[str]] = {}
    for element in tree.iter():
        number = element.sourceline or 1
        if isinstance(element.tag, str) and element.text:
            found.setdefault(number, []).append(element.text)
        if element.tail:
            found.setdefault(number, []).append(element.tail)
    for number in sorted(found):
        yield Line(number, " ".join("".join(found[number]).split())[:_MAX_LINE_CHARS])


def _docx(data: bytes) -> Iterator[Line]:
    from lxml import etree

    # Entities are not expanded and nothing is fetched: the file comes from anywhere.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed, packed.open("word/document.xml") as opened:
            xml = opened.read(_MAX_TEXT_BYTES * 4 + 1)  # what the archive says about sizes need not be so
        if len(xml) > _MAX_TEXT_BYTES * 4:
            raise FileAccessError(f"its text is larger than {_MAX_TEXT_BYTES * 4:,} bytes unpacked")
        tree = etree.fromstring(xml, parser)
    except (zipfile.BadZipFile, KeyError, etree.XMLSyntaxError, EOFError, RuntimeError, NotImplementedError) as error:
        raise FileAccessError(f"not a Word file, damaged or encrypted ({error})") from error
    for number, paragraph in enumerate(tree.iter(f"{_WORD}p"), start=1):
        words = [node.text or "" if node.tag == f"{_WORD}t" else " " for node in paragraph.iter(*_WORD_TEXT)]
        yield Line(number, "".join(words).strip()[:_MAX_LINE_CHARS], "paragraph")


_WORD_TEXT = tuple(f"{_WORD}{name}" for name in ("t", "tab", "br", "cr"))


def _pdf(data: bytes) -> Iterator[Line]:
    arguments = {"data_base64": base64.b64encode(data).decode("ascii")}
    try:
        fields = run_isolated(read_pdf, arguments, _PDF_LIMITS, given_up() or threading.Event())
    except ProcessEndedError as error:
        raise FileAccessError(f"its text could not be read in time ({error})") from None
    if fields["is_error"] or isinstance(fields["value"], str):
        raise FileAccessError(fields["value"] or fields["content"])
    for number, page in enumerate(fields["value"], start=1):
        for text in page.splitlines():
            yield Line(number, text.strip()[:_MAX_LINE_CHARS], "page")


def read_pdf(data_base64: str) -> list[str] | str:
    """What runs in the process for PDFs: the text of each page, or what is wrong."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        return "PDFs need the package pypdf: pip install 'laploop[documents]'"
    try:
        reader = PdfReader(io.BytesIO(base64.b64decode(data_base64)))
        if reader.is_encrypted and not reader.decrypt(""):
            return "encrypted with a password"
        pages = [page.extract_text() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OSError) as error:
        return f"not a PDF, or damaged ({type(error).__name__})"
    return pages if any(page.strip() for page in pages) else "no text in it: its pages are pictures"
