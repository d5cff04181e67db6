"""list_files, search_files and read_file: one folder, read only, every result bounded and marked where it is
cut."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..definition import Tool, ToolResult, tool
from ..errors import FileAccessError
from ..file_root import MAX_VISITED, FileRoot, lines_of, text_encoding

_MAX_ENTRIES = 100
_MAX_FOUND = 30
_MAX_SEARCHED_BYTES = 2_000_000
_MAX_LINE_CHARS = 500
_MAX_FOUND_CHARS = 200
_MAX_READ_CHARS = 4_000
_MAX_READ_BYTES = 256_000_000

_FilePath = Annotated[str, "As the user gives it, e.g. notes.txt"]
_FolderPath = Annotated[str, "Folder"]


def file_tools(root: Path) -> list[Tool]:
    """Return the three file tools for the folder `root`; raises FileAccessError if it is none."""
    folder = FileRoot(root)

    @tool(group="files", strict={"path"})
    def list_files(
        path: _FolderPath = ".", pattern: Annotated[str, "e.g. *.py, also in sub-folders"] = ""
    ) -> dict[str, Any]:
        """List a folder. Returns names (folders end in /), or the paths that match a pattern."""
        return _list(folder, path, pattern.strip())

    @tool(group="files", strict={"path"})
    def search_files(query: Annotated[str, "Text to find, any case"], path: _FolderPath = ".") -> dict[str, Any]:
        """Find text in the files of a folder. Returns files, line numbers and lines."""
        return _search(folder, query, path)

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
    entries = _matching(root, folder, pattern) if pattern else _entries(root, folder)
    result: dict[str, Any] = {"total": len(entries), "entries": entries[:_MAX_ENTRIES]}
    if len(entries) > _MAX_ENTRIES:
        result["cut"] = f"first {_MAX_ENTRIES} of {len(entries)}; narrow it with path or pattern"
    return result


def _entries(root: FileRoot, folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise FileAccessError(f"cannot list {root.shown(folder)!r}: {error.strerror}") from error
    return [f"{name}/" if (folder / name).is_dir() else name for name in names]


def _matching(root: FileRoot, folder: Path, pattern: str) -> list[str]:
    wanted = pattern.lower().removeprefix("./").removeprefix("**/")
    found = []
    for file in root.walk(folder):
        inside = file.relative_to(folder).as_posix().lower()
        name = inside if "/" in wanted else file.name.lower()
        if fnmatch.fnmatchcase(name, wanted):
            found.append(root.shown(file))
    return found


def _search(root: FileRoot, query: str, path: str) -> dict[str, Any]:
    if not query.strip():
        raise FileAccessError("give the text to search for")
    start = root.resolve(path)
    files = [start] if start.is_file() else root.walk(root.folder(path))
    wanted = query.casefold()
    lines: list[dict[str, Any]] = []
    n_lines = n_files = n_searched = n_skipped = 0
    for file in files:
        found = _found_in(root, file, wanted)
        if found is None:
            n_skipped += 1
            continue
        n_searched += 1
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


def _found_in(root: FileRoot, file: Path, wanted: str) -> list[dict[str, Any]] | None:
    """Return the matching lines of one file, or None if it is not searched."""
    shown = root.shown(file)
    try:
        with root.open(shown) as opened:
            encoding = text_encoding(opened)
            if encoding is None or os.fstat(opened.fileno()).st_size > _MAX_SEARCHED_BYTES:
                return None
            lines = enumerate(lines_of(opened, encoding, _MAX_SEARCHED_BYTES), start=1)
            return [
                {"file": shown, "line": number, "text": _around(line, wanted)}
                for number, (line, _) in lines
                if wanted in line.casefold()
            ]
    except FileAccessError:
        return None


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
