"""Markdown shown while it is written: every split of the text ends in the same picture."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.scripts.markdown_stream import MarkdownStream, split_blocks
from rich.console import Console

TEXT = """\
# Weather

It is **31** degrees in 北京.

1. hot

   and humid
2. windy

```python
print("a")

print("b")
```

- done
"""


def shown(pieces: list[str]) -> str:
    """What stands on the screen at the end (a console that is no terminal draws no unfinished block)."""
    screen = Console(file=io.StringIO(), width=50, color_system=None)
    stream = MarkdownStream(screen)
    for piece in pieces:
        stream.feed(piece)
    stream.close()
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
@settings(deadline=None)
def test_the_split_does_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(edges)]
    squeezed = [line.rstrip() for line in shown(pieces).splitlines() if line.strip()]
    assert squeezed == [line.rstrip() for line in shown([TEXT]).splitlines() if line.strip()]


@given(st.text(alphabet="ab \n`~#-1.", max_size=60))
def test_blocks_and_rest_are_the_text(text: str) -> None:
    done, rest = split_blocks(text)
    assert done + rest == text
    assert done == "" or done.endswith("\n")


@given(st.text(alphabet="ab \n`-", max_size=40), st.text(alphabet="ab \n`-", max_size=10))
def test_a_block_that_is_done_stays_done(text: str, more: str) -> None:
    assert split_blocks(text + more)[0].startswith(split_blocks(text)[0])


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one", ""),
        ("one\n\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("1. one\n\n   more", ""),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nafter", "```\na\n\nb\n```\n\n"),
        ("~~~~\n~~~\n\nx\n~~~~\n\ny", "~~~~\n~~~\n\nx\n~~~~\n\n"),
        ("a\n\nb\n\nc", "a\n\nb\n\n"),
    ],
)
def test_where_a_cut_falls(text: str, done: str) -> None:
    assert split_blocks(text)[0] == done


def test_links_show_where_they_lead() -> None:
    assert "http://127.0.0.1/x" in shown(["see [the page](http://127.0.0.1/x)"])


def test_the_lines_of_a_verse_stay_lines() -> None:
    """A poem of twenty lines stood on the screen as one paragraph: Markdown reads a single line break as a space."""
    verse = "The sea is *vast*,\nthe shore is near.\n\n- a list,\n  whose item goes on\n"
    lines = [line.strip() for line in shown([verse]).splitlines()]
    assert lines[:2] == ["The sea is vast,", "the shore is near."]
    assert lines[-1] == "whose item goes on"


def test_there_is_room_for_the_terminals_ctrl_c() -> None:
    """Lines filled the width, so the echoed ^C wrapped, and a stopped answer showed its first line twice."""
    assert max(len(line) for line in shown(["word " * 40]).splitlines()) == 50 - len("^C")


def screen_of(written: str, height: int) -> list[str]:
    """The lines that a terminal holds in the end, those that have scrolled out of sight included: it knows line feeds,
    carriage returns, "cursor up" (never above the visible part) and "erase the line"."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|[^\x1b]", written):
        if part == "\n":
            row, column = row + 1, 0
            if row == len(lines):
                lines.append("")
        elif part == "\r":
            column = 0
        elif part[-1] == "A" and part[0] == "\x1b":
            row = max(row - int(part[2:-1] or 1), len(lines) - height, 0)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] != "\x1b":
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_of_a_block_that_is_taller_than_the_screen_the_last_lines_are_seen_and_in_the_end_all_once() -> None:
    """Regression: nothing of it moved until it was whole; before that, its first screen stood there twice."""
    screen = Console(file=io.StringIO(), width=50, height=8, color_system=None, force_terminal=True)
    stream = MarkdownStream(screen)
    assert isinstance(screen.file, io.StringIO)
    for n in range(30):
        stream.feed(f"- line {n}\n")
        assert stream._live
        stream._live.refresh()
        seen = [line for line in screen_of(screen.file.getvalue(), 8) if line]
        assert seen == [f" • line {i}" for i in range(max(0, n - 6), n + 1)]
    stream.close()
    assert [line for line in screen_of(screen.file.getvalue(), 8) if line] == [f" • line {n}" for n in range(30)]
