"""Stop texts are found as if the text had come at once, whatever their number and length."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models import OutputParser, ScriptedModel
from laploop.models.parsing.stop_texts import StopTexts

letters = st.text("ab", max_size=30)


def through(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder, let = StopTexts(tuple(stops)), ""
    for piece in pieces:
        let += finder.feed(piece)
        if finder.found:
            return let, True
    return let + finder.rest(), False


@given(st.lists(st.text("ab", min_size=1, max_size=9), max_size=4), letters, st.data())
def test_the_first_that_is_complete_ends_the_text_at_any_cut(stops: list[str], text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    found = min(((at + len(s), -len(s)) for s in stops if (at := text.find(s)) >= 0), default=None)
    expected = (text[: sum(found)], True) if found else (text, False)
    assert through(stops, pieces) == expected


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=4), letters)
def test_no_more_is_held_back_than_may_be_a_beginning(stops: list[str], text: str) -> None:
    finder = StopTexts(tuple(stops))
    let = finder.feed(text)
    if not finder.found:
        held = text[len(let) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize("stop", ["x" * 100_000, "x" * 99_999 + "y", "xy" * 50_000, "y" + "x" * 99_999])
def test_a_long_stop_text_costs_no_more_than_the_text(stop: str) -> None:
    """Regression: every beginning of a stop text stood in one regular expression, whose size is the square of its
    length: with 100,000 characters a reply never came."""
    for text in ("x" * 200_000, "xy" * 100_000):
        parser = OutputParser(stop=[stop], enable_thinking=False)
        for at in range(0, len(text), 3):
            parser.feed(text[at : at + 3])
        parser.finish()
        found = text.find(stop)
        assert parser.result().message["content"] == (text[:found] if found >= 0 else text)


def test_a_thousand_stop_texts() -> None:
    """Regression: see above."""
    stops = [f"<{i}>" * 20 for i in range(1000)]
    raw = "".join(f"<{i}>" * 19 for i in range(1000)) + "<7>" * 20 + "never"
    message = ScriptedModel([raw]).create([{"role": "user", "content": "x"}], stop=stops)["choices"][0]["message"]
    assert message["content"] == raw[: raw.index("<7>" * 20)]
