"""The approval prompt: the exact call, every answer, and no thread but the main one at the terminal."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from laploop.agent import Agent, ApprovalRequest, Approvals, Decision
from laploop.models import ScriptedModel
from laploop.scripts import background
from laploop.scripts.approval_prompt import CHOICES, ApprovalPrompt, call_to_approve, make_approvals
from laploop.scripts.ask import answer
from laploop.scripts.terminal import ProgressView
from laploop.tools import tool

REQUEST = ApprovalRequest("c", "write_file", {"path": "a*.txt", "text": "x\x1b[2J\u202e"}, frozenset({"write", "read"}))


class Typed:
    """Lines that a user types, and what stood there before."""

    def __init__(self, *lines: str) -> None:
        self.lines, self.prompts = list(lines), []  # type: ignore[var-annotated]

    def __call__(self, prompt: str, default: str) -> str:
        assert threading.current_thread() is threading.main_thread()
        self.prompts.append((prompt, default))
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


@pytest.mark.parametrize(
    ("lines", "decision"),
    [
        (["y"], Decision(True)),
        (["what?", "", "NO"], Decision(False)),
        ([], Decision(False)),
        (["e", '{"path": "b"'], Decision(False)),
        (["e", "[1]", '{"path": "b"}'], Decision(True, arguments={"path": "b"})),
        (["a", '{"path": "tmp/*"}'], Decision(True, remember={"path": "tmp/*"})),
        (["a", '{"file": "x"}', '{"path": 3}', "{}"], Decision(True, remember={})),
        (["v", "{}"], Decision(False, remember={})),
    ],
)
def test_answers(lines: list[str], decision: Decision, capsys: pytest.CaptureFixture[str]) -> None:
    assert ApprovalPrompt(Typed(*lines)).ask(REQUEST) == decision


def test_always_offers_exactly_this_call() -> None:
    typed = Typed("a")
    ApprovalPrompt(typed).ask(REQUEST)
    assert typed.prompts[0] == (CHOICES, "")
    assert '"path": "a[*].txt"' in typed.prompts[1][1]


def test_the_whole_call_is_shown_and_nothing_hides() -> None:
    shown = call_to_approve(ApprovalRequest("c", "f", {**REQUEST.arguments, "n": ["y" * 5000]}, REQUEST.effects, "bad"))
    assert "y" * 5000 in shown
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "(read, write)" in shown and shown.endswith("bad")


def test_without_a_terminal_nobody_is_asked() -> None:
    assert make_approvals().ask is None


def test_the_question_comes_to_the_main_thread_behind_what_was_shown_before() -> None:
    """The run goes on in another thread, and its events are shown in this one: they must not come between."""
    log: list[str] = []
    ran: list[Any] = []

    class View(ProgressView):
        def show(self, event: object) -> None:
            log.append(type(event).__name__)

    class Logged(Typed):
        def __call__(self, prompt: str, default: str) -> str:
            log.append("asked")
            return super().__call__(prompt, default)

    @tool(effects={"write"})
    def save(text: str) -> str:
        """Save.

        Args:
            text: what
        """
        ran.append(text)
        return "saved"

    call = '<tool_call>\n{"name": "save", "arguments": {"text": "x"}}\n</tool_call>'
    agent = Agent(ScriptedModel([call, "Saved."]), [save], approvals=Approvals(ask=ApprovalPrompt(Logged("y"))))
    assert answer(agent, "?", View()).answer == "Saved."
    assert ran == ["x"]
    assert log[log.index("asked") - 1] == "ApprovalAsked"
    assert log[log.index("asked") + 1] == "ApprovalAnswered"


def test_ctrl_c_at_the_question_ends_the_run() -> None:
    class Interrupted(Typed):
        def __call__(self, prompt: str, default: str) -> str:
            raise KeyboardInterrupt

    @tool(effects={"write"})
    def save() -> str:
        """Save."""
        raise AssertionError

    call = '<tool_call>\n{"name": "save", "arguments": {}}\n</tool_call>'
    agent = Agent(ScriptedModel([call, "unused"]), [save], approvals=Approvals(ask=ApprovalPrompt(Interrupted())))
    with pytest.raises(KeyboardInterrupt):
        answer(agent, "?", ProgressView())
    assert background.wait(20)


def test_a_request_that_nobody_waits_for_is_a_no() -> None:
    assert ApprovalPrompt(Typed("y"))(REQUEST) == Decision(False)


def test_what_a_call_would_change_is_shown_below_it() -> None:
    """An asked person sees the difference, line by line, with control characters visible."""
    request = ApprovalRequest("c", "write_file", {"path": "a"}, frozenset({"write"}), preview="-old\n+new\x1b[2J")
    shown = call_to_approve(request).splitlines()
    assert shown[1:3] == ['    path = "a"', "  | -old"] and shown[3].startswith("  | +new") and "\x1b" not in shown[3]
