"""Ends that come from outside: cancel, a closed iterator, Ctrl-C, asyncio. The history is valid after each of
them.
"""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable

import pytest
from laploop.agent import (
    Agent,
    CallFinished,
    CallStarted,
    Event,
    HistoryError,
    RunFinished,
    Session,
    TextDelta,
    check_history,
)
from laploop.agent.stop import Stop
from laploop.engine.between_steps import look_up
from laploop.models import ChatModel, ModelError, ScriptedModel
from laploop.tools import Tool, tool

Calls = Callable[..., str]


def waiting_tool() -> tuple[Tool, threading.Event, threading.Event]:
    started, release = threading.Event(), threading.Event()

    @tool
    def wait(name: str) -> str:
        """Wait, unless the name says otherwise.

        Args:
            name: who
        """
        if name != "quick":
            started.set()
            release.wait(20)
        return f"{name} came"

    return wait, started, release


def test_cancel_while_tools_run(calls: Calls) -> None:
    """What is finished keeps its result, what is not says so; the tool is not waited for."""
    wait, started, release = waiting_tool()
    session = Session()
    model = ScriptedModel([calls(("wait", {"name": "quick"}), ("wait", {"name": "slow"})), "never"])
    agent = Agent(model, [wait])
    quick_done = False
    result = None
    for event in agent.stream("?", session=session):
        quick_done |= isinstance(event, CallFinished)
        if quick_done and started.wait(20):
            agent.cancel()
        if isinstance(event, RunFinished):
            result = event.result
    release.set()
    assert result is not None
    assert (result.stop_reason, result.answered) == ("cancelled", False)
    contents = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert contents[0] == "quick came"
    assert "stopped" in contents[1]
    assert len(model.requests) == 1
    check_history(session.messages)
    assert [m["role"] for m in session.messages] == ["user", "assistant", "tool", "tool"]


def test_cancel_from_another_thread_while_the_model_talks() -> None:
    model = ScriptedModel(["a long answer " * 200], piece=1)
    agent = Agent(model)
    session = Session()
    result = None
    shown: list[str] = []
    for event in agent.stream("?", session=session):
        if isinstance(event, TextDelta):
            shown.append(event.text)
        if len(shown) == 3:
            other = threading.Thread(target=agent.cancel)
            other.start()
            other.join()
        if isinstance(event, RunFinished):
            result = event.result
    assert result is not None
    assert result.stop_reason == "cancelled"
    assert result.answer == "".join(shown)
    assert len(shown) == 3
    assert session.messages[-1] == {"role": "assistant", "content": result.answer}


def test_cancel_before_a_run_does_not_touch_it() -> None:
    agent = Agent(ScriptedModel(["fine"]))
    agent.cancel()
    assert agent.run("?").answer == "fine"


@pytest.mark.parametrize("stop_at", [CallStarted, CallFinished, TextDelta])
def test_closing_the_iterator_leaves_a_valid_session(calls: Calls, stop_at: type[Event]) -> None:
    wait, _, release = waiting_tool()
    session = Session()
    turns = ["Let me see.\n" + calls(("wait", {"name": "quick"}), ("wait", {"name": "slow"})), "never"]
    events = Agent(ScriptedModel(turns), [wait]).stream("?", session=session)
    for event in events:
        if isinstance(event, stop_at):
            break
    events.close()
    release.set()
    check_history(session.messages)
    roles = [m["role"] for m in session.messages]
    assert roles == (["user", "assistant"] if stop_at is TextDelta else ["user", "assistant", "tool", "tool"])


def test_ctrl_c_leaves_a_valid_session(calls: Calls) -> None:
    wait, _, release = waiting_tool()

    @tool
    def interrupt() -> str:
        """Does what Ctrl-C does."""
        _thread.interrupt_main()
        release.wait(20)
        return "late"

    session = Session()
    model = ScriptedModel([calls(("wait", {"name": "quick"})), calls(("interrupt", {})), "never"])
    with pytest.raises(KeyboardInterrupt):
        Agent(model, [wait, interrupt]).run("?", session=session)
    release.set()
    check_history(session.messages)
    assert session.messages[2]["content"] == "quick came"
    assert "stopped" in session.messages[-1]["content"]


def test_a_closed_iterator_closes_the_models_stream() -> None:
    model = ScriptedModel(["a long answer"], piece=1)
    played: list[str] = []
    original = model._play

    def watched(*args: object) -> object:
        try:
            yield from original(*args)  # type: ignore[arg-type]
        finally:
            played.append("closed")

    model._play = watched  # type: ignore[method-assign, assignment]
    events = Agent(model).stream("?")
    for event in events:
        if isinstance(event, TextDelta):
            break
    events.close()
    assert played == ["closed"]


def test_the_session_goes_on_after_a_break(calls: Calls) -> None:
    session = Session()
    agent = Agent(ScriptedModel(["partial answer", "whole answer"], piece=1))
    events = agent.stream("first", session=session)
    shown = next(event.text for event in events if isinstance(event, TextDelta))
    events.close()
    assert agent.run("second", session=session).answer == "whole answer"
    assert [m["content"] for m in session.messages] == ["first", shown, "second", "whole answer"]


