"""Must hold whatever the tools do: exactly one result per call id, and a history that a model can be asked with.

Tools raise, leave, return junk, end late or never; calls are answered, refused, given up, cancelled, timed out, in any
interleaving; the consumer is quick, slow, or goes away.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.agent import (
    Agent,
    Approvals,
    CallFinished,
    CallStarted,
    Decision,
    Event,
    Limits,
    RunResult,
    Session,
    check_history,
)
from laploop.models import ScriptedModel
from laploop.tools import Tool, ToolResult, given_up

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
never = threading.Event()


def raises(n: int) -> str:
    raise [ValueError("no"), SystemExit(3), KeyboardInterrupt(), MemoryError(), RecursionError()][n % 5]


def junk(n: int) -> Any:
    return [None, {1, n}, float("nan"), object(), ToolResult("bad", is_error=True), "x" * 50_000, b"\xff", [[]]][n % 8]


def quick(n: int) -> str:
    return f"result {n}"


def slow(n: int) -> str:
    time.sleep(n % 4 / 500)
    return f"late {n}"


def hang(n: int) -> str:
    never.wait(30)
    return "never seen"


async def sleeps(n: int) -> str:
    await asyncio.sleep(30)
    return "never seen"


def patient(n: int) -> str:
    stop = given_up()
    assert stop is not None
    stop.wait(30)
    return "too late"


BEHAVIOURS: list[Callable[..., Any]] = [raises, junk, quick, slow, hang, sleeps, patient]
NAMES = [f.__name__ for f in BEHAVIOURS]


@st.composite
def tool_sets(draw: st.DrawFn) -> list[Tool]:
    return [
        Tool(
            f.__name__,
            "Does something.",
            SCHEMA,
            f,
            timeout_s=draw(st.sampled_from([0.005, 0.02, 0.05])),
            run_alone=draw(st.booleans()),
            effects=frozenset({draw(st.sampled_from(["read", "write"]))}),
        )
        for f in BEHAVIOURS
    ]


CALL = st.tuples(
    st.sampled_from([*NAMES, "no_such_tool", ""]),
    st.one_of(st.fixed_dictionaries({"n": st.integers(0, 9)}), st.just({}), st.just({"n": "x"})),
)
REPLY = st.lists(CALL, min_size=1, max_size=5)


def raw(reply: list[tuple[str, dict[str, Any]]]) -> str:
    bodies = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in reply)
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def check(messages: list[dict[str, Any]], events: list[Event]) -> None:
    check_history(messages)
    for at, message in enumerate(messages):
        for index, call in enumerate(message.get("tool_calls") or []):
            answers = [m for m in messages if m.get("tool_call_id") == call["id"]]
            assert answers == [messages[at + 1 + index]], "one result, in the place of its call"
    started = [e.call_id for e in events if isinstance(e, CallStarted)]
    finished = [e.call_id for e in events if isinstance(e, CallFinished)]
    assert len(set(finished)) == len(finished)
    assert set(started) <= set(finished)


@given(st.data())
@settings(max_examples=120)
def test_each_call_has_one_result(data: st.DataObject) -> None:
    turns: list[Any] = [raw(r) for r in data.draw(st.lists(REPLY, min_size=1, max_size=4))]
    model = ScriptedModel([*turns, *["done"] * 20])
    answers = data.draw(st.lists(st.booleans(), min_size=1, max_size=4))

    def ask(request: Any) -> Decision:
        return Decision(answers[request.arguments["n"] % len(answers)], arguments=data.draw(EDITED))

    agent = Agent(
        model,
        data.draw(tool_sets()),
        max_parallel=data.draw(st.integers(1, 5)),
        limits=Limits(
            max_rounds=data.draw(st.integers(1, 6)),
            max_calls=data.draw(st.none() | st.integers(1, 6)),
            timeout_s=data.draw(st.none() | st.sampled_from([0.01, 0.1])),
        ),
        approvals=Approvals(ask=ask if data.draw(st.booleans()) else None),
    )
    session = Session()
    events: list[Event] = []
    n_seen, act = data.draw(st.integers(0, 12)), data.draw(st.sampled_from(["nothing", "cancel", "call", "close"]))
    stream = agent.stream("go", session)
    for event in stream:
        events.append(event)
        if len(events) == n_seen and act == "close":
            stream.close()
            break
        if len(events) == n_seen and act == "cancel":
            agent.cancel()
        if act == "call" and isinstance(event, CallStarted):
            agent.cancel(event.call_id)
    check(session.messages, events if act != "close" else [])
    if act != "close":
        result: RunResult = events[-1].result  # type: ignore[union-attr]
        check(result.messages, events)
        asked = {c["id"] for m in result.messages for c in m.get("tool_calls") or []}
        assert asked == {e.call_id for e in events if isinstance(e, CallFinished)}
        assert [r["call_id"] for r in result.calls] == [e.call_id for e in events if isinstance(e, CallFinished)]


EDITED = st.none() | st.just({"n": 1}) | st.just({"n": "nonsense", "m": 2})
