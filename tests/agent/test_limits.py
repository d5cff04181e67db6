"""Caps on rounds, calls, tokens and time: the run ends with an answer, or with an error that carries it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from laploop.agent import Agent, ConfigError, LimitError, Limits, RoundLimitError, check_history
from laploop.agent.stop import Stop
from laploop.models import ScriptedModel
from laploop.models.requests.request import Request
from laploop.tools import tool

Calls = Callable[..., str]


@tool
def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: where
    """
    return f"{place}: nothing"


@tool(timeout_s=None)
def hang() -> str:
    """Never return."""
    threading.Event().wait()
    return ""


def looks(calls: Calls, *numbers: int) -> str:
    return calls(*(("look", {"place": f"room {n}"}) for n in numbers))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_rounds=2), "max_rounds"),
        (Limits(max_rounds=None, max_calls=4), "max_calls"),
        (Limits(max_rounds=None, max_tokens=250), "max_tokens"),
    ],
)
def test_at_a_cap_a_final_answer_is_asked_for(calls: Calls, limits: Limits, reason: str) -> None:
    with ScriptedModel([looks(calls, 1, 2), looks(calls, 3, 4), "Nothing."]) as model:
        result = Agent(model, [look], limits=limits).run("?")
    assert (result.stop_reason, result.answer, result.answered) == (reason, "Nothing.", True)
    assert model.requests[-1].tool_choice == "none"
    assert [(r["guard"], r["step"]) for r in result.trace.of_type("guard_fired")] == [(reason, "final_answer")]


@pytest.mark.parametrize("reason", ["max_rounds", "max_calls", "max_tokens"])
def test_raise_carries_the_run_so_far(calls: Calls, reason: str) -> None:
    limits = Limits(**{"max_rounds": None, reason: 1})
    with pytest.raises(LimitError, match=f"raise {reason}") as caught:
        Agent(ScriptedModel([looks(calls, 1)]), [look], limits=limits, on_limit="raise").run("?")
    assert isinstance(caught.value, RoundLimitError) == (reason == "max_rounds")
    assert caught.value.result.stop_reason == reason
    check_history(caught.value.result.messages)


def test_calls_beyond_the_cap_in_one_reply_are_refused(calls: Calls) -> None:
    with ScriptedModel([looks(calls, 1, 2, 3), "One."]) as model:
        result = Agent(model, [look], limits=Limits(max_calls=2)).run("?")
    assert sum(r["executed"] for r in result.calls) == 2
    assert "no more calls" in result.messages[5]["content"]
    check_history(result.messages)


def test_tools_that_run_at_the_end_of_the_time_are_given_up(calls: Calls) -> None:
    with ScriptedModel([calls(("look", {"place": "a"}), ("hang", {})), "Only a."]) as model:
        result = Agent(model, [look, hang], limits=Limits(timeout_s=0.5)).run("?")
    assert (result.stop_reason, result.answer) == ("timeout", "Only a.")
    assert [r["is_error"] for r in result.calls] == [False, True]
    assert "time for this question was over" in result.messages[4]["content"]
    check_history(result.messages)


class Slow(ScriptedModel):
    """Waits for its time to be over in the middle of a reply."""

    over = False

    def _stream(self, request: Request) -> Iterator[Any]:
        for n, chunk in enumerate(super()._stream(request)):
            if n == 3 and not self.over:
                self.over = True
                threading.Event().wait(0.1)
            yield chunk


def test_a_reply_is_broken_off_when_the_time_is_over(calls: Calls) -> None:
    model = Slow(["A long answer that goes on", "unused"], piece=4)
    result = Agent(model, [look], limits=Limits(timeout_s=0.05)).run("?")
    assert (result.stop_reason, result.answered) == ("timeout", False)
    assert "A long answer that goes on".startswith(result.answer) and result.answer
    check_history(result.messages)


def test_without_text_so_far_the_final_answer_comes_after_the_time(calls: Calls) -> None:
    model = Slow([looks(calls, 1), "Nothing."], piece=4)
    result = Agent(model, [look], limits=Limits(timeout_s=0.05)).run("?")
    assert (result.stop_reason, result.answer, result.answered) == ("timeout", "Nothing.", True)
    assert result.calls == []
    check_history(result.messages)


class SilentAtLast(Slow):
    """Says nothing for as long as the final answer may take, and longer."""

    def _stream(self, request: Request) -> Iterator[Any]:
        if self.over:
            yield {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
            threading.Event().wait(0.1)
        yield from super()._stream(request)


def test_the_final_answer_has_a_time_of_its_own(calls: Calls) -> None:
    """It once had no end; what the tools returned stands in for it now."""
    model = SilentAtLast([calls(("look", {"place": "a"})), looks(calls, 1), "never shown"], piece=4)
    limits = Limits(timeout_s=0.05, final_answer_s=0.05)
    result = Agent(model, [look], limits=limits).run("?")
    assert (result.stop_reason, result.answered) == ("timeout", False)
    assert "never shown" not in result.answer and "no final answer" in result.answer
    steps = [(r["guard"], r["step"]) for r in result.trace.of_type("guard_fired")]
    assert steps == [("timeout", "final_answer"), ("timeout", "stopped")]
    check_history(result.messages)


def test_time_that_is_over_raises_where_it_is_to_raise() -> None:
    model = Slow(["A long answer that goes on"], piece=4)
    with pytest.raises(LimitError, match="raise timeout_s") as caught:
        Agent(model, limits=Limits(timeout_s=0.05), on_limit="raise").run("?")
    assert caught.value.result.stop_reason == "timeout"


@pytest.mark.parametrize(
    "bad", [{"max_rounds": 0}, {"max_calls": True}, {"max_tokens": -1}, {"timeout_s": 0}, {"final_answer_s": -1}]
)
def test_a_cap_that_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Limits(**bad)


def test_rounds_are_given_once() -> None:
    with pytest.raises(ConfigError, match="both"):
        Agent(ScriptedModel([]), max_rounds=3, limits=Limits())


def test_a_stop_is_said_once_and_by_whom() -> None:
    parent = threading.Event()
    stop = Stop(timeout_s=60, parent=parent)
    assert not stop.is_set()
    parent.set()
    assert stop.reason == "cancelled"
    late = Stop(timeout_s=1e-9)
    assert late.reason == "timeout"
    assert not late.is_granted
    late.grant(60)
    assert late.is_granted and not late.is_set()
    late.grant(None)
    late.set()
    assert late.reason == "cancelled"
