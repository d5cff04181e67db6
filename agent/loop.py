"""The loop: ask, execute the calls, feed the results back, until a reply has none. A generator of events.

It does not know whether a reply was streamed, how a tool runs, what a model's text looks like, who listens, or which
policies there are: what the next request may do, and when to end, `Steering` says.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from .approval import approve_calls
from .calls import CallBatch
from .choice import ToolChoice
from .events import Event, GuardFired, RunFinished
from .guards import Done, call_key, repeats_question
from .memory import make_room
from .plan import plan_calls
from .reply import Reply, stream_reply
from .run import Run
from .steering import Steering

End = Generator[Event, None, RunFinished | None]


def run_loop(run: Run) -> Iterator[Event]:
    """One question to its end. Every path out is an event RunFinished, an error of the model, or LimitError."""
    steering = Steering(run)
    while True:
        yield from make_room(run)
        choice = steering.choose()
        reply = yield from stream_reply(run, choice)
        if reply is None:
            end = yield from stopped(run, steering)
        elif reply.finish_reason == "length":
            yield GuardFired(run.rounds, "length", "stopped", "the token limit cut the reply; no call of it was run")
            end = run.finish_cut(reply.message, reply.raw_output, bool(reply.calls or reply.faults))
        elif reply.finish_reason == "repeat":
            end = yield from broken_off(run, reply, steering)
        elif steering.is_forced or not (reply.calls or reply.faults):
            end = yield from conclude(run, reply, steering)
        else:
            done = yield from execute_calls(run, reply, choice, steering)
            end = yield from steering.judge(reply, done)
        if end is not None:
            yield end
            return


def stopped(run: Run, steering: Steering) -> End:
    """A reply was broken off. Where its time was over and it had no text yet, the final answer is asked for, once."""
    if run.stop.reason == "cancelled":
        return run.finish_cancelled()
    limits, must_raise = run.settings.limits, run.settings.raise_on_limit
    detail = f"{limits.timeout_s:g} s without an answer"
    if run.partial.strip() and not must_raise:
        yield GuardFired(run.rounds, "timeout", "stopped", detail)
        return run.finish_broken_off("timeout")
    if run.stop.is_granted:
        yield GuardFired(run.rounds, "timeout", "stopped", f"{limits.final_answer_s:g} s without a final answer")
        return run.finish_without_text("timeout")
    run.stop.grant(limits.final_answer_s)
    if must_raise or not steering.is_forced:
        yield from steering.exceed("timeout", detail)
    return None


def broken_off(run: Run, reply: Reply, steering: Steering) -> End:
    """A text that only repeated itself: its beginning is kept, and the final answer is asked for, once."""
    yield GuardFired(run.rounds, "repeat", "stopped", "the text only repeats itself")
    run.messages.append(reply.message)
    if steering.is_forced:
        return run.finish(steering.stop_reason, reply.text)
    yield from steering.force("repeat", "a text that only repeats itself is no answer")
    return None


def conclude(run: Run, reply: Reply, steering: Steering) -> End:
    """A reply without calls, or the last one: its text ends the run. Without text it is asked for once more; so is one
    that only says the question again, or shows a call instead of making it: those leave the history, for they would be
    said once more.
    """
    if repeats_question(run.messages[run.i_goal :], reply.text):
        if steering.is_forced:
            return run.finish_without_text(steering.stop_reason)
        yield from steering.force("echo", "the reply only repeats the question")
        return None
    if name := steering.announced(reply.text):
        yield GuardFired(run.rounds, "announced", "retry", f"the reply shows a call of {name} and does not make it")
        return None
    if reply.text.strip():
        run.messages.append({k: v for k, v in reply.message.items() if k != "tool_calls"})
        return run.finish(steering.stop_reason or "answer", reply.text)
    if steering.is_forced:
        return run.finish_without_text(steering.stop_reason)
    run.messages.append(reply.message)
    steering.n_empty += 1
    if steering.stop_reason:
        yield from steering.force(steering.stop_reason, "no text, although no call was possible")
    elif steering.n_empty > 1:
        yield GuardFired(run.rounds, "empty", "stopped", "two replies without text and without a call")
        return run.finish("empty", "", answered=False)
    else:
        yield GuardFired(run.rounds, "empty", "retry", "a reply without text and without a call")
        run.say(run.words.give_answer)
    return None


def execute_calls(
    run: Run, reply: Reply, choice: ToolChoice | None, steering: Steering
) -> Generator[Event, None, Sequence[Done]]:
    """Execute a reply's calls and put them, each with its result, into the history."""
    if not reply.calls:  # every call was malformed: the raw text is what the model said
        run.messages.append({"role": "assistant", "content": reply.text_with_faults})
        return []
    calls, fired = plan_calls(run, reply, choice, steering)
    yield from fired
    calls = yield from approve_calls(run, calls)
    batch = CallBatch(run.rounds, calls, run.settings.max_parallel, run.stop)
    yield from run.open_calls(reply.message, batch).run()
    yield from batch.give_up(run.text_of_unfinished)
    yield from run.close_calls()
    return [
        Done(c.name, call_key(c.name, c.arguments), r.content, r.is_error, c.is_run, r.fault)
        for c, r in zip(calls, batch.results, strict=True)
        if r is not None
    ]
