"""Execution of a round's calls: at once, in order, each exactly one result, whatever the tools do."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.agent import Agent, CallFinished, CallStarted, check_history
from laploop.models import ScriptedModel
from laploop.tools import Tool, ToolResult, tool

Calls = Callable[..., str]


def test_calls_of_one_round_overlap(calls: Calls) -> None:
    """Two tools that wait for each other: only if both run at once does either return."""
    meeting = threading.Barrier(2, timeout=20)

    @tool
    def meet(name: str) -> str:
        """Meet.

        Args:
            name: who
        """
        meeting.wait()
        return f"{name} met"

    turns = [calls(("meet", {"name": "a"}), ("meet", {"name": "b"})), "done"]
    result = Agent(ScriptedModel(turns), [meet]).run("?")
    assert [r["is_error"] for r in result.calls] == [False, False]
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["a met", "b met"]


def test_events_come_in_order_of_time_and_results_in_order_of_calls(calls: Calls) -> None:
    second_seen = threading.Event()

    @tool
    def step(n: int) -> str:
        """Step.

        Args:
            n: number
        """
        if n == 1:
            second_seen.wait(20)
        return f"step {n}"

    turns = [calls(("step", {"n": 1}), ("step", {"n": 2})), "done"]
    events = []
    for event in Agent(ScriptedModel(turns), [step]).stream("?"):
        events.append(event)
        if isinstance(event, CallFinished):
            second_seen.set()
    finished = [e.content for e in events if isinstance(e, CallFinished)]
    assert finished == ["step 2", "step 1"]
    result = events[-1].result  # type: ignore[union-attr]
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["step 1", "step 2"]


def overlaps(tools: list[Tool], turns: list[str], **given: Any) -> int:
    """How many calls of the log were running at most at one time, as the events tell it."""
    n = most = 0
    for event in Agent(ScriptedModel(turns), tools, **given).stream("?"):
        n += isinstance(event, CallStarted)
        n -= isinstance(event, CallFinished)
        most = max(most, n)
    return most


def make_counter(run_alone: bool) -> tuple[Tool, Callable[[], int]]:
    lock = threading.Lock()
    state = {"now": 0, "most": 0}

    def work(n: int) -> str:
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        threading.Event().wait(0.02)
        with lock:
            state["now"] -= 1
        return str(n)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool("work", "Works.", schema, work, run_alone=run_alone), lambda: state["most"]


def test_a_tool_that_must_run_alone_does(calls: Calls) -> None:
    counter, most = make_counter(run_alone=True)
    turns = [calls(*(("work", {"n": n}) for n in range(4))), "done"]
    Agent(ScriptedModel(turns), [counter]).run("?")
    assert most() == 1


def test_parallel_can_be_switched_off_and_capped(calls: Calls) -> None:
    turns = [calls(*(("work", {"n": n}) for n in range(6))), "done"]
    for given_settings, allowed in (({"parallel": False}, 1), ({"max_parallel": 2}, 2)):
        counter, most = make_counter(run_alone=False)
        Agent(ScriptedModel(turns), [counter], **given_settings).run("?")
        assert most() <= allowed
    assert overlaps([make_counter(run_alone=False)[0]], turns, parallel=False) == 1


def test_tools_see_the_callers_context(calls: Calls) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    @tool
    def who() -> str:
        """Who asks."""
        return user.get("nobody")

    user.set("Ada")
    result = Agent(ScriptedModel([calls(("who", {})), "Ada"]), [who]).run("?")
    assert result.calls[0]["content"] == "Ada"


@tool
def fails(text: str) -> str:
    """Fail.

    Args:
        text: anything
    """
    raise ValueError(text)


@tool
def leaves(text: str) -> str:
    """Try to end the program.

    Args:
        text: anything
    """
    raise SystemExit(text)


@tool
def junk(text: str) -> Any:
    """Return something odd.

    Args:
        text: anything
    """
    return {1, 2.5, float("nan"), text}


@tool(timeout_s=0.01)
def sleeps(text: str) -> str:
    """Sleep past the time limit.

    Args:
        text: anything
    """
    threading.Event().wait(0.1)
    return text


@tool
def says_error(text: str) -> ToolResult:
    """Return an error as a value.

    Args:
        text: anything
    """
    return ToolResult(text, is_error=True)


@tool
def echo(text: str) -> str:
    """Return the text.

    Args:
        text: anything
    """
    return text


TOOLS = [fails, leaves, junk, sleeps, says_error, echo]
NAMES = st.sampled_from([*(t.name for t in TOOLS), "no_such_tool", "ech", ""])
ARGUMENTS = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=5)}),
    st.dictionaries(st.sampled_from(["text", "txt"]), st.integers() | st.none(), max_size=2),
)
GOOD = st.tuples(NAMES, ARGUMENTS)
BROKEN = st.sampled_from(['{"name": "echo", "arguments": {', '{"name": 3}', "not json", "[]"])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_call_gets_exactly_one_result_and_the_loop_always_ends(data: st.DataObject) -> None:
    """The law of the loop, for tools that raise, leave, return junk, sleep, do not exist, and calls that
    cannot be read: whatever the model asks for, the history stays valid and the run ends by itself.
    """
    from json import dumps

    turns: list[Any] = []
    for _ in range(20):
        bodies = data.draw(st.lists(GOOD | BROKEN, max_size=4))
        texts = [b if isinstance(b, str) else dumps({"name": b[0], "arguments": b[1]}) for b in bodies]
        raw = data.draw(st.sampled_from(["", "text "])) + "\n".join(f"<tool_call>\n{t}\n</tool_call>" for t in texts)
        turns.append({"raw": raw, "finish": data.draw(st.sampled_from(["stop"] * 9 + ["length"]))})
    model = ScriptedModel(turns)
    events = list(Agent(model, TOOLS, max_rounds=data.draw(st.integers(1, 6))).stream("go"))
    result = events[-1].result  # type: ignore[union-attr]
    check_history(result.messages)
    assert result.rounds <= 20
    for message in result.messages:
        for index, call in enumerate(message.get("tool_calls") or []):
            answered = [m for m in result.messages if m.get("tool_call_id") == call["id"]]
            assert len(answered) == 1
            at = result.messages.index(message)
            assert result.messages[at + 1 + index] is answered[0]
    started = [e.call_id for e in events if isinstance(e, CallStarted)]
    finished = [e.call_id for e in events if isinstance(e, CallFinished)]
    assert sorted(started) == sorted(finished)
    assert len(set(finished)) == len(finished)
