"""What the views print: nothing dangerous, nothing too wide, and in a pipe nothing but the answer."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import (
    Agent,
    CallBegun,
    CallFinished,
    CallStarted,
    Event,
    GuardFired,
    ReasoningDelta,
    ResultCut,
    RoundStarted,
    RunFinished,
    TextDelta,
)
from laploop.agent.result import STOP_REASONS
from laploop.models import ScriptedModel
from laploop.scripts.call_lines import CallLines, call_text
from laploop.scripts.terminal import (
    PipeView,
    ProgressView,
    TerminalView,
    make_view,
    why_no_answer,
)
from laploop.scripts.visible import clean, json_text
from laploop.tools import tool
from rich.cells import cell_len
from rich.console import Console

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r\nnext"


def console(width: int = 60, *, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False, color_system=None)


def text_of(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def lines_of(*events: Event, width: int = 60) -> list[str]:
    screen = console(width)
    lines = CallLines(screen)
    for event in events:
        lines.show(event)
    lines.close()
    return text_of(screen).splitlines()


def test_half_a_surrogate_pair_can_be_shown() -> None:
    """Regression: a terminal's stream cannot encode one; `--json` of a question with a stray byte was a traceback."""
    assert clean("a\udcffb") == "a\\udcffb"
    assert json.loads(json_text({"question": "a\udcffb"}).encode("utf-8")) == {"question": "a\udcffb"}


def test_control_characters_become_visible() -> None:
    assert clean(ATTACK) == "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202egnp.exe\nnext"
    assert clean("tab\tand 北京 🌤 stay\n") == "tab\tand 北京 🌤 stay\n"


@given(st.text(), st.integers(0, 40))
def test_cleaning_works_piece_by_piece(text: str, at: int) -> None:
    whole = clean(text)
    assert clean(text[:at]) + clean(text[at:]) == whole
    assert not [c for c in whole if c not in "\n\t" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)]


