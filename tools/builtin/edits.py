"""write_file and edit_file: they change files below one folder, so each call waits for a person's yes, who sees the
difference it would make."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..definition import Tool, tool
from ..errors import FileAccessError
from ..file_root import FileRoot
from ..file_write import MAX_WRITTEN_BYTES, check_writable, replace_file
from ..text_file import encoding_of

_MAX_DIFF_LINES = 400
_FilePath = Annotated[str, "e.g. notes/todo.txt"]


class Change(NamedTuple):
    """What a call would do to a file: its text before (None: it is new) and after, and its bytes after."""

    before: str | None
    after: str
    data: bytes


def edit_tools(root: Path) -> list[Tool]:
    """Return write_file and edit_file for the folder `root`; raises FileAccessError if it is none."""
    folder = FileRoot(root)

    def shown_write(path: str, content: str) -> str:
        return _shown(folder, path, _written(folder, path, content))

    def shown_edit(path: str, old_text: str, new_text: str) -> str:
        return _shown(folder, path, _edited(folder, path, old_text, new_text))

    @tool(group="files", effects={"read", "write"}, strict={"path"}, run_alone=True, preview=shown_write)
    def write_file(path: _FilePath, content: Annotated[str, "The whole new text of the file"]) -> dict[str, Any]:
        """Create a text file, or replace one. Returns whether it is new, and its number of lines."""
        change = _written(folder, path, content)
        replace_file(folder, path, change.data)
        return {"path": path, "created": change.before is None, "lines": len(content.splitlines())}

    @tool(group="files", effects={"read", "write"}, strict={"path"}, run_alone=True, preview=shown_edit)
    def edit_file(
        path: _FilePath,
        old_text: Annotated[str, "Text as it stands in the file, once, e.g. a whole line"],
        new_text: Annotated[str, "Text in its place; empty to delete it"],
    ) -> dict[str, Any]:
        """Replace a piece of a text file. Returns the line where it stands."""
        change = _edited(folder, path, old_text, new_text)
        replace_file(folder, path, change.data)
        before = change.before or ""
        return {"path": path, "line": before[: before.find(_same_ends(old_text, before))].count("\n") + 1}

    return [write_file, edit_file]


def _written(root: FileRoot, path: str, content: str) -> Change:
    real = check_writable(root, path)
    # os.path, unlike pathlib, takes a name that is too long for one that is not there
    before, encoding = _text_of(root, path) if os.path.exists(real) else (None, "utf-8")  # noqa: PTH110
    return Change(before, content, _encoded(path, content, encoding))


def _edited(root: FileRoot, path: str, old_text: str, new_text: str) -> Change:
    check_writable(root, path)
    before, encoding = _text_of(root, path)
    old, new = _same_ends(old_text, before), _same_ends(new_text, before)
    if not old:
        raise FileAccessError("old_text is empty; give the text to be replaced, or use write_file")
    n_found = before.count(old)
    if n_found != 1:
        raise FileAccessError(_why_not(path, before, old, n_found))
    after = before.replace(old, new)
    return Change(before, after, _encoded(path, after, encoding))


def _text_of(root: FileRoot, path: str) -> tuple[str, str]:
    """The text of a file, with its line ends as they are, and its encoding."""
    with root.open(path) as file:
        data = file.read(MAX_WRITTEN_BYTES + 1)
    encoding = encoding_of(data)
    if encoding is None or len(data) > MAX_WRITTEN_BYTES:
        raise FileAccessError(f"{path[:200]!r} is binary or larger than {MAX_WRITTEN_BYTES:,} bytes: it is not changed")
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError:
        raise FileAccessError(f"{path[:200]!r} is not whole text in one encoding: it is not changed") from None


def _encoded(path: str, text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        shown = text[error.start : error.start + 1]
        raise FileAccessError(f"{path[:200]!r} is written in {encoding}, which has no {shown!r}") from None


def _same_ends(text: str, like: str) -> str:
    """Models write \\n; a file whose lines end in \\r\\n keeps that."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in like else text


def _why_not(path: str, before: str, old: str, n_found: int) -> str:
    if n_found:
        return f"old_text stands {n_found} times in {path[:200]!r}; give more of the text around it"
    first = old.strip().splitlines()[0] if old.strip() else old
    lines = before.splitlines()
    near = difflib.get_close_matches(first, lines[:5_000], n=1, cutoff=0.6)
    where = f"; line {lines.index(near[0]) + 1} is {near[0][:200]!r}" if near else "; read it with read_file first"
    return f"old_text does not stand in {path[:200]!r}{where}"


def _shown(root: FileRoot, path: str, change: Change) -> str:
    """Where the file really is (links followed), and what changes in it: for the person who is asked."""
    return f"in {check_writable(root, path)}\n{_diff(path, change)}"


def _diff(path: str, change: Change) -> str:
    """The difference as `diff -u` shows it."""
    if change.before == change.after:
        return f"{path} stays as it is."
    before, after = (change.before or "").splitlines(), change.after.splitlines()
    name = path if change.before is not None else f"{path} (new)"
    lines = list(difflib.unified_diff(before, after, name, path, lineterm=""))
    if not lines:
        return f"{path}: only line ends change."
    more = len(lines) - _MAX_DIFF_LINES
    return "\n".join([*lines[:_MAX_DIFF_LINES], *([f"… {more} more lines"] if more > 0 else [])])
