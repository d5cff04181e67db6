"""Work that runs in a thread while the main thread stays free for Ctrl-C.

Native code (loading a model, decoding a batch) does not look at Python's signals; it may take seconds, and a
user who presses Ctrl-C should not wait for it. It knows nothing of models or agents.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_threads: list[threading.Thread] = []
_POLL_S = 0.1  # on Windows a wait without a time limit cannot be interrupted


class _End:
    """Stands behind the last item; carries the error that ended the work, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Wake:
    """Wakes the waiting main thread after Ctrl-C."""


class _Task:
    """Something to be done in the main thread for another one, which waits."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.done = threading.Event()
        self.value: Any = None

    def run(self) -> None:
        self.value = self._work()
        self.done.set()


class NobodyWaitsError(Exception):
    """in_main: the main thread waits for no work (any more)."""


_mains: list[queue.SimpleQueue[Any]] = []  # of the `iterate`s that go on; the last is the innermost


def in_main(work: Callable[[], T]) -> T:
    """From a thread of `iterate`, or one that it started: `work()` in the main thread, once all items that were made
    before have been handled there. It must not raise anything but KeyboardInterrupt, which ends the iteration.

    Raises:
        NobodyWaitsError: nothing is iterated, or it ended before the work was done.
    """
    if not _mains:
        raise NobodyWaitsError
    items, task = _mains[-1], _Task(work)
    items.put(task)
    while not task.done.wait(_POLL_S):
        if items not in _mains:
            raise NobodyWaitsError
    value: T = task.value
    return value


def iterate(make: Callable[[], Iterator[T]]) -> Generator[T, None, None]:
    """Iterate over `make()`, which runs in a thread; its errors are raised here. Close it if you leave early.

    Ctrl-C raises KeyboardInterrupt here too, between two items: never in the middle of what the caller does
    with an item (a terminal library, interrupted half-way, is left in a state that it cannot be closed from).
    """
    items: queue.SimpleQueue[T | _End | _Wake | _Task] = queue.SimpleQueue()

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in make():
                items.put(item)
        except BaseException as raised:  # noqa: BLE001 - raised again in the main thread
            error = raised
        items.put(_End(error))

    thread = threading.Thread(target=work, name="laploop-work", daemon=True)
    _threads[:] = [t for t in _threads if t.is_alive()] + [thread]
    with _deferred_interrupt(lambda: items.put(_Wake())) as interrupted, _as_main(items):
        thread.start()
        while True:
            try:
                item = items.get(timeout=_POLL_S)
            except queue.Empty:
                item = _Wake()
            if interrupted.is_set():
                raise KeyboardInterrupt
            if isinstance(item, _End):
                thread.join()
                if item.error is not None:
                    raise item.error
                return
            if isinstance(item, _Task):
                item.run()
            elif not isinstance(item, _Wake):
                yield item


@contextlib.contextmanager
def _as_main(items: queue.SimpleQueue[Any]) -> Iterator[None]:
    """While inside, `in_main` puts its work there."""
    _mains.append(items)
    try:
        yield
    finally:
        _mains.remove(items)


@contextlib.contextmanager
def _deferred_interrupt(wake: Callable[[], None]) -> Iterator[threading.Event]:
    """While inside, Ctrl-C sets the event instead of raising, unless somebody else handles it."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield interrupted
        return

    def remember(*_: object) -> None:
        interrupted.set()
        wake()

    signal.signal(signal.SIGINT, remember)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def call(work: Callable[[], T]) -> T:
    """`work()` in a thread: the same value or error, but Ctrl-C is answered at once."""
    (value,) = iterate(lambda: iter([work()]))
    return value


def wait(limit_s: float | None = None) -> bool:
    """Wait until no work is left, at most `limit_s` seconds, and tell whether none is."""
    end_s = None if limit_s is None else time.monotonic() + limit_s
    while is_busy():
        if end_s is not None and time.monotonic() > end_s:
            return False
        time.sleep(_POLL_S / 4)
    return True


def is_busy() -> bool:
    """Whether work that was started here still goes on."""
    return any(thread.is_alive() for thread in _threads)


def leave(code: int) -> NoReturn:
    """End the process; without the interpreter's shutdown if native work still goes on."""
    if is_busy():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)
