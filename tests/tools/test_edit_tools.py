"""write_file and edit_file: what they change, what they show before, and what they refuse."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import Tool, ToolResult
from laploop.tools.builtin.edits import edit_tools
from laploop.tools.file_root import FileRoot
from laploop.tools.file_write import replace_file


def tools(root: Path) -> dict[str, Tool]:
    return {item.name: item for item in edit_tools(root)}


def call(root: Path, name: str, **arguments: str) -> ToolResult:
    return tools(root)[name].invoke(json.dumps(arguments))


def preview(root: Path, name: str, **arguments: str) -> str:
    return tools(root)[name].previewed(arguments)


def test_both_write_alone_and_are_asked_about(tmp_path: Path) -> None:
    for item in edit_tools(tmp_path):
        assert item.effects == {"read", "write"} and item.run_alone and item.strict == {"path"}


def test_a_new_file_with_its_folders(tmp_path: Path) -> None:
    assert preview(tmp_path, "write_file", path="a/b/c.txt", content="one\n二\n") == (
        f"in {tmp_path.resolve() / 'a/b/c.txt'}\n--- a/b/c.txt (new)\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+二"
    )
    assert list(tmp_path.iterdir()) == []
    result = call(tmp_path, "write_file", path="a/b/c.txt", content="one\n二\n")
    assert result.value == {"path": "a/b/c.txt", "created": True, "lines": 2}
    assert (tmp_path / "a/b/c.txt").read_text("utf-8") == "one\n二\n"
    assert [p.name for p in (tmp_path / "a/b").iterdir()] == ["c.txt"]


def test_replacing_keeps_mode_and_encoding(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_bytes("旧内容\n".encode("gbk"))
    file.chmod(0o750)
    assert preview(tmp_path, "write_file", path="run.sh", content="新内容\n").splitlines()[-2:] == [
        "-旧内容",
        "+新内容",
    ]
    assert call(tmp_path, "write_file", path="run.sh", content="新内容\n").value["created"] is False
    assert file.read_bytes() == "新内容\n".encode("gb18030") and stat.S_IMODE(file.stat().st_mode) == 0o750


def test_an_edit_and_its_difference(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    assert preview(tmp_path, "edit_file", path="t.txt", old_text="b\nc", new_text="B").splitlines()[3:] == [
        "@@ -1,3 +1,2 @@", " a", "-b", "-c", "+B",
    ]  # fmt: skip
    assert call(tmp_path, "edit_file", path="t.txt", old_text="b\nc", new_text="B").value == {
        "path": "t.txt",
        "line": 2,
    }
    assert (tmp_path / "t.txt").read_bytes() == b"a\r\nB\r\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old_text": "nowhere at all", "new_text": ""}, "does not stand in 't.txt'; read it"),
        ({"old_text": "The secnd line", "new_text": ""}, "line 2 is 'The second line'"),
        ({"old_text": "The", "new_text": ""}, "stands 2 times"),
        ({"old_text": "", "new_text": "x"}, "old_text is empty"),
        ({"old_text": "The first", "new_text": "x", "path": "u.txt"}, "there is t.txt"),
        ({"old_text": "a", "new_text": "x", "path": "b.bin"}, "is binary"),
        ({"old_text": "a", "new_text": "x", "path": "half.txt"}, "not whole text"),
    ],
)
def test_what_cannot_be_edited_says_why_before_and_after(tmp_path: Path, arguments: dict[str, str], said: str) -> None:
    (tmp_path / "t.txt").write_text("The first line\nThe second line\n")
    (tmp_path / "b.bin").write_bytes(b"a\x00b")
    (tmp_path / "half.txt").write_bytes(b"a" * 70_000 + b"\xff")
    arguments = {"path": "t.txt", **arguments}
    shown = preview(tmp_path, "edit_file", **arguments)
    result = call(tmp_path, "edit_file", **arguments)
    assert result.is_error and said in result.content and shown.startswith("It would fail: ") and said in shown
    assert (tmp_path / "t.txt").read_text() == "The first line\nThe second line\n"


PLACES = [
    "../out.txt", "/etc/out.txt", "up/out.txt", "link.txt", "dangling", "a/../../out.txt", ".git/hooks/pre-commit",
    ".bashrc", "a/.hidden/x", "folder", "folder/", ".", "", "pipe", "zero", "a\x00b", "x" * 300,
    "folder/" + "y/" * 2100,
    "proc/self/mem", "README.md/x", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("path", PLACES)
def test_places_that_are_not_written(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "README.md").write_text("x")
    (tmp_path / "secret.txt").write_text("secret")
    for name, target in (("up", ".."), ("link.txt", "../secret.txt"), ("dangling", "../new.txt"), ("zero", "/dev/null"),
                         ("proc", "/proc")):  # fmt: skip
        os.symlink(target, root / name)
    os.mkfifo(root / "pipe")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    result = tools(root)["write_file"].invoke({"path": path, "content": "hostile"})
    assert result.is_error and result.content.startswith("write_file: "), result.content
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before and (tmp_path / "secret.txt").read_text() == "secret"


def test_a_link_to_a_file_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    os.symlink("real.txt", tmp_path / "alias.txt")
    assert not call(tmp_path, "write_file", path="alias.txt", content="new").is_error
    assert (tmp_path / "alias.txt").is_symlink() and (tmp_path / "real.txt").read_text() == "new"


def test_a_folder_swapped_after_the_check_is_not_written_through(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "docs").mkdir(parents=True)
    outside.mkdir()

    class Swapping(FileRoot):
        def resolve(self, path: str) -> Path:
            real = super().resolve(path)
            if not (root / "docs").is_symlink():
                (root / "docs").rename(root / "before")
                os.symlink(outside, root / "docs")
            return real

    with pytest.raises(Exception, match="cannot write"):
        replace_file(Swapping(root), "docs/new.txt", b"x")
    assert list(outside.iterdir()) == []


def test_too_much_is_refused(tmp_path: Path) -> None:
    assert "too many" in call(tmp_path, "write_file", path="a", content="x" * 2_000_001).content
    long = preview(tmp_path, "write_file", path="a", content="x\n" * 1_000)
    assert long.endswith("… 603 more lines")


_lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\ufeff\ufffe"), max_size=40)


@given(_lines, _lines, _lines, st.booleans())
def test_law_an_edit_changes_its_place_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, before: str, middle: str, after: str, crlf: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / "edits"
    root.mkdir(exist_ok=True)
    end = "\r\n" if crlf else "\n"
    head, tail = (text.replace("\r", "").replace("\n", end) for text in (before, after))
    (root / "t.txt").write_bytes(f"{head}<<HERE>>{tail}".encode())
    middle = middle.replace("\r", "")
    result = tools(root)["edit_file"].invoke({"path": "t.txt", "old_text": "<<HERE>>", "new_text": middle})
    assert not result.is_error, result.content
    written = (root / "t.txt").read_bytes().decode()
    ends = end if "\r\n" in head + tail else "\n"
    assert written == f"{head}{middle.replace(chr(10), ends)}{tail}"
    assert result.value["line"] == head.count("\n") + 1
