"""Paths that must not lead out of the root, beyond those of test_file_tools: spellings, Unicode, long names, the
system's own views, and what changes between the check of a path and its use."""

from __future__ import annotations

import json
import os
import sys
import threading
import unicodedata
from pathlib import Path

import pytest
from laploop.tools import FileAccessError, builtin_tools
from laploop.tools.file_root import FileRoot

SECRET = "top-secret-content"
NFC, NFD = "caf\u00e9.txt", unicodedata.normalize("NFD", "caf\u00e9.txt")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`root` beside `Root2` and a secret; links that lead out over several steps."""
    root = tmp_path / "root"
    (root / "docs" / "inner").mkdir(parents=True)
    (root / "docs" / "a.txt").write_text("inside\n", "utf-8")
    for folder in (tmp_path, tmp_path / "Root2", tmp_path / "ROOT-2"):
        folder.mkdir(exist_ok=True)
        (folder / "secret.txt").write_text(SECRET, "utf-8")
    os.symlink(tmp_path, root / "docs" / "inner" / "out")
    os.symlink("docs/inner/out", root / "twice")
    os.symlink("/", root / "slash")
    os.symlink("/proc/self/root", root / "proc-root")
    os.symlink("/proc/self/fd", root / "fds")
    os.symlink("/proc/self/environ", root / "environ")
    os.symlink("/dev/stdin", root / "stdin")
    os.symlink("/sys", root / "sys")
    os.symlink(f"{tmp_path}/root/../secret.txt", root / "absolute")
    os.symlink("docs/../../secret.txt", root / "dots")
    os.symlink("../root/../Root2", root / "sister")
    return root


ESCAPES = [
    # links over several steps
    "twice/secret.txt", "twice", "docs/inner/out/secret.txt", "docs/inner/out/root/../secret.txt", "absolute", "dots",
    "sister", "sister/secret.txt", "twice/../secret.txt", "./twice/./secret.txt", "docs/../twice/secret.txt",
    "slash", "slash/etc/passwd", "slash{tmp}/secret.txt", "twice/root/twice/secret.txt",
    # the system's own views
    "proc-root/etc/passwd", "fds", "fds/0", "environ", "stdin", "sys/kernel", "/proc/self/root{tmp}/secret.txt",
    "/proc/self/fd/0", "/proc/thread-self/environ", "/proc/self/mem", "/dev/fd/0", "/dev/stdin",
    "/sys/kernel/uevent_seqnum",
    # spellings
    "../Root2/secret.txt", "../ROOT-2/secret.txt", "..//secret.txt", "..///..//etc/passwd", "docs/./.././../secret.txt",
    "docs//..//..//secret.txt", "{tmp}/root/docs/../../secret.txt", "///{tmp}/secret.txt", "{tmp}/./secret.txt",
    "{tmp}/root2/../secret.txt", "~/../../etc/passwd/../passwd/../../../../../../../../etc/passwd",
    "docs/inner/../../../secret.txt", "docs/a.txt/../../../secret.txt",
    # long ones
    "x/" * 900 + "../" * 950 + "etc/passwd", "../" * 1300 + "etc/passwd", "docs/../" * 500 + "../secret.txt",
    # NUL, also behind what is allowed
    "docs/a.txt\x00/../../secret.txt", "\x00", "../secret.txt\x00.md",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out(place: Path, path: str) -> None:
    path = path.replace("{tmp}", str(place.parent))
    made = {item.name: item for item in builtin_tools(root=place)}
    for name, arguments in (("read_file", {}), ("list_files", {}), ("list_files", {"pattern": "*"}),
                            ("search_files", {"query": "secret"})):  # fmt: skip
        result = made[name].invoke(json.dumps({"path": path, **arguments}))
        assert result.is_error, (name, result.content)
        assert SECRET not in result.content and "root:" not in result.content
        assert "outside the root" in result.content or "NUL" in result.content or "at most" in result.content


HARMLESS = [
    "..%2fsecret.txt", "%2e%2e/secret.txt", "..\\secret.txt", "docs\\..\\..\\secret.txt", "．．/secret.txt",
    "‥/secret.txt",
    "..;/secret.txt", ". ./secret.txt", ".. /secret.txt", "...//secret.txt", "~/secret.txt", "~root/x", "$HOME/x",
    "${HOME}/x", "file:///etc/passwd", "C:\\Windows\\win.ini", "\\\\server\\share", "docs/a.txt ", "docs/a.txt.",
    "docs/A.TXT/x", "a" * 300, "docs/a.txt/x", "docs/" + "文" * 100, "x/" * 2500 + "x", "x/" * 2000 + "x",
    "\u202etxt.a/docs",
    "docs/a.txt/", "\ud800", "docs/\udcff", "docs∕a.txt", "docs／a.txt", "\n", "con", "nul.txt", "docs/a.txt:stream",
]  # fmt: skip


@pytest.mark.parametrize("path", HARMLESS)
def test_names_that_only_look_like_ways_out_are_names(place: Path, path: str) -> None:
    """Long and odd names were answered with the system's own words (OSError: File name too long), some with a fault
    of Python's (UnicodeEncodeError)."""
    made = {item.name: item for item in builtin_tools(root=place)}
    for name, arguments in (("read_file", {}), ("list_files", {}), ("search_files", {"query": "secret"})):
        result = made[name].invoke({"path": path, **arguments})
        if not result.is_error:
            assert os.path.realpath(place / path) == str(place / "docs" / "a.txt"), path  # a last / is forgiven
            continue
        assert result.content.startswith(f"{name}: "), result.content
        assert SECRET not in result.content and str(place.parent) not in result.content


