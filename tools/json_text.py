"""Strict JSON: what `json.loads` lets pass and RFC 8259 leaves open is refused here. It repairs nothing."""

from __future__ import annotations

import json
import math
from typing import Any


class _RefusedError(ValueError):
    """JSON in form, but with a meaning that nobody can be sure of; repair would only hide it."""


def loads_strict(text: str) -> Any:
    """Return the value of JSON `text`, refusing what `json.loads` lets pass.

    Raises:
        ValueError: not JSON (json.JSONDecodeError), a doubled key, NaN or an infinity, or nesting too deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite_float)
    except RecursionError as error:
        raise _RefusedError("nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RefusedError(f"the key {key!r} stands twice in one object")
            seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    raise _RefusedError(f"{name} is not a JSON value")


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _RefusedError(f"the number {text[:40]} is too large")
    return number
