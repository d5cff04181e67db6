"""Whether a run has to stop now: somebody said so, nobody waits for it any more, or its time is over."""

from __future__ import annotations

import threading
import time


class Stop:
    """A flag that time can raise too; safe to use from any thread.

    Args:
        timeout_s: seconds from now; None for no limit.
        parent: the event of the tool call that this run is part of (an agent as another's tool), if any.
    """

    def __init__(self, timeout_s: float | None = None, parent: threading.Event | None = None) -> None:
        self._said = threading.Event()
        self._parent = parent
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s

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

    def forget_time(self) -> None:
        """Let the final answer take its own time."""
        self._end_s = None
