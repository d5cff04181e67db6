"""list_files, search_files and read_file see one folder, whole and nothing else."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import FileAccessError, Tool, ToolResult, builtin_tools

README = "# Title\n\nText with Needle.\n\n## Part\nlast\n"
SECRET = "top-secret-content"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder `root` with files, beside a secret that must stay out of reach; links of every kind inside."""
    root = tmp_path / "root"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "README.md").write_text(README, "utf-8")
    (root / "docs" / "guide.md").write_text("needle one\nother\nNEEDLE two\n", "utf-8")
    (root / "docs" / "deep" / "a.py").write_text("print('x')\n", "utf-8")
    (root / ".git" / "config").write_text("needle in git\n", "utf-8")
    (root / ".env").write_text("needle hidden\n", "utf-8")
    (root / "empty.txt").write_bytes(b"")
    (root / "picture.bin").write_bytes(b"\x89PNG\x00needle")
    (tmp_path / "secret.txt").write_text(SECRET, "utf-8")
    (tmp_path / "root-other").mkdir()
    (tmp_path / "root-other" / "secret.txt").write_text(SECRET, "utf-8")
    os.symlink(tmp_path / "secret.txt", root / "link.txt")
    os.symlink("../secret.txt", root / "relative.txt")
    os.symlink(tmp_path, root / "up")
    os.symlink("link.txt", root / "link-to-link.txt")
    os.symlink("loop-b", root / "loop-a")
    os.symlink("loop-a", root / "loop-b")
    os.symlink("README.md", root / "inside.md")
    os.symlink("docs", root / "same-docs")
    os.symlink("/dev/zero", root / "zero")
    os.symlink("nowhere", root / "dangling")
    os.mkfifo(root / "pipe")
    return root


def call(root: Path, tool_name: str, **arguments: object) -> ToolResult:
    return tools(root)[tool_name].invoke(json.dumps(arguments))


def tools(root: Path) -> dict[str, Tool]:
    return {item.name: item for item in builtin_tools(root=root)}


ESCAPES = [
    "..", "../", "../secret.txt", "../../etc/passwd", "docs/../../secret.txt",
    "docs/../../root/../secret.txt", "./../secret.txt",
    "docs/deep/../../../secret.txt", "//etc/passwd", "/etc/passwd", "/", "/dev/null", "/dev/zero",
    "/proc/self/environ", "link.txt",
    "relative.txt", "link-to-link.txt", "up", "up/secret.txt", "up/root-other/secret.txt",
    "up/../secret.txt", "docs/../link.txt",
    "same-docs/../../secret.txt", "../root-other/secret.txt", "../root-other", "{tmp}/secret.txt", "{tmp}",
    "{tmp}/root-other/secret.txt",
    "{tmp}/root/../secret.txt", "zero", "a\x00b", "README.md\x00", "../root\x00", "up/root/../secret.txt",
    ".././secret.txt",
    "{tmp}//secret.txt", "docs/deep/../../up/secret.txt", "/proc/self/cwd/README.md",
    "/proc/1/root/etc/passwd", "../" * 40 + "etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out(place: Path, path: str) -> None:
    path = path.format(tmp=place.parent)
    for name, arguments in (
        ("read_file", {}),
        ("list_files", {}),
        ("list_files", {"pattern": "*"}),
        ("search_files", {"query": "secret"}),
    ):
        result = call(place, name, path=path, **arguments)
        assert result.is_error, (name, result.content)
        assert SECRET not in result.content and "root:" not in result.content


@given(
    st.lists(
        st.sampled_from(["..", ".", "docs", "up", "link.txt", "root", "", "README.md", "same-docs", "loop-a", "…"]),
        max_size=8,
    )
)
def test_law_no_combination_reads_the_secret(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.getbasetemp() / "law"
    root = base / "root"
    if not root.exists():
        (root / "docs").mkdir(parents=True)
        (root / "README.md").write_text(README)
        (base / "secret.txt").write_text(SECRET)
        os.symlink(base, root / "up")
        os.symlink(base / "secret.txt", root / "link.txt")
        os.symlink("docs", root / "same-docs")
        os.symlink("loop-a", root / "loop-a")
    made = tools(root)
    for path in ("/".join(parts), "/".join([*parts, "secret.txt"])):
        for name, arguments in (("read_file", {}), ("list_files", {}), ("search_files", {"query": "secret"})):
            assert SECRET not in made[name].invoke({"path": path, **arguments}).content


@pytest.mark.parametrize(
    "path",
    ["README.md", "./README.md", "docs/../README.md", "{root}/README.md", "inside.md", "docs//../README.md"],
)
def test_paths_that_stay_inside_are_read(place: Path, path: str) -> None:
    assert call(place, "read_file", path=path.format(root=place)).value["text"] == README.rstrip("\n")


def test_error_never_tells_whether_something_outside_exists(place: Path) -> None:
    texts = {
        call(place, "read_file", path=f"../{name}").content.replace(name, "X") for name in ("secret.txt", "nothing.txt")
    }
    assert len(texts) == 1 and str(place.parent) not in texts.pop()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("docs", "is a folder; list_files"), ("pipe", "a device or a pipe"),
        ("picture.bin", "is binary (11 bytes)"),
        ("REDME.md", "in the root folder there is README.md"),
        ("docs/guid.md", "in 'docs' there is guide.md"), ("x/y/zzz", "the root folder has"),
        ("loop-a", "cannot read"), ("dangling", "there is no"), ("README.md/x", "there is no"),
        ("", "is a folder"),
    ],
)  # fmt: skip
def test_unreadable_files_say_why_and_what_to_do(place: Path, path: str, said: str) -> None:
    result = call(place, "read_file", path=path)
    assert result.is_error and said in result.content and str(place) not in result.content


