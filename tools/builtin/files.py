"""list_files, search_files and read_file: one folder, read only, every result bounded and marked where it is
cut."""

from __future__ import annotations

import fnmatch
import io
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..beneath import READ_FILE
from ..definition import Tool, ToolResult, tool
from ..errors import FileAccessError
from ..file_root import MAX_VISITED, FileRoot, Found
from ..text_file import SNIFF_BYTES, encoding_of, lines_of, text_encoding

_MAX_ENTRIES = 100
_MAX_FOUND = 30
_MAX_SEARCHED_BYTES = 2_000_000
_MAX_LINE_CHARS = 500
_MAX_FOUND_CHARS = 200
_MAX_READ_CHARS = 4_000
_MAX_READ_BYTES = 256_000_000

_FilePath = Annotated[str, "As the user gives it, e.g. notes.txt"]
_FolderPath = Annotated[str, "Folder"]


def file_tools(root: Path, *, context_lines: int = 0) -> list[Tool]:
    """Return the three file tools for the folder `root`.

    Args:
        context_lines: how many lines before and after each found one search_files shows. It is the person's choice,
            not the model's: one parameter less in every prompt.

    Raises:
        FileAccessError: `root` is no folder.
    """
    folder = FileRoot(root)

    @tool(group="files", strict={"path"})
    def list_files(
        path: _FolderPath = ".", pattern: Annotated[str, "e.g. *.py, also in sub-folders"] = ""
    ) -> dict[str, Any]:
        """List a folder. Returns names (folders end in /), or the paths that match a pattern."""
        return _list(folder, path, pattern.strip())

    @tool(group="files", strict={"path"})
    def search_files(
        query: Annotated[str, "Text to find, any case", Field(min_length=1)], path: _FolderPath = "."
    ) -> dict[str, Any]:
        """Find text in the files of a folder. Returns files, line numbers and lines."""
        return _search(folder, query, path, context_lines)

    @tool(group="files", strict={"path"})
    def read_file(
        path: _FilePath,
        start_line: Annotated[int, Field(ge=1)] = 1,
        max_lines: Annotated[int, Field(ge=1, le=1000)] = 200,
    ) -> ToolResult:
        """Read a text file. Returns the total number of lines and the text."""
        value = _read(folder, path, start_line, max_lines)
        return ToolResult(_as_read(path, value), value=value)

    return [list_files, search_files, read_file]


def _as_read(path: str, value: dict[str, Any]) -> str:
    """The result as a person would put it. As JSON, with every line break escaped, it made qwen2.5-coder-1.5b call
    again or speak about "a JSON object" instead of answering. The count comes first: a later cut must not take it."""
    total = value["total_lines"]
    if not total:
        return f"{path} has 0 lines: it is empty."
    shown = value.get("lines", f"1-{total} of {total}").partition(" ")[0]
    after = f"\n[{value['cut']}]" if "cut" in value else ""
    return f"{path} has {total} lines. Lines {shown}:\n{value['text']}{after}"


def _list(root: FileRoot, path: str, pattern: str) -> dict[str, Any]:
    folder = root.folder(path)
    entries = _matching(root, folder, pattern) if pattern else root.entries(folder)
    result: dict[str, Any] = {"total": len(entries), "entries": entries[:_MAX_ENTRIES]}
    if len(entries) > _MAX_ENTRIES:
        result["cut"] = f"first {_MAX_ENTRIES} of {len(entries)}; narrow it with path or pattern"
    return result


def _matching(root: FileRoot, folder: Path, pattern: str) -> list[str]:
    wanted = _same_form(pattern).removeprefix("./").removeprefix("**/")
    matches = re.compile(fnmatch.translate(wanted)).match
    inside = 0 if folder == root.path else len(root.shown(folder)) + 1
    by_path = "/" in wanted
    return [
        file.shown for file in root.walk(folder) if matches(_same_form(file.shown[inside:] if by_path else file.name))
    ]


