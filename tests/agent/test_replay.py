"""Replay: without the model the loop does what it did, and the first thing that it does otherwise is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from laploop.agent import (
    Agent,
    Approvals,
    CallStarted,
    Decision,
    LimitError,
    Limits,
    Memory,
    RunResult,
    TextDelta,
    Trace,
    TraceError,
    replay,
)
from laploop.models import ScriptedModel
from laploop.tools import tool


@tool
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: first
        b: second
    """
    return a + b


@tool
def fail(what: str) -> str:
    """Fail.

    Args:
        what: to say
    """
    raise ValueError(what)


@tool(timeout_s=0.05)
def hang(seconds: float) -> str:
    """Wait.

    Args:
        seconds: how long
    """
    time.sleep(seconds)
    return "waited"


@tool
def long(n: int) -> str:
    """Say much.

    Args:
        n: how much
    """
    return "words and words " * n


@tool(effects={"write"})
def write(text: str) -> str:
    """Write.

    Args:
        text: what
    """
    return f"wrote {text}"


TOOLS = (add, fail, hang, long, write)


def again(result: RunResult) -> RunResult:
    """Replays the trace as it comes from its file; everything must be as it was."""
    played = replay(Trace.from_jsonl(result.trace.to_jsonl()))
    assert played.divergence is None, played.divergence
    assert played.result is not None
    assert played.result.messages == result.messages
    assert (played.result.answer, played.result.stop_reason) == (result.answer, result.stop_reason)
    return played.result


def run(turns: Sequence[Any], question: Any = "go", **settings: Any) -> RunResult:
    return Agent(ScriptedModel(turns), TOOLS, **settings).run(question)


def test_calls_errors_and_bad_calls(calls: Callable[..., str]) -> None:
    turns = [
        calls(("add", {"a": 1, "b": 2}), ("fail", {"what": "x"}), ("nobody", {})),
        calls(("add", {"a": "three", "b": 2})),
        "<tool_call>\n{oops\n</tool_call>",
        "done",
    ]
    again(run(turns))


def test_guards(calls: Callable[..., str]) -> None:
    again(run([calls(("add", {"a": 1, "b": 2}))] * 4 + ["three"] * 3, max_rounds=6))
    again(run([calls(("fail", {"what": "x"}))] * 4 + ["no"], max_rounds=3))
    again(run(["", "", "late"]))
    again(run([{"raw": "cut", "finish": "length"}]))


def test_tools_that_hang_and_end_in_another_order(calls: Callable[..., str]) -> None:
    result = run([calls(("hang", {"seconds": 1}), ("hang", {"seconds": 0.01}), ("add", {"a": 1, "b": 1})), "ok"])
    again(result)


def test_approvals(calls: Callable[..., str]) -> None:
    turns = [calls(("write", {"text": "a"})), calls(("write", {"text": "b"})), "ok"]
    again(run(turns))
    answers = iter([Decision(True, {"text": "edited"}), Decision(True, remember={})])
    again(run([*turns[:2], calls(("write", {"text": "c"})), "ok"], approvals=Approvals(ask=lambda _: next(answers))))
    again(run(turns, approvals=Approvals({"write": "deny"})))


def test_compaction(calls: Callable[..., str]) -> None:
    turns = [
        calls(("long", {"n": 200})),
        '{"goal": "g", "facts": [], "done": [], "open": []}',
        calls(("long", {"n": 210})),
        "no summary",
        "end",
    ]
    result = run(turns, memory=Memory(compact_at_tokens=600, keep_rounds=1))
    kinds = {r["type"] for r in result.trace}
    assert {"result_cut", "compaction"} & kinds
    again(result)


def test_time_that_is_over_while_tools_run(calls: Callable[..., str]) -> None:
    @tool
    def forever(n: int) -> str:
        """Wait for good.

        Args:
            n: nothing
        """
        threading.Event().wait(5)
        return "never"

    agent = Agent(
        ScriptedModel([calls(("forever", {"n": 1}), ("add", {"a": 1, "b": 2})), "late"]),
        [forever, add],
        limits=Limits(timeout_s=0.4),
    )
    result = agent.run("go")
    assert result.stop_reason == "timeout"
    again(result)


def test_a_cancelled_run(calls: Callable[..., str]) -> None:
    for kind in (TextDelta, CallStarted):
        agent = Agent(ScriptedModel([calls(("add", {"a": 1, "b": 2})), "a long answer " * 20]), TOOLS)
        result = None
        for event in agent.stream("go"):
            if isinstance(event, kind):
                agent.cancel()
            result = getattr(event, "result", None)
        assert result is not None
        assert result.stop_reason == "cancelled"
        again(result)


def test_limits_that_raise(calls: Callable[..., str]) -> None:
    with pytest.raises(LimitError) as caught:
        run([calls(("add", {"a": n, "b": n})) for n in range(3)], max_rounds=2, on_limit="raise")
    again(caught.value.result)


def test_a_changed_result_is_found_at_its_event(calls: Callable[..., str]) -> None:
    result = run([calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "3 and 7"])
    trace = Trace.from_jsonl(result.trace.to_jsonl())

    @tool(name="add")
    def other(a: int, b: int) -> int:
        """Add.

        Args:
            a: first
            b: second
        """
        return a + b + (a == 3)

    assert replay(trace, TOOLS).divergence is None
    found = replay(trace, [other, *TOOLS[1:]]).divergence
    assert found is not None
    assert found.recorded is not None
    assert found.replayed is not None
    assert found.fields == ["content"]
    assert (found.recorded["content"], found.replayed["content"]) == ("7", "8")
    assert trace.records[found.index]["content"] == "7"


def test_a_changed_record_is_found_at_its_event(calls: Callable[..., str]) -> None:
    """What the loop would do otherwise with this reply is told, with both sides."""
    trace = run([calls(("nobody", {})), "ok"]).trace
    at = next(n for n, r in enumerate(trace.records) if r["type"] == "call_finished")
    trace.records[at] = {**trace.records[at], "content": "another refusal"}
    found = replay(trace).divergence
    assert found is not None
    assert (found.index, found.fields) == (at, ["content"])


def test_a_trace_that_ends_early_is_replayed_as_far_as_it_goes(calls: Callable[..., str]) -> None:
    whole = run([calls(("add", {"a": 1, "b": 2})), "3"]).trace
    for n in range(1, len(whole)):
        played = replay(Trace(whole.records[:n]))
        assert played.divergence is None
    with pytest.raises(TraceError, match="run_started"):
        replay(Trace([]))
    with pytest.raises(TraceError, match="add"):
        replay(whole, [fail])


def test_with_a_model_that_counts(tiny_chat: Any) -> None:
    """Its tokens are counted alike without it: results are cut and rounds compacted where they were."""
    agent = Agent(tiny_chat, TOOLS, max_tokens=12, seed=3, max_rounds=2, memory=Memory(result_tokens=40))
    again(agent.run("words " * 20))
