"""The loop: ask, execute the calls, feed the results back, until a reply has none. A generator of events.

It does not know whether a reply was streamed, how a tool runs, what a model's text looks like, or who
listens.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from .calls import CallBatch
from .choice import ToolChoice, after_first_round, without
from .errors import RoundLimitError
from .events import Event, GuardFired
from .guards import RepeatGuard
from .plan import plan_calls
from .reply import Reply, stream_reply
from .run import Run


def run_loop(run: Run) -> Iterator[Event]:
    """One question to its end. Every path out is an event RunFinished, an error of the model, or
    RoundLimitError.
    """
    guard = RepeatGuard()
    choice: ToolChoice | None = run.settings.tool_choice if len(run.tools) else None
    forced_by: str | None = None  # why the reply that is asked for must be the last
    n_tool_rounds = n_faulty_in_a_row = n_empty = 0
    while True:
        reply = yield from stream_reply(run, choice)
        if reply is None:
            yield run.finish_cancelled()
            return
        if reply.finish_reason == "length":
            yield GuardFired(run.rounds, "length", "stopped", "the token limit cut the reply; no call of it was run")
            yield run.finish_cut(reply.message, reply.raw_output, bool(reply.calls or reply.faults))
            return
        if forced_by or not (reply.calls or reply.faults):
            if reply.text.strip():
                run.messages.append({k: v for k, v in reply.message.items() if k != "tool_calls"})
                yield run.finish(forced_by or "answer", reply.text)
                return
            if forced_by:
                yield run.finish_without_text(forced_by)
                return
            n_empty += 1
            run.messages.append(reply.message)
            if n_empty > 1:
                yield GuardFired(run.rounds, "empty", "stopped", "two replies without text and without a call")
                yield run.finish("empty", "", answered=False)
                return
            yield GuardFired(run.rounds, "empty", "retry", "a reply without text and without a call")
            run.say(run.words.give_answer)
            continue

        repeated = yield from execute_calls(run, reply, choice, guard)
        if run.cancelled.is_set():
            yield run.finish_cancelled()
            return
        n_tool_rounds += 1
        n_faulty_in_a_row = n_faulty_in_a_row + 1 if reply.faults else 0
        if n_faulty_in_a_row > 1:
            yield GuardFired(run.rounds, "invalid_calls", "stopped", reply.faults[0]["error"])
            yield run.finish("invalid_calls", reply.text, answered=False)
            return
        if reply.faults:
            yield GuardFired(run.rounds, "invalid_calls", "retry", reply.faults[0]["error"])
            run.say("\n".join(run.words.invalid_call.format(error=f["error"]) for f in reply.faults))

        if choice is not None:
            choice = after_first_round(run.settings.tool_choice)
            if guard.strikes > 1:
                choice = without(choice, repeated, run.tools.names())
                forced_by = "repeat" if guard.strikes > 2 or choice == "none" else None
                step = "final_answer" if forced_by else "masked"
                yield GuardFired(run.rounds, "repeat", step, ", ".join(sorted(repeated)))
        if n_tool_rounds >= run.settings.max_rounds and not forced_by:
            detail = f"{n_tool_rounds} tool rounds without an answer"
            if run.settings.raise_on_limit:
                yield GuardFired(run.rounds, "max_rounds", "stopped", detail)
                raise RoundLimitError(
                    f"{detail}; raise max_rounds, or let the agent answer with on_limit='answer'",
                    run.finish("max_rounds", "", answered=False).result,
                )
            yield GuardFired(run.rounds, "max_rounds", "final_answer", detail)
            forced_by = "max_rounds"
        if forced_by:
            choice = None if choice is None else "none"
            run.say(run.words.final_answer)


def execute_calls(
    run: Run, reply: Reply, choice: ToolChoice | None, guard: RepeatGuard
) -> Generator[Event, None, set[str]]:
    """Execute a reply's calls and put them, each with its result, into the history; returns the names that
    repeat.
    """
    if not reply.calls:  # every call was malformed: the raw text is what the model said
        run.messages.append({"role": "assistant", "content": reply.text_with_faults})
        return set()
    calls, fired, repeated = plan_calls(run, reply, choice, guard)
    yield from fired
    batch = CallBatch(run.rounds, calls, run.settings.max_parallel, run.cancelled)
    yield from run.open_calls(reply.message, batch).run()
    run.close_calls()
    return repeated
