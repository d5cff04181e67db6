"""The text of a file: its encoding, its lines. It knows no paths.

Judged by the first 64 KiB: a byte-order mark, then NUL bytes (binary), then UTF-8, then GB18030; Latin-1 takes all.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO

SNIFF_BYTES = 65_536
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def encoding_of(head: bytes) -> str | None:
    """The encoding of a file that starts with `head`, or None if it is binary."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    if b"\x00" in head:
        return None
    for name in ("utf-8", "gb18030"):
        try:
            codecs.getincrementaldecoder(name)().decode(head)  # not final: a character cut at the end is no error
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def text_encoding(file: io.BufferedReader) -> str | None:
    """The encoding of an opened file, or None if it is binary; the position stays."""
    return encoding_of(file.peek(SNIFF_BYTES)[:SNIFF_BYTES])


def lines_of(file: BinaryIO, encoding: str, max_line_chars: int) -> Iterator[tuple[str, int]]:
    """Yield each line without its end, cut to `max_line_chars`, with its full length in characters.

    Lines end at LF, CRLF or CR. Memory stays bounded whatever the file holds.
    """
    with io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=None) as text:
        start, n_chars = "", 0
        while piece := text.readline(SNIFF_BYTES):
            ended = piece.endswith("\n")
            body = piece[:-1] if ended else piece
            start += body[: max_line_chars - len(start)]
            n_chars += len(body)
            if ended:
                yield start, n_chars
                start, n_chars = "", 0
        if n_chars:
            yield start, n_chars
