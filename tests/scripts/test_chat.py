"""`laploop chat`: remembers, obeys its commands, survives a failed or stopped answer."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from laploop.agent import RunFinished, TextDelta
from laploop.models import ScriptedModel
from laploop.scripts.chat import Conversation, piped_lines, prompted_lines
from laploop.scripts.options import Options
from laploop.scripts.terminal import ProgressView
from laploop.tools import tool


class AnswerView(ProgressView):
    """Collects the answers."""

    answers: list[str]

    def show(self, event: object) -> None:
        if isinstance(event, RunFinished):
            self.answers.append(event.result.answer)


def conversation(*turns: str, thinking: bool = False) -> tuple[Conversation, ScriptedModel, list[str]]:
    @tool
    def get_time() -> str:
        """The time."""
        return "12:00"

    answers: list[str] = []
    view = AnswerView()
    view.answers = answers
    model = ScriptedModel(turns, enable_thinking=thinking)
    return Conversation(model, [get_time], Options(), lambda: view), model, answers


def test_it_remembers_until_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    talk, model, answers = conversation("Hello Ada.", "Ada.", "Who?")
    assert talk.hold(iter(["I am Ada", "", "Who am I?", "/clear", "Who am I?"])) == 0
    assert answers == ["Hello Ada.", "Ada.", "Who?"]
    asked = [[m["content"] for m in r.messages if m["role"] != "system"] for r in model.requests]
    assert asked == [["I am Ada"], ["I am Ada", "Hello Ada.", "Who am I?"], ["Who am I?"]]


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """What commands say goes to standard error, which leaves the other to the answers; /help once did not."""
    talk, model, _ = conversation("a", "b", "c")
    lines = [
        "/help",
        "/tools",
        "/think",
        "/think off",
        "q1",
        "/think on",
        "q2",
        "/think auto",
        "q3",
        "/exit",
        "never",
    ]
    assert talk.hold(iter(lines)) == 0
    assert [r.enable_thinking for r in model.requests] == [False, True, None]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "/clear" in captured.err
    assert "get_time: The time." in captured.err
    assert [line for line in captured.err.splitlines() if line.startswith("Thinking")] == [
        "Thinking: auto.",
        "Thinking: off.",
        "Thinking: on.",
        "Thinking: auto.",
    ]


def test_what_was_answered_is_shown_and_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    talk, _, _ = conversation()
    talk._approvals.remember("save", {"path": "notes/*"}, True)
    talk._approvals.remember("delete", {}, False)
    talk.hold(iter(["/approvals"]))
    shown = capsys.readouterr().err
    assert "read: auto" in shown and "irreversible: ask" in shown and "no terminal" in shown
    assert 'always: save with {"path": "notes/*"}' in shown and "never: delete with any arguments" in shown
    talk.hold(iter(["/clear", "/approvals forget"]))
    assert "save" not in capsys.readouterr().err
    assert talk._approvals.answers() == []


@pytest.mark.parametrize(
    ("line", "words"),
    [("/clera", "/clear"), ("/approvals all", "or forget"), ("/think maybe", "on, off or auto"), ("/", "/help")],
)
def test_a_wrong_command_says_what_is_right(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    talk, model, _ = conversation()
    talk.hold(iter([line]))
    assert words in capsys.readouterr().err
    assert model.requests == []


def test_a_failed_question_is_one_line_and_the_talk_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    talk, _, answers = conversation("fine")
    assert talk.hold(iter(["first", "second", "/tools"])) == 1
    assert answers == ["fine"]
    captured = capsys.readouterr()
    complaint = next(line for line in captured.err.splitlines() if line.startswith("laploop: "))
    assert complaint.endswith("(/clear forgets the conversation)")
    assert [m["content"] for m in talk.session.messages] == ["first", "fine"]


def test_ctrl_c_stops_one_answer_only(capsys: pytest.CaptureFixture[str]) -> None:
    """The view raises what Ctrl-C raises in the main thread, in the middle of the answer."""
    talk, _, answers = conversation("a long answer " * 3000, "short")

    class Interrupting(AnswerView):
        def show(self, event: object) -> None:
            if isinstance(event, TextDelta) and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
            super().show(event)

    interrupted: list[bool] = []
    view = Interrupting()
    view.answers = answers
    talk._make_view = lambda: view
    assert talk.hold(iter(["first", "second"])) == 0
    assert answers == ["short"]
    assert "stopped" in capsys.readouterr().err
    assert [m["role"] for m in talk.session.messages] == ["user", "assistant", "user", "assistant"]


def test_piped_lines_join_at_a_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\\\nthree\r\n\nlast\\\n"))
    assert list(piped_lines()) == ["one", "two\nthree", "", "last\n"]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[object]:
    """`typed(keys)` gives the lines that these keys make at the prompt."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.delenv("LAPLOOP_DATA_DIR")
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))

    def lines(keys: str) -> list[str]:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys)
            return list(prompted_lines("title"))

    yield lines
    assert list(tmp_path.rglob("chat-history.txt"))


def test_at_the_prompt_lines_can_be_continued(typed: object) -> None:
    """Enter sends; a backslash before it, or Alt-Enter, starts a new line; Ctrl-C drops the line; Ctrl-D
    leaves.
    """
    assert typed("one\rtwo\\\rthree\ra\x1b\rb\rlost\x03\x04") == ["one", "two\nthree", "a\nb"]  # type: ignore[operator]


def test_history_comes_back(typed: object) -> None:
    assert typed("one\r\x04") == ["one"]  # type: ignore[operator]
    assert typed("\x1b[A\r\x04") == ["one"]  # type: ignore[operator]


def test_thinking_that_a_model_cannot_do_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: it said "Thinking: on.", and a warning came with the next question."""
    model = ScriptedModel(["a"], dialect="qwen2.5")
    talk = Conversation(model, [], Options(), lambda: AnswerView())
    assert talk.hold(iter(["/think on", "/think"])) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["laploop: scripted has no thinking mode; nothing changes", "Thinking: auto."]