@pytest.mark.parametrize(("stored", "asked"), [(NFC, NFD), (NFD, NFC), (NFC, NFC), (NFD, NFD)])
def test_a_name_is_found_in_either_normal_form(place: Path, stored: str, asked: str) -> None:
    """A model writes é as one character; a file from a Mac has two. The answer was "there is no café.txt; there is
    café.txt"."""
    folder = place / f"d{stored[:-4]}"
    folder.mkdir()
    (folder / stored).write_text("found\n", "utf-8")
    made = {item.name: item for item in builtin_tools(root=place)}
    path = f"d{asked[:-4]}/{asked}"
    assert made["read_file"].invoke({"path": path}).value["text"] == "found"
    assert made["list_files"].invoke({"pattern": f"*{asked[3:]}"}).value["total"] == 1
    assert made["search_files"].invoke({"query": "found", "path": path}).value["total"] == 1


def test_a_link_in_the_other_normal_form_is_judged_by_where_it_leads(place: Path) -> None:
    os.symlink(place.parent / "secret.txt", place / NFD)
    made = {item.name: item for item in builtin_tools(root=place)}
    for path in (NFC, NFD):
        result = made["read_file"].invoke({"path": path})
        assert result.is_error and SECRET not in result.content


def test_two_files_in_two_forms_are_two_files(place: Path) -> None:
    if sys.platform == "darwin":
        pytest.skip("the file system takes them for one")
    (place / NFC).write_text("one\n", "utf-8")
    (place / NFD).write_text("two\n", "utf-8")
    made = {item.name: item for item in builtin_tools(root=place)}
    assert [made["read_file"].invoke({"path": path}).value["text"] for path in (NFC, NFD)] == ["one", "two"]


class _Swapping(FileRoot):
    """A root whose folder `docs` becomes a link to the outside right after a path was judged."""

    def resolve(self, path: str) -> Path:
        real = super().resolve(path)
        docs = self.path / "docs"
        if not docs.is_symlink():
            docs.rename(self.path / "before")
            os.symlink(self.path.parent, docs)
        return real


@pytest.mark.parametrize("act", ["open", "entries", "walk"])
def test_a_folder_swapped_for_a_link_after_the_check_leads_nowhere(place: Path, act: str) -> None:
    """Only the last name was opened without following a link: a folder above it could be swapped."""
    (place / "docs" / "secret.txt").write_text("harmless\n", "utf-8")
    root = _Swapping(place)
    if act == "walk":
        assert list(root.walk(root.folder("docs"))) == []
        return
    with pytest.raises(FileAccessError, match=r"cannot|no .docs"):
        _ = root.open("docs/secret.txt") if act == "open" else root.entries(root.resolve("docs"))


def test_swapping_all_the_time_never_shows_the_secret(place: Path) -> None:
    """The same with a real race: a thread swaps a folder and a link while files are read and searched."""
    folder, link = place / "docs" / "swap", place / "docs" / "aside"
    folder.mkdir()
    (folder / "secret.txt").write_text("harmless\n", "utf-8")
    os.symlink(place.parent, link)
    ended = threading.Event()

    def swap() -> None:
        third = place / "docs" / "third"
        while not ended.is_set():
            folder.rename(third)
            link.rename(folder)
            third.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    made = {item.name: item for item in builtin_tools(root=place)}
    try:
        seen = {made["read_file"].invoke({"path": "docs/swap/secret.txt"}).content for _ in range(300)}
        seen |= {made["search_files"].invoke({"query": "e", "path": "docs"}).content for _ in range(100)}
        seen |= {made["list_files"].invoke({"path": "docs/swap"}).content for _ in range(100)}
    finally:
        ended.set()
        thread.join()
    assert any("harmless" in content for content in seen)
    assert not [content for content in seen if SECRET in content or "Root2" in content]


def test_a_listing_does_not_tell_what_a_link_out_leads_to(place: Path) -> None:
    """ "up/" told that there is a folder outside, "up" that there is none."""
    os.symlink(place.parent / "nothing-there", place / "gone")
    entries = next(item for item in builtin_tools(root=place) if item.name == "list_files").invoke({}).value["entries"]
    assert {"slash", "sister", "twice", "gone", "docs/"} <= set(entries)


def test_the_whole_disk_as_root_has_no_process_in_it() -> None:
    made = {item.name: item for item in builtin_tools(root=Path("/"))}
    for path in ("proc/self/environ", "/proc/self/mem", "dev/zero", "sys/kernel"):
        assert "outside the root" in made["read_file"].invoke({"path": path}).content


def test_a_folder_that_may_not_be_listed_is_passed_over(place: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may list everything")
    (place / "closed").mkdir(mode=0)
    try:
        made = {item.name: item for item in builtin_tools(root=place)}
        assert made["search_files"].invoke({"query": "inside"}).value["total"] == 1
        assert "cannot list" in made["list_files"].invoke({"path": "closed"}).content
    finally:
        (place / "closed").chmod(0o700)


def test_search_shows_the_lines_around(place: Path) -> None:
    from laploop.tools.builtin.files import file_tools

    (place / "n.txt").write_text("one\ntwo\nNEEDLE\nfour\nfive\nsix\n", "utf-8")
    (search,) = [item for item in file_tools(place, context_lines=2) if item.name == "search_files"]
    assert search.invoke({"query": "needle"}).value["lines"] == [
        {"file": "n.txt", "line": 3, "text": "NEEDLE", "before": ["one", "two"], "after": ["four", "five"]}
    ]
    assert search.invoke({"query": "six"}).value["lines"] == [
        {"file": "n.txt", "line": 6, "text": "six", "before": ["four", "five"]}
    ]
