"""Something to do between the steps of a generation: look at a time limit, at a wish to stop.

Whoever reads a generation sets it for his own thread or task; what it raises ends the generation there. It knows no
engine: `Engine.read` calls it after each step, also where a long prompt or a long call gives nothing to read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("laploop_between_steps", default=None)


@contextmanager
def between_steps(check: Callable[[], None]) -> Iterator[None]:
    """Inside the `with` block, `check` is called between the steps of every generation that is read there."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def look_up() -> None:
    """Call what is set."""
    if check := _CHECK.get():
        check()
