"""A conversation in the words that a family's template takes: one call a message, ids of its form.

Messages come from other programs and other models too. Knows messages and what a dialect says of its template.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .dialect import Dialect

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fitting(messages: Sequence[Mapping[str, Any]], dialect: Dialect) -> list[Mapping[str, Any]]:
    """The messages for a template of this dialect; the given ones are not changed."""
    fitted = list(messages)
    if dialect.wrappers and dialect.native.joint is None:
        fitted = list(_one_by_one(fitted))
    if dialect.id_length:
        fitted = [_with_ids(message, dialect.id_length) for message in fitted]
    return fitted


def _one_by_one(messages: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Each call of a message as a message, with its result behind it."""
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            yield message
            continue
        results = {}
        while at < len(messages) and messages[at]["role"] == "tool":
            results[messages[at].get("tool_call_id")] = messages[at]
            at += 1
        for i, call in enumerate(calls):
            yield {**(message if i == 0 else {"role": "assistant", "content": None}), "tool_calls": [call]}
            if (result := results.pop(call.get("id"), None)) is not None:
                yield result
        yield from results.values()


def _with_ids(message: Mapping[str, Any], length: int) -> Mapping[str, Any]:
    if message.get("tool_call_id"):
        return {**message, "tool_call_id": _fitting_id(message["tool_call_id"], length)}
    if calls := message.get("tool_calls"):
        return {**message, "tool_calls": [{**call, "id": _fitting_id(call["id"], length)} for call in calls]}
    return message


def _fitting_id(given: str, length: int) -> str:
    """The id itself, or the same other one for it each time."""
    if re.fullmatch(rf"[A-Za-z0-9]{{{length}}}", given):
        return given
    number = int.from_bytes(hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest(), "big")
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
