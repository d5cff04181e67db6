"""Whether a run has to stop now: somebody said so, nobody waits for it any more, or its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

from laploop.engine.between_steps import between_steps

T = TypeVar("T")


class StopError(Exception):
    """Ends what a model is doing for a run that has to stop. It never leaves this package."""


class Stop:
    """A flag that time can raise too; safe to use from any thread.

    Args:
        timeout_s: seconds from now; None for no limit.
        parent: the event of the tool call that this run is part of (an agent as another's tool), if any.

    Attributes:
        is_granted: the time was over once, and the final answer got its own.
    """

    def __init__(self, timeout_s: float | None = None, parent: threading.Event | None = None) -> None:
        self._said = threading.Event()
        self._parent = parent
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self.is_granted = False

    def set(self) -> None:
        """Say stop."""
        self._said.set()

    def is_set(self) -> bool:
        """Whether to stop, for whatever reason."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """ "cancelled", "timeout", or "" for go on."""
        if self._said.is_set() or (self._parent is not None and self._parent.is_set()):
            return "cancelled"
        return "timeout" if self._end_s is not None and time.monotonic() >= self._end_s else ""

    def grant(self, seconds: float | None) -> None:
        """Let the final answer take its own time, from now; None for as long as it likes."""
        self._end_s = None if seconds is None else time.monotonic() + seconds
        self.is_granted = True

    def check(self) -> None:
        """Raise StopError where `is_set`."""
        if reason := self.reason:
            raise StopError(reason)

    def until(self, stream: Iterator[T]) -> Generator[T, None, None]:
        """The items of a model's stream until this stop is set; the stream is closed in every case.

        A model in this process is ended between two steps, also while it reads a long prompt and gives no items. The
        check is set anew for each item: held over a `yield`, it would be in force for whoever takes the items.
        """
        try:
            while not self.is_set():
                try:
                    with between_steps(self.check):
                        item = next(stream)
                except (StopIteration, StopError):
                    return
                if self.is_set():
                    return
                yield item
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                close()
