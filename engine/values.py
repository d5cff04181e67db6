"""What callers give: numbers within a range, and how an error names what was given instead.

Knows no setting and no field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MAX_INT = 2**31 - 1  # llama.cpp counts in int32_t; a larger number would come to it as another one
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Range:
    """A finite number from `low` to `high`; `low` itself only where `with_low`. Booleans are no numbers."""

    low: float
    high: float = math.inf
    whole: bool = False
    with_low: bool = True

    def takes(self, value: Any) -> bool:
        """Whether `value` is such a number."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        above = value >= self.low if self.with_low else value > self.low
        return above and value <= self.high and value not in (math.inf, -math.inf)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.low == -math.inf:
            return kind
        low = f"{'≥' if self.with_low else '>'} {self.low}"
        return f"{kind} {low}" if self.high == math.inf else f"{kind} {low} and ≤ {self.high}"


def shown(value: object) -> str:
    """A value as an error names it: its repr, shortened; whatever it is."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # ints of 4,301 digits, lists that are too deep, objects with a broken __repr__
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
