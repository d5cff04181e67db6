"""Execution of one round's calls: in parallel threads, each exactly one result, in the order of the calls.

It knows tools and events; it does not know models, messages or guards (a call that a guard refused arrives
here with its result already made). Whatever a tool does (raise, hang past its time limit, return junk), the
batch ends with a result for every call; only its caller can break it off, and then the calls that are not
done yet have none.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from laploop.tools import Tool, ToolResult

from .events import CallFinished, CallStarted, Event
from .stop import Stop

POLL_S = 0.1  # how long a wait for a tool may last before cancellation and Ctrl-C are looked at again


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a reply, and what is to be done: run `tool`, or hand back `refusal` without running
    anything.

    run_with: checked arguments in the place of the model's text (a person saw them, and may have changed them).
    preface: what stands before the result, where the model has to know of it.
    """

    id: str
    name: str
    arguments: str
    tool: Tool | None = None
    refusal: ToolResult | None = None
    run_with: Mapping[str, Any] | None = None
    preface: str = ""

    @property
    def is_run(self) -> bool:
        """Whether the tool itself is to run."""
        return self.tool is not None and self.refusal is None

    @property
    def must_run_alone(self) -> bool:
        """Whether no other call may run meanwhile; a refusal takes no time and minds nobody."""
        return self.tool is not None and self.refusal is None and self.tool.run_alone


class CallBatch:
    """The calls of one round. `results` fills up while `run` is iterated: one place per call, None until it
    is done.

    max_parallel is the number of calls at one time; stop is looked at every POLL_S seconds.
    """

    def __init__(self, round_no: int, calls: Sequence[Call], max_parallel: int, stop: Stop) -> None:
        self.round = round_no
        self.calls = list(calls)
        self.results: list[ToolResult | None] = [None] * len(self.calls)
        self._stops = [threading.Event() for _ in self.calls]
        self._news: queue.SimpleQueue[tuple[int, ToolResult, float]] = queue.SimpleQueue()
        self._waiting = deque(range(len(self.calls)))  # calls start in their order
        self._running: set[int] = set()
        self._max_parallel = max_parallel
        self._stop = stop

    def run(self) -> Iterator[Event]:
        """Execute; events come as things happen. Returns early, with results missing, once `stop` is set."""
        try:
            while (self._waiting or self._running) and not self._stop.is_set():
                for index in self._start():
                    call = self.calls[index]
                    yield CallStarted(self.round, call.id, call.name, call.arguments)
                try:
                    index, result, seconds = self._news.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                self._running.discard(index)
                yield self._finished(index, result, seconds)
        finally:
            for stop in self._stops:  # who still works is not waited for
                stop.set()

    def stop_call(self, call_id: str) -> bool:
        """Give one call up; its result says so, and the others go on. False if there is no such call here."""
        for call, stop in zip(self.calls, self._stops, strict=True):
            if call.id == call_id:
                stop.set()
                return True
        return False

    def give_up(self, text_of: Callable[[Call], str]) -> Iterator[Event]:
        """Give each call that has no result yet one that says why, after `run` has returned early."""
        for index, call in enumerate(self.calls):
            if self.results[index] is None:
                yield self._finished(index, ToolResult(text_of(call), is_error=True, fault="stopped"), 0.0)

    def _start(self) -> list[int]:
        """Start every call that may start now, and tell which."""
        started = []
        while self._waiting and len(self._running) < self._max_parallel:
            call = self.calls[self._waiting[0]]
            alone = call.must_run_alone or any(self.calls[i].must_run_alone for i in self._running)
            if alone and self._running:
                break
            index = self._waiting.popleft()
            self._running.add(index)
            started.append(index)
            context = contextvars.copy_context()
            # Daemon: a tool that hangs must not keep the interpreter from ending.
            threading.Thread(target=context.run, args=(self._work, index), daemon=True).start()
        return started

    def _work(self, index: int) -> None:
        t0_s = time.perf_counter()
        result = _result_of(self.calls[index], self._stops[index])
        self._news.put((index, result, time.perf_counter() - t0_s))

    def _finished(self, index: int, result: ToolResult, seconds: float) -> CallFinished:
        call = self.calls[index]
        self.results[index] = result
        return CallFinished(
            self.round,
            call.id,
            call.name,
            call.arguments,
            result.content,
            result.is_error,
            round(seconds, 6),
            executed=call.is_run and index not in self._waiting,
            notes=tuple(result.notes),
            fault=result.fault,
        )


def _result_of(call: Call, stop: threading.Event) -> ToolResult:
    if call.refusal is not None:
        return call.refusal
    if call.tool is None:
        return ToolResult(f"Not run: there is no tool {call.name!r}.", is_error=True)
    try:
        result = call.tool.invoke(call.arguments if call.run_with is None else call.run_with, stop=stop)
    except BaseException as error:  # noqa: BLE001 - a thread that dies without a result would hang the run
        return ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
    return replace(result, content=f"{call.preface}\n{result.content}") if call.preface else result