def _same_form(name: str) -> str:
    """Lower case, and é as one character: two ways to write one name."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).lower()


def _search(root: FileRoot, query: str, path: str, context_lines: int) -> dict[str, Any]:
    if not query.strip():
        raise FileAccessError("give the text to search for")
    start = root.resolve(path)
    one_file = os.path.isfile(start)  # noqa: PTH113 - Path.is_file raises for names that are too long
    files = [Found(root.shown(start), start.name, None)] if one_file else root.walk(root.folder(path))
    wanted = query.casefold()
    lines: list[dict[str, Any]] = []
    n_lines = n_files = n_searched = n_skipped = 0
    for file in files:
        data = _small_text(root, file)
        if data is None:
            n_skipped += 1
            continue
        n_searched += 1
        if not _may_hold(data, wanted):
            continue
        found = _found_in(file.shown, data, wanted, context_lines)
        n_lines += len(found)
        n_files += bool(found)
        lines += found[: _MAX_FOUND - len(lines)]
    result: dict[str, Any] = {
        "total": n_lines,
        "in_files": n_files,
        "searched_files": n_searched,
        "lines": lines,
    }
    if n_skipped:
        result["skipped_files"] = f"{n_skipped} (binary, larger than 2 MB, or unreadable)"
    if n_lines > len(lines):
        result["cut"] = f"first {len(lines)} of {n_lines} lines; narrow it with path or a longer query"
    if n_searched + n_skipped >= MAX_VISITED:
        result["incomplete"] = f"stopped after {MAX_VISITED} files; narrow it with path"
    return result


def _small_text(root: FileRoot, file: Found) -> bytes | None:
    """The bytes of a file with text in it, or None if it is not searched: binary, too large, or unreadable."""
    try:
        if file.descriptor is None:
            with root.open(file.shown) as opened:
                return _bytes_of(opened.fileno())
        descriptor = os.open(file.name, READ_FILE, dir_fd=file.descriptor)
        try:
            return _bytes_of(descriptor)
        finally:
            os.close(descriptor)
    except (FileAccessError, OSError):
        return None


def _bytes_of(descriptor: int) -> bytes | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SEARCHED_BYTES:
        return None
    head = os.read(descriptor, SNIFF_BYTES)
    if b"\x00" in head and encoding_of(head) is None:
        return None
    pieces = [head]
    while len(pieces[-1]) == SNIFF_BYTES and len(pieces) * SNIFF_BYTES <= _MAX_SEARCHED_BYTES:
        pieces.append(os.read(descriptor, SNIFF_BYTES))
    return b"".join(pieces)


def _may_hold(data: bytes, wanted: str) -> bool:
    """False where `wanted` (casefolded) is surely not in a text: most files of a search are told apart by this."""
    if data.isascii():  # then casefold is lower, and whatever is in it is ASCII
        return wanted.isascii() and wanted.encode("ascii") in data.lower()
    encoding = encoding_of(data[:SNIFF_BYTES])
    return encoding is not None and wanted in data.decode(encoding, "replace").casefold()


def _found_in(shown: str, data: bytes, wanted: str, context_lines: int) -> list[dict[str, Any]]:
    """The lines of a text that hold `wanted`, each with as many lines around it."""
    encoding = encoding_of(data[:SNIFF_BYTES]) or "utf-8"
    lines = [line for line, _ in lines_of(io.BytesIO(data), encoding, _MAX_SEARCHED_BYTES)]
    found = []
    for number, line in enumerate(lines, start=1):
        if wanted not in line.casefold():
            continue
        hit: dict[str, Any] = {"file": shown, "line": number, "text": _around(line, wanted)}
        if context_lines and (before := lines[max(0, number - 1 - context_lines) : number - 1]):
            hit["before"] = [text.strip()[:_MAX_FOUND_CHARS] for text in before]
        if context_lines and (after := lines[number : number + context_lines]):
            hit["after"] = [text.strip()[:_MAX_FOUND_CHARS] for text in after]
        found.append(hit)
    return found


def _around(line: str, wanted: str) -> str:
    """Return the line, or the part of it around the first match."""
    text = line.strip()
    if len(text) <= _MAX_FOUND_CHARS:
        return text
    begin = max(0, text.casefold().find(wanted) - _MAX_FOUND_CHARS // 4)
    end = begin + _MAX_FOUND_CHARS
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


def _read(root: FileRoot, path: str, start_line: int, max_lines: int) -> dict[str, Any]:
    shown: list[str] = []
    n_chars = total = 0
    full = False
    with root.open(path) as opened:
        size_bytes = os.fstat(opened.fileno()).st_size
        if size_bytes > _MAX_READ_BYTES:
            raise FileAccessError(f"{path[:200]!r} has {size_bytes:,} bytes; at most {_MAX_READ_BYTES:,} can be read")
        encoding = text_encoding(opened)
        if encoding is None:
            raise FileAccessError(f"{path[:200]!r} is binary ({size_bytes:,} bytes), not text")
        for line, length in lines_of(opened, encoding, _MAX_LINE_CHARS):
            total += 1
            if total < start_line or full:
                continue
            text = line if length <= _MAX_LINE_CHARS else f"{line}… [cut: {_MAX_LINE_CHARS} of {length:,} characters]"
            full = len(shown) == max_lines or (bool(shown) and n_chars + len(text) > _MAX_READ_CHARS)
            if not full:
                shown.append(text)
                n_chars += len(text) + 1
    if start_line > max(total, 1):
        raise FileAccessError(f"{path[:200]!r} has only {total} lines; start_line is {start_line}")
    last = start_line + len(shown) - 1
    # total_lines comes first: a later cut of the result by a token budget must not take it away.
    result: dict[str, Any] = {"total_lines": total, "text": "\n".join(shown)}
    if start_line > 1 or last < total:
        result["lines"] = f"{start_line}-{last} of {total}"
    if last < total:
        result["cut"] = f"read on with start_line={last + 1}"
    return result
