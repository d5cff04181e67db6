"""Reading the little-endian values of a GGUF header, each checked against the end of the file.

Knows nothing of what a key means. A hostile count, length or nesting is refused before anything is allocated
for it.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from pathlib import Path
from typing import Any, NoReturn

from .errors import BadModelFileError

MAX_PAIRS = 65_536
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 65_535
MAX_STRING_BYTES = 16 * 2**20  # the longest known chat templates are below 1 MiB
MAX_STRINGS = 4_000_000  # the largest vocabularies have 262,144 tokens and about 500,000 merges
MAX_NUMBERS = 16_000_000
MAX_NESTING = 2
MAX_DIMS = 4

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class HeaderReader:
    """A position in the header; every read is checked against the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap, size_bytes: int) -> None:
        self.path, self.data, self.size_bytes, self.pos = path, data, size_bytes, 4

    def fail(self, why: str) -> NoReturn:
        """Raise `BadModelFileError` for this file: one sentence, and the way out."""
        raise BadModelFileError(f"{self.path} is not a usable GGUF: {why}. Fetch the file again.")

    def need(self, n_bytes: int, what: str) -> int:
        """Take `n_bytes` and return where they begin."""
        begin = self.pos
        if n_bytes > self.size_bytes - begin:
            self.fail(
                f"it ends inside its header ({what} at byte {begin:,} needs {n_bytes:,} bytes, the file has "
                f"{self.size_bytes:,}); the download is probably incomplete"
            )
        self.pos = begin + n_bytes
        return begin

    def number(self, fmt: str, what: str) -> Any:
        """One number in `struct` format `fmt`."""
        return struct.unpack_from(fmt, self.data, self.need(struct.calcsize(fmt), what))[0]

    def count(self, limit: int, what: str) -> int:
        """A length or a count, refused above `limit`."""
        value = int(self.number("<Q", what))
        if value > limit:
            self.fail(f"{what} is {value:,}, expected at most {limit:,}")
        return value

    def text(self, limit: int, what: str) -> str:
        """One string of at most `limit` bytes."""
        n_bytes = self.count(limit, f"the length of {what}")
        begin = self.need(n_bytes, what)
        return self.data[begin : begin + n_bytes].decode("utf-8", errors="replace")

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """A metadata value of GGUF's value type `kind`."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], what)
        if kind == _BOOL:
            return bool(self.number("<B", what))
        if kind == _STRING:
            return self.text(MAX_STRING_BYTES, what)
        if kind == _ARRAY:
            return self.items(what, depth + 1)
        return self.fail(f"{what} has the unknown value type {kind}")

    def items(self, what: str, depth: int) -> Any:
        """An array: numbers as `array.array`, strings as `list[bytes]`, arrays as a list of those."""
        if depth > MAX_NESTING:
            self.fail(f"{what} nests arrays more than {MAX_NESTING} deep")
        kind = self.number("<I", what)
        if kind == _STRING:
            return self.strings(self.count(MAX_STRINGS, f"the length of {what}"), what)
        if kind == _ARRAY:
            n = self.count(MAX_NAME_BYTES, f"the length of {what}")
            return [self.items(what, depth + 1) for _ in range(n)]
        n = self.count(MAX_NUMBERS, f"the length of {what}")
        code = "B" if kind == _BOOL else _SCALARS.get(kind, "")[1:]
        if not code:
            self.fail(f"{what} is an array of the unknown type {kind}")
        numbers = array("L" if code == "I" and array("I").itemsize != 4 else code)
        begin = self.need(n * numbers.itemsize, what)
        numbers.frombytes(self.data[begin : self.pos])
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def strings(self, n: int, what: str) -> list[bytes]:
        """`n` strings. The vocabulary is read here, 150,000 times round: local names, one unpack each."""
        self.pos = self.need(8 * n, what)  # at least n lengths: a huge n is refused before the loop
        data, pos, end, limit = self.data, self.pos, self.size_bytes, MAX_STRING_BYTES
        unpack = struct.Struct("<Q").unpack_from
        out: list[bytes] = []
        append = out.append
        try:
            for _ in range(n):
                begin = pos + 8
                pos = begin + unpack(data, pos)[0]
                if pos > end or pos - begin > limit:
                    break
                append(data[begin:pos])
        except struct.error:  # fewer than 8 bytes left
            pass
        if len(out) != n:
            self.fail(
                f"it ends inside {what} (the length of string {len(out):,} of {n:,} leads past byte "
                f"{end:,} or is above {limit:,}); the download is probably incomplete"
            )
        self.pos = pos
        return out
