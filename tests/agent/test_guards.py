"""The repeat guard: its ladder of steps, and that it lets honest work pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, GuardFired, RunResult, check_history
from laploop.agent.guards import RepeatGuard, call_key
from laploop.models import ScriptedModel
from laploop.tools import tool

Calls = Callable[..., str]


@tool
def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: where
    """
    return f"{place}: nothing new"


@tool
def ask(who: str) -> str:
    """Ask somebody.

    Args:
        who: whom
    """
    return f"{who} does not know"


def steps(result: RunResult) -> list[tuple[int, str]]:
    return [(r["round"], r["step"]) for r in result.trace.of_type("guard_fired")]


def test_the_ladder(calls: Calls) -> None:
    """Told at the third, masked when it goes on, forced to answer after that."""
    same = calls(("look", {"place": "shed"}))
    with ScriptedModel([same] * 5 + ["Nothing new."]) as model:
        result = Agent(model, [look, ask], max_rounds=50).run("?")
    assert [r["executed"] for r in result.calls] == [True, True, False, False, False]
    assert steps(result) == [
        (3, "refused"),
        (4, "refused"),
        (4, "masked"),
        (5, "refused"),
        (5, "final_answer"),
    ]
    only_ask = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ask"}}]},
    }
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "auto", "auto", only_ask, "none"]
    assert (result.stop_reason, result.answer, result.answered) == ("repeat", "Nothing new.", True)
    check_history(result.messages)


def test_the_refusal_tells_the_model_to_answer(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    model = ScriptedModel([same] * 3 + ["Nothing new."])
    result = Agent(model, [look, ask]).run("?")
    refused = result.calls[2]
    assert refused["is_error"]
    assert "Do not call it again" in refused["content"]
    assert result.stop_reason == "answer"


def test_a_masked_tool_comes_back_after_its_round(calls: Calls) -> None:
    same, other = calls(("look", {"place": "shed"})), calls(("ask", {"who": "Bob"}))
    model = ScriptedModel([same] * 4 + [other, calls(("look", {"place": "barn"})), "No."])
    result = Agent(model, [look, ask], max_rounds=50).run("?")
    assert model.requests[5].tool_choice == "auto"
    assert result.stop_reason == "answer"
    assert result.calls[-1]["content"] == "barn: nothing new"


def test_alternating_between_two_answered_calls_is_a_repetition_too(calls: Calls) -> None:
    turns = [calls(("look", {"place": "a"})), calls(("look", {"place": "b"}))] * 10
    result = Agent(ScriptedModel(turns), [look, ask], max_rounds=50).run("?")
    assert result.stop_reason == "repeat"
    assert sum(r["executed"] for r in result.calls) == 3


def test_three_times_within_one_round(calls: Calls) -> None:
    model = ScriptedModel([calls(*[("look", {"place": "shed"})] * 3), "No."])
    result = Agent(model, [look]).run("?")
    contents = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert contents[:2] == ["shed: nothing new"] * 2
    assert "Not run" in contents[2]


def test_the_order_and_spelling_of_arguments_do_not_matter() -> None:
    assert call_key("f", '{"a": 1, "b": "\\u5317"}') == call_key("f", '{"b":"北","a":1}')
    assert call_key("f", '{"a": 1}') != call_key("f", '{"a": "1"}')
    assert call_key("f", '{"a": 1}') != call_key("g", '{"a": 1}')
    assert call_key("f", "{broken") == call_key("f", " {broken ")


def test_new_calls_between_old_ones_are_progress(calls: Calls) -> None:
    turns = []
    for n in range(6):
        turns += [calls(("look", {"place": "shed"})), calls(("ask", {"who": f"person {n}"}))]
    result = Agent(ScriptedModel([*turns, "done"]), [look, ask], max_rounds=50).run("?")
    assert result.stop_reason == "answer"
    assert all(r["executed"] for r in result.calls)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), max_size=12))
def test_a_call_is_refused_only_after_it_was_let_through(rounds: list[list[str]]) -> None:
    guard = RepeatGuard()
    let_through: set[str] = set()
    for keys in rounds:
        for key, refused in zip(keys, guard.judge(keys), strict=True):
            assert key in let_through or not refused
            if not refused:
                let_through.add(key)


@given(st.integers(3, 30))
def test_the_same_round_for_ever_is_refused_from_the_third_on(n: int) -> None:
    guard = RepeatGuard()
    flags = [guard.judge(["a", "b"]) for _ in range(n)]
    assert flags == [[False, False]] * 2 + [[True, True]] * (n - 2)
    assert guard.strikes == n - 2


def test_every_step_is_an_event(calls: Calls) -> None:
    same = calls(("look", {"place": "shed"}))
    events: list[Any] = list(Agent(ScriptedModel([same] * 3 + ["ok"]), [look]).stream("?"))
    assert [e for e in events if isinstance(e, GuardFired)] == [GuardFired(3, "repeat", "refused", "look")]
