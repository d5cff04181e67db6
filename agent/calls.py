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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from laploop.tools import Tool, ToolResult

from .events import CallFinished, CallStarted, Event

POLL_S = 0.1  # how long a wait for a tool may last before cancellation and Ctrl-C are looked at again


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a reply, and what is to be done: run `tool`, or hand back `refusal` without running
    anything.
    """

    id: str
    name: str
    arguments: str
    tool: Tool | None = None
    refusal: ToolResult | None = None

    @property
    def must_run_alone(self) -> bool:
        """Whether no other call may run meanwhile; a refusal takes no time and minds nobody."""
        return self.tool is not None and self.refusal is None and self.tool.run_alone


@dataclass(frozen=True, slots=True)
class _News:
    """What a worker reports: the call at `index` began (no result) or ended."""

    index: int
    result: ToolResult | None = None
    seconds: float = 0.0


class CallBatch:
    """The calls of one round. `results` fills up while `run` is iterated: one place per call, None until it
    is done.

    max_parallel is the number of threads at most; cancelled is looked at every POLL_S seconds.
    """

    def __init__(self, round_no: int, calls: Sequence[Call], max_parallel: int, cancelled: threading.Event) -> None:
        self.round = round_no
        self.calls = list(calls)
        self.results: list[ToolResult | None] = [None] * len(self.calls)
        self._max_parallel = max_parallel
        self._cancelled = cancelled
        self._broken_off = threading.Event()

    def run(self) -> Iterator[Event]:
        """Execute; events come as things happen. Returns early, with results missing, once `cancelled` is
        set.
        """
        try:
            for group in self._groups():
                yield from self._run_group(group)
                if self._cancelled.is_set():
                    return
        finally:
            self._broken_off.set()  # workers take no further call

    def _groups(self) -> list[list[int]]:
        """Indices that may run together, in order: a tool that runs alone is a group of its own."""
        groups: list[list[int]] = []
        joinable = False
        for index, call in enumerate(self.calls):
            if joinable and not call.must_run_alone:
                groups[-1].append(index)
            else:
                groups.append([index])
            joinable = not call.must_run_alone
        return groups

    def _run_group(self, group: list[int]) -> Iterator[Event]:
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        for index in group:
            todo.put(index)
        for _ in range(min(len(group), self._max_parallel)):
            context = contextvars.copy_context()
            # Daemon: a tool that hangs must not keep the interpreter from ending.
            threading.Thread(target=context.run, args=(self._work, todo, news), daemon=True).start()
        n_open = len(group)
        while n_open and not self._cancelled.is_set():
            try:
                item = news.get(timeout=POLL_S)
            except queue.Empty:
                continue
            call = self.calls[item.index]
            if item.result is None:
                yield CallStarted(self.round, call.id, call.name, call.arguments)
                continue
            n_open -= 1
            self.results[item.index] = item.result
            yield self._finished(call, item.result, item.seconds)

    def _work(self, todo: queue.SimpleQueue[int], news: queue.SimpleQueue[_News]) -> None:
        while not (self._broken_off.is_set() or self._cancelled.is_set()):
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            news.put(_News(index))
            t0_s = time.perf_counter()
            result = _result_of(self.calls[index])
            news.put(_News(index, result, time.perf_counter() - t0_s))

    def _finished(self, call: Call, result: ToolResult, seconds: float) -> CallFinished:
        return CallFinished(
            self.round,
            call.id,
            call.name,
            call.arguments,
            result.content,
            result.is_error,
            round(seconds, 6),
            executed=call.refusal is None and call.tool is not None,
            notes=tuple(result.notes),
        )


def _result_of(call: Call) -> ToolResult:
    if call.refusal is not None:
        return call.refusal
    if call.tool is None:
        return ToolResult(f"Not run: there is no tool {call.name!r}.", is_error=True)
    try:
        return call.tool.invoke(call.arguments)
    except BaseException as error:  # noqa: BLE001 - a thread that dies without a result would hang the run
        return ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