@given(st.recursive(st.text() | st.none() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_json_for_stdout_is_json_without_raw_control_characters(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert not [c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"city": "北京"}', 'f(city="北京")'),
        ('{"a": 1, "b": [true, null]}', "f(a=1, b=[true, null])"),
        ("{}", "f()"),
        ("", "f()"),
        ("[1]", "f([1])"),
        ("{broken", "f({broken)"),
    ],
)
def test_call_text(arguments: str, shown: str) -> None:
    assert call_text("f", arguments) == shown


def test_a_call_is_one_line_when_it_starts_and_one_when_it_ends() -> None:
    assert lines_of(CallStarted(1, "c", "get_weather", '{"city": "北京"}')) == ['→ get_weather(city="北京")']
    done = CallFinished(1, "c", "get_weather", "{}", '{"t":\n 31}', is_error=False, seconds=0.84)
    assert lines_of(done) == ['← get_weather 0.8 s: {"t": 31}']
    failed = CallFinished(1, "c", "get_weather", "{}", "no network", is_error=True, seconds=0)
    assert lines_of(failed) == ["✗ get_weather 0.0 s: no network"]
    assert lines_of(GuardFired(3, "repeat", "masked", "f")) == ["! repeat, masked: f"]
    assert lines_of(GuardFired(3, "repeat", "refused", "f")) == []
    assert lines_of(GuardFired(3, "length", "stopped", "f")) == [], "why_no_answer says it, with the way out"


def test_a_result_that_is_cut_is_one_line() -> None:
    """Regression: it was two, one for the result and one for its cut."""
    started = CallStarted(1, "c", "f", "{}")
    done = CallFinished(1, "c", "f", "{}", "a long text", is_error=False, seconds=1)
    cut = ResultCut(1, "c", 40_000, "x" * 16_000)
    line = "← f 1.0 s, cut to 16,000 of 40,000 characters: a long text"
    assert lines_of(started, done, cut)[1:] == [line]
    assert lines_of(started, done)[1:] == ["← f 1.0 s: a long text"]
    other = CallFinished(1, "d", "g", "{}", "b", is_error=False, seconds=1)
    both = lines_of(started, CallStarted(1, "d", "g", "{}"), done, other, cut)[2:]
    assert both == ["← f 1.0 s: a long text", "← g 1.0 s: b", "! a result was cut to 16,000 of 40,000 characters"]


@given(st.text(), st.sampled_from(["北京上海", "ab", "e\u0301", "🌤", ATTACK]), st.integers(10, 80))
def test_no_line_is_wider_than_the_console(name: str, filler: str, width: int) -> None:
    for event in (
        CallStarted(1, "c", name, json.dumps({"x": filler * 40})),
        CallFinished(1, "c", name, "{}", filler * 40, is_error=False, seconds=1),
    ):
        lines = lines_of(event, width=width)
        assert len(lines) == 1
        assert cell_len(lines[0]) <= width
        assert "\x1b" not in lines[0]


def test_a_terminal_shows_thinking_calls_and_the_answer_in_order() -> None:
    screen = console(terminal=True)
    view = TerminalView(screen)
    view.show(RoundStarted(1))
    for piece in ("\nI need", " the weather.\x1b[31m"):
        view.show(ReasoningDelta(1, piece))
    view.show(CallStarted(1, "c", "get_weather", '{"city": "北京"}'))
    view.show(CallFinished(1, "c", "get_weather", "{}", "31", is_error=False, seconds=1))
    for piece in ("It is **31** deg", "rees.\n\n- hu", "mid\x1b[2J\n"):
        view.show(TextDelta(2, piece))
    view.close()
    shown = text_of(screen)
    places = [shown.index(p) for p in ("I need the weather.\\x1b[31m\n", "→ get_weather", "← get_weather", "31 deg")]
    assert places == sorted(places)
    assert "• humid\\x1b[2J" in shown
    assert "**" not in shown


def test_a_spinner_says_what_goes_on() -> None:
    """Regression: it said "reading" while a call was written, and nothing turned while tools ran."""
    screen = console(terminal=True)
    view = TerminalView(screen)
    view.show(RoundStarted(1))
    view.show(CallBegun(1, "get_weather"))
    view.show(CallStarted(1, "a", "get_weather", "{}"))
    view.show(CallStarted(1, "b", "get_time\x1b[2J", "{}"))
    view.show(CallFinished(1, "a", "get_weather", "{}", "31", is_error=False, seconds=1))
    view.show(CallFinished(1, "b", "get_time\x1b[2J", "{}", "12", is_error=False, seconds=1))
    view.show(RoundStarted(2))
    view.show(TextDelta(2, "31 at 12."))
    view.close()
    said = (
        "reading …",
        "writing a call to get_weather …",
        "→ get_weather",
        "running get_weather …",
        "→ get_time",
        "running get_weather, get_time\\x1b[2J …",
        "← get_weather",
        "running get_time\\x1b[2J …",
        "← get_time",
        "reading …",
        "31 at 12.",
    )
    shown, at = text_of(screen), 0
    for words in said:
        at = shown.index(words, at) + len(words)
    assert screen._live_stack == []


def weather_run(view: PipeView | ProgressView | TerminalView) -> None:
    @tool
    def get_weather(city: str) -> str:
        """Weather.

        Args:
            city: where
        """
        return "31 \x1b[31m"

    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'
    model = ScriptedModel(["<think>\nHm.\n</think>\n\nOne moment.\n" + call, "**31** \x1b[2J°C"], enable_thinking=True)
    for event in Agent(model, [get_weather]).stream("北京?"):
        view.show(event)
    view.close()


def test_in_a_pipe_stdout_holds_the_answer_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    progress = console()
    weather_run(PipeView(progress))
    assert capsys.readouterr().out == "**31** \\x1b[2J°C\n"
    assert text_of(progress).splitlines() == [
        '→ get_weather(city="北京")',
        "← get_weather 0.0 s: 31 \\x1b[31m",
    ]


def test_with_json_stdout_stays_free(capsys: pytest.CaptureFixture[str]) -> None:
    weather_run(ProgressView())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "→ get_weather" in captured.err
    assert "\x1b" not in captured.err


def test_without_a_terminal_the_view_is_the_pipes() -> None:
    assert isinstance(make_view(), PipeView)


def test_every_reason_to_stop_without_an_answer_has_a_sentence() -> None:
    for reason in STOP_REASONS:
        if reason != "answer":
            result = Agent(ScriptedModel(["x"])).run("?")
            sentence = why_no_answer(type(result)(**{**_fields(result), "stop_reason": reason, "answered": False}))
            assert sentence


def _fields(result: object) -> dict[str, object]:
    return {name: getattr(result, name) for name in result.__slots__}  # type: ignore[attr-defined]


def test_run_finished_closes_what_is_open() -> None:
    screen = console(terminal=True)
    view = TerminalView(screen)
    view.show(RoundStarted(1))
    view.show(TextDelta(1, "half"))
    view.show(RunFinished(Agent(ScriptedModel(["half"])).run("?")))
    assert "half" in text_of(screen)
    assert screen._live_stack == []