def test_socket_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        assert "a device or a pipe" in call(tmp_path, "read_file", path="s").content


def test_one_call_answers_how_many_lines_and_what_heading(place: Path) -> None:
    result = call(place, "read_file", path="README.md")
    assert result.content.startswith("README.md has 6 lines. Lines 1-6:\n# Title\n\n")
    assert "cut" not in result.value


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]), max_size=30),
        max_size=40,
    ),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_law_pages_of_a_file_join_to_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ended: bool, newline: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "pages"
    root.mkdir(exist_ok=True)
    if lines and not ended and not lines[-1]:
        lines = [*lines, "x"]
    body = newline.join(lines) + (newline if ended and lines else "")
    if body.startswith("\ufeff"):
        body = "x" + body
        lines = ["x" + lines[0], *lines[1:]]
    (root / "f.txt").write_bytes(body.encode("utf-8"))
    made, read, start = tools(root), [], 1
    while True:
        value = made["read_file"].invoke({"path": "f.txt", "start_line": start, "max_lines": 7}).value
        assert value["total_lines"] == len(lines)
        read += value["text"].split("\n") if lines else []
        if "cut" not in value:
            break
        start = int(value["cut"].rsplit("=", 1)[1])
    assert read == lines


def test_reading_is_bounded_and_says_where_to_go_on(place: Path) -> None:
    (place / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 901)))
    first = call(place, "read_file", path="long.txt").value
    assert (
        first["total_lines"] == 900
        and first["lines"] == "1-200 of 900"
        and first["cut"] == "read on with start_line=201"
    )
    (place / "wide.txt").write_text("x" * 3_000_000 + "\nend\n")
    wide = call(place, "read_file", path="wide.txt").value
    assert wide["total_lines"] == 2 and len(wide["text"]) < 700 and "[cut: 500 of 3,000,000 characters]" in wide["text"]
    (place / "many.txt").write_text("y" * 400 + "\n" + ("z" * 400 + "\n") * 50)
    assert len(call(place, "read_file", path="many.txt").value["text"]) <= 4_100
    assert "has only 6 lines" in call(place, "read_file", path="README.md", start_line=7).content
    assert call(place, "read_file", path="README.md", start_line=0).is_error


def test_empty_file(place: Path) -> None:
    assert call(place, "read_file", path="empty.txt").value == {"total_lines": 0, "text": ""}


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "utf-16", "utf-8-sig"])
def test_chinese_encodings(place: Path, encoding: str) -> None:
    (place / "z.txt").write_bytes("第一行内容\n第二行\n".encode(encoding))
    assert call(place, "read_file", path="z.txt").value == {"total_lines": 2, "text": "第一行内容\n第二行"}
    assert call(place, "search_files", query="第二").value["lines"] == [{"file": "z.txt", "line": 2, "text": "第二行"}]


