"""Runs one Python function to its end, or to its deadline, and never lets it take the caller along.

It knows no schemas and no models. The function runs in a daemon thread of its own, for three reasons: a
deadline can be kept for any code, coroutines get a fresh event loop whether or not the caller is inside one,
and `sys.exit` in a tool ends only the tool. Python cannot kill a thread, so a function that passes its
deadline is abandoned, and the result says so.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
import time
from collections.abc import Callable
from typing import Any

_MAX_MESSAGE_CHARS = 500
# An absolute path (two parts or more; POSIX, drive letter or UNC), not one inside a URL: only its last part
# is shown.
_PATH = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:[\\/]|\\\\|/)(?:[^\s'\"<>|:;,()\\/]+[\\/]+)+([^\s'\"<>|:;,()\\/]*)")


_POLL_S = 0.05  # how soon a call that is given up is left
_GIVEN_UP: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("laploop_given_up", default=None)


class DeadlineError(Exception):
    """The function had not returned at its deadline; its thread was left behind."""


class GivenUpError(Exception):
    """The caller wants the result no longer; the function's thread was left behind."""


def given_up() -> threading.Event | None:
    """Inside a tool: an event that is set once nobody waits for the call any more (deadline, stop). None outside.

    A tool that works for long may look at it and end early.
    """
    return _GIVEN_UP.get()


def run_to_deadline(
    work: Callable[[], Any],
    timeout_s: float | None,
    name: str,
    *,
    finish: Callable[[Any], Any],
    stop: threading.Event | None = None,
) -> Any:
    """Return `finish(work())`; an awaitable that `work` returns is awaited, an async generator collected into
    a list.

    Args:
        work: called in a new daemon thread, with a copy of the caller's context variables.
        timeout_s: seconds to wait; None waits for ever.
        name: for the thread, so that an abandoned one can be recognised.
        finish: called in the thread too: turning a result into text can hang or fail like the rest.
        stop: once it is set, the call is given up as at its deadline.

    Raises:
        DeadlineError: not done after `timeout_s`. A coroutine is cancelled; other code goes on unheard.
        GivenUpError: `stop` was set before it was done.
        Exception: whatever `work` raised; KeyboardInterrupt, SystemExit and the like become RuntimeError.
    """
    run = _Run(work, finish)
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run.body,), name=f"laploop-tool-{name}", daemon=True)
    thread.start()
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not run.done.wait(_next_wait_s(end_s, polled=stop is not None)):
        if stop is not None and stop.is_set():
            run.cancel()
            raise GivenUpError
        if end_s is not None and time.monotonic() >= end_s:
            run.cancel()
            raise DeadlineError
    if run.error is not None:
        raise run.error
    return run.value


def _next_wait_s(end_s: float | None, *, polled: bool) -> float | None:
    left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
    if not polled:
        return left_s
    return _POLL_S if left_s is None else min(_POLL_S, left_s)


class _Run:
    def __init__(self, work: Callable[[], Any], finish: Callable[[Any], Any]) -> None:
        self._work = work
        self._finish = finish
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._cancelled = False
        self._lock = threading.Lock()
        self.given_up = threading.Event()
        self.done = threading.Event()
        self.value: Any = None
        self.error: Exception | None = None

    def body(self) -> None:
        _GIVEN_UP.set(self.given_up)
        try:
            value = self._work()
            if inspect.isawaitable(value) or inspect.isasyncgen(value):
                value = asyncio.run(self._await(value))
            self.value = self._finish(value)
        except Exception as error:  # noqa: BLE001 - handed over to the waiting thread
            self.error = error
        except BaseException as error:  # noqa: BLE001 - SystemExit, CancelledError …: they end the tool, not the caller
            self.error = RuntimeError(f"the tool stopped itself ({error_line(error)})")
        finally:
            self.done.set()

    async def _await(self, value: Any) -> Any:
        with self._lock:
            task = asyncio.current_task()
            if task is None or self._cancelled:  # the deadline passed before there was anything to cancel
                if inspect.iscoroutine(value):
                    value.close()  # or Python would warn that it was never awaited
                raise asyncio.CancelledError
            self._task = (asyncio.get_running_loop(), task)
        try:
            if inspect.isasyncgen(value):
                return [item async for item in value]
            return await value
        finally:
            with self._lock:
                self._task = None

    def cancel(self) -> None:
        """Ask a coroutine to stop; code that is not asynchronous can only look at `given_up`."""
        self.given_up.set()
        with self._lock:
            self._cancelled = True
            if self._task is not None:
                loop, task = self._task
                loop.call_soon_threadsafe(task.cancel)


def error_line(error: BaseException) -> str:
    """Return `ValueError: bad zone: Mars`: one line, no traceback, no absolute paths (their last part
    stays)."""
    try:
        message = " ".join(str(error)[: 4 * _MAX_MESSAGE_CHARS].split())
    except Exception:  # noqa: BLE001 - a __str__ that fails must not hide the error itself
        message = ""
    message = _PATH.sub(lambda match: match.group(1) or "…", message)
    if len(message) > _MAX_MESSAGE_CHARS:
        message = message[: _MAX_MESSAGE_CHARS - 1] + "…"
    return f"{type(error).__name__}: {message or '(no message)'}"
