"""What one rendering of a template may still spend: bytes that are made, and the time of the processor.

Knows values; not templates, nor what they do with them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jinja2

MAX_BYTES = 200_000_000  # made in one rendering, all together; also the most that one value may be written out to
MAX_CPU_S = 3.0  # of the rendering thread: a busy machine does not count
_STEP_BYTES = 100  # what one iteration or call counts as


class LimitError(jinja2.TemplateError):
    """A template asked for more than it may have."""


class Allowance:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._deadline = time.thread_time() + MAX_CPU_S
        self._weights: dict[int, tuple[Any, int]] = {}  # id → the container, kept alive, and its weight

    def spend(self, n_bytes: int) -> None:
        """Pay for `n_bytes` more, before they are made."""
        self._left -= max(0, n_bytes) + _STEP_BYTES
        if self._left < 0:
            raise LimitError(f"it makes more than {MAX_BYTES:,} bytes")
        if time.thread_time() > self._deadline:
            raise LimitError(f"it computes for more than {MAX_CPU_S:g} seconds")

    def weight(self, value: Any) -> int:
        """Bytes that a value would come to written out, what it holds twice counted twice; at most MAX_BYTES."""
        if not isinstance(value, list | tuple | dict):
            return sys.getsizeof(value)
        known = self._weights.get(id(value))
        if known is None:
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            total = sys.getsizeof(value) + sum(map(self.weight, parts))
            if total > MAX_BYTES:
                raise LimitError(f"it makes a value of more than {MAX_BYTES:,} bytes")
            known = self._weights[id(value)] = value, total
        return known[1]

    def text(self, value: Any) -> str:
        """A value as Jinja writes it."""
        self.weight(value)
        return value if isinstance(value, str) else str(value)


_CURRENT: ContextVar[Allowance] = ContextVar("laploop_template_allowance")


@contextmanager
def allowance() -> Iterator[None]:
    """Let the templates rendered inside together have what one rendering may have."""
    token = _CURRENT.set(Allowance())
    try:
        yield
    finally:
        _CURRENT.reset(token)


def allowed() -> Allowance:
    """The allowance of the rendering under way."""
    return _CURRENT.get()