def test_listing_shows_names_without_hidden_ones(place: Path) -> None:
    entries = call(place, "list_files").value["entries"]
    assert "docs/" in entries and "README.md" in entries and not [name for name in entries if name.startswith(".")]
    assert call(place, "list_files", path="docs").value == {"total": 2, "entries": ["deep/", "guide.md"]}
    assert "is a file" in call(place, "list_files", path="README.md").content


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.md", ["README.md", "inside.md", "docs/guide.md"]), ("**/*.py", ["docs/deep/a.py"]),
        ("docs/*.md", ["docs/guide.md"]),
        ("readme*", ["README.md"]), ("*.rs", []), ("../*", []), ("config", []), ("link*", []),
    ],
)  # fmt: skip
def test_patterns(place: Path, pattern: str, found: list[str]) -> None:
    assert call(place, "list_files", pattern=pattern).value == {"total": len(found), "entries": found}


def test_long_listing_is_cut_with_its_total(place: Path) -> None:
    (place / "many").mkdir()
    for number in range(130):
        (place / "many" / f"{number:03}.txt").touch()
    value = call(place, "list_files", path="many").value
    assert value["total"] == 130 and len(value["entries"]) == 100 and value["cut"].startswith("first 100 of 130")


def test_search_is_case_insensitive_and_counts(place: Path) -> None:
    value = call(place, "search_files", query="needle").value
    assert (value["total"], value["in_files"]) == (4, 3)  # inside.md is a second name of README.md
    assert {"file": "docs/guide.md", "line": 3, "text": "NEEDLE two"} in value["lines"]
    assert not [line for line in value["lines"] if line["file"].startswith(".")]
    assert value["skipped_files"].startswith("2 ")  # the picture and the pipe
    assert call(place, "search_files", query="needle", path="docs").value["total"] == 2
    assert call(place, "search_files", query="needle", path="README.md").value["total"] == 1
    assert call(place, "search_files", query="absent").value["lines"] == []
    assert call(place, "search_files", query="  ").is_error


def test_search_is_bounded(place: Path) -> None:
    (place / "many.txt").write_text("needle\n" * 100)
    (place / "big.txt").write_text("needle\n" * 300_000)
    (place / "wide.txt").write_text("a" * 1_000 + "needle" + "b" * 1_000)
    value = call(place, "search_files", query="needle").value
    assert len(value["lines"]) == 30 and value["total"] == 105 and value["cut"].startswith("first 30 of 105")
    assert value["skipped_files"].startswith("3 ")
    text = call(place, "search_files", query="needle", path="wide.txt").value["lines"][0]["text"]
    assert "needle" in text and len(text) <= 202


def test_root_must_be_a_folder_and_defaults_to_the_working_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileAccessError, match="not a folder"):
        builtin_tools(root=place / "README.md")
    monkeypatch.chdir(place)
    made = {item.name: item for item in builtin_tools()}
    monkeypatch.chdir(place.parent)
    assert made["read_file"].invoke({"path": "README.md"}).value["total_lines"] == 6


def test_root_may_itself_be_a_link(place: Path) -> None:
    os.symlink(place, place.parent / "alias")
    assert call(place.parent / "alias", "read_file", path="README.md").value["total_lines"] == 6
    assert call(place.parent / "alias", "read_file", path="../secret.txt").is_error


def test_a_folder_that_nobody_named_is_taken_back(tmp_path: Path) -> None:
    """Seen with qwen2.5-coder-1.5b: asked for README.md it read docs/README.md, and gave up."""
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Title\n", "utf-8")
    (read_file,) = [t for t in builtin_tools(root=tmp_path) if t.name == "read_file"]
    for path in ("docs/README.md", "docs/deep/README.md", "nowhere/README.md"):
        result = read_file.invoke({"path": path})
        assert result.is_error
        assert "call again with 'README.md'" in result.content


def test_what_python_makes_beside_its_sources_is_not_searched(tmp_path: Path) -> None:
    """scripts/run's own editable install put every hit in the list twice, the copy first."""
    for folder in ("src", "build/__editable__.x-1", "src/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("NEEDLE\n", "utf-8")
    value = call(tmp_path, "search_files", query="needle").value
    assert [found["file"] for found in value["lines"]] == ["src/a.py"]
