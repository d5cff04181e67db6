"""Something to do between the steps of a generation: look at a time limit, at a wish to stop.

Whoever reads a generation sets it for his own thread or task; what it raises ends the generation there. It knows no
engine: `Engine.read` waits with it for each step, also where a long prompt or a long call gives nothing to read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import Empty, SimpleQueue

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("laploop_between_steps", default=None)
# A step over a long prompt may take many seconds.
_PAUSE_S = 0.1


@contextmanager
def between_steps(check: Callable[[], None]) -> Iterator[None]:
    """Inside the `with` block, `check` is called between the steps of every generation that is read there, and every
    tenth of a second while a step takes longer."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def look_up() -> None:
    """Call what is set."""
    if check := _CHECK.get():
        check()


def wait_for(sign: SimpleQueue[None]) -> None:
    """Wait for the sign that a step is over, and call what is set."""
    check = _CHECK.get()
    if not check:
        sign.get()
        return
    while _is_empty_after_pause(sign):
        check()
    check()


def _is_empty_after_pause(sign: SimpleQueue[None]) -> bool:
    try:
        sign.get(timeout=_PAUSE_S)
    except Empty:
        return True
    return False