def test_arun_gives_what_run_gives(calls: Calls) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add.

        Args:
            a: first
            b: second
        """
        return a + b

    turns = [calls(("add", {"a": 1, "b": 2})), "3"]
    result = asyncio.run(Agent(ScriptedModel(turns), [add]).arun("1+2?"))
    assert (result.answer, [r["content"] for r in result.calls]) == ("3", ["3"])


def test_astream_does_not_block_the_event_loop(calls: Calls) -> None:
    """A tool that waits for the event loop itself: with the loop blocked it would never be released."""
    wait, started, release = waiting_tool()
    agent = Agent(ScriptedModel([calls(("wait", {"name": "x"})), "done"]), [wait])

    async def opener() -> None:
        while not started.is_set():
            await asyncio.sleep(0.001)
        release.set()

    async def both() -> str:
        opening = asyncio.create_task(opener())
        result = await agent.arun("?")
        await opening
        return result.answer

    assert asyncio.run(both()) == "done"


def test_leaving_astream_ends_the_run(calls: Calls) -> None:
    model = ScriptedModel(["a long answer " * 500], piece=1)
    session = Session()

    async def leave_early() -> None:
        events = Agent(model).astream("?", session=session)
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave_early())
    assert not [t for t in threading.enumerate() if t.name == "laploop-run"]
    assert [m["role"] for m in session.messages] == ["user", "assistant"]
    assert len(session.messages[1]["content"]) < 7000


def test_errors_cross_to_the_awaiting_side() -> None:
    with pytest.raises(ModelError):
        asyncio.run(Agent(ScriptedModel([])).arun("?"))
    with pytest.raises(HistoryError):
        asyncio.run(Agent(ScriptedModel([])).arun(""))


def test_one_call_can_be_given_up_and_the_run_goes_on(calls: Calls) -> None:
    wait, started, release = waiting_tool()
    agent = Agent(ScriptedModel([calls(("wait", {"name": "slow"}), ("wait", {"name": "quick"})), "One came."]), [wait])
    events = []
    for event in agent.stream("?"):
        events.append(event)
        if isinstance(event, CallStarted) and event.arguments == '{"name": "slow"}':
            started.wait(20)
            agent.cancel(event.call_id)
    release.set()
    result = events[-1].result  # type: ignore[union-attr]
    assert (result.stop_reason, result.answer) == ("answer", "One came.")
    assert "stopped before it returned" in result.messages[3]["content"]
    assert result.messages[4]["content"] == "quick came"


def test_cancelling_a_run_cancels_the_coroutines_of_its_tools(calls: Calls) -> None:
    stopped, started = threading.Event(), threading.Event()

    @tool(timeout_s=None)
    async def sleep() -> None:
        """Sleep."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    agent = Agent(ScriptedModel([calls(("sleep", {}))]), [sleep])
    for event in agent.stream("?"):
        if isinstance(event, CallStarted):
            started.wait(20)
            agent.cancel()
    assert stopped.wait(20)


class StopAfter(Stop):
    """Says stop when it has been looked at `n` times."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n_left = n

    @property
    def reason(self) -> str:
        self.n_left -= 1
        return "cancelled" if self.n_left < 0 else ""


def test_a_long_prompt_is_given_up_between_its_batches(tiny_chat: ChatModel) -> None:
    """While a prompt is read no chunk comes, and a run could not notice that its time was over."""
    long = [{"role": "user", "content": "many words " * 130}]
    n_batches = -(-tiny_chat.count_tokens(long) // tiny_chat.engine.context.n_batch)
    assert n_batches > 1
    # Looked at before the first item (the role), after its step, and before the second, which the prompt's first batch
    # does not give yet.
    stop = StopAfter(3)
    chunks = list(stop.until(tiny_chat.stream(long, max_tokens=4)))
    assert [c["choices"][0]["delta"] for c in chunks] == [{"role": "assistant"}]
    assert stop.n_left == -1, "the check that ended it was the next one"
    whole = list(Stop().until(tiny_chat.stream(long, max_tokens=4)))
    assert whole[-1]["choices"][0]["finish_reason"] == "length", "its place is free again"


def test_a_stopped_generation_ends_after_its_next_step(tiny_chat: ChatModel) -> None:
    """Also where the steps give no text yet, as inside a call."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for n in range(4, 12):
        stop = StopAfter(n)
        stream = tiny_chat.stream([{"role": "user", "content": "Hi"}], tools=tools, tool_choice="required", seed=1)
        assert all(c["choices"][0]["finish_reason"] is None for c in stop.until(stream))
        assert stop.n_left < 0


def test_what_is_set_for_between_the_steps_is_not_left_with_the_caller() -> None:
    stop = Stop()
    items = stop.until(iter("ab"))
    assert next(items) == "a"
    stop.set()
    look_up()
    assert list(items) == []


def test_calls_that_are_not_finished_have_an_event_too(calls: Calls) -> None:
    """So that whoever shows events does not wait for them for ever."""
    wait, started, release = waiting_tool()
    agent = Agent(ScriptedModel([calls(("wait", {"name": "slow"}), ("wait", {"name": "x"}))]), [wait], parallel=False)
    finished = []
    for event in agent.stream("?"):
        if isinstance(event, CallStarted):
            started.wait(20)
            agent.cancel()
        if isinstance(event, CallFinished):
            finished.append((event.executed, event.is_error))
    release.set()
    assert finished == [(True, True), (False, True)]
