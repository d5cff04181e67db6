"""The calls that stand in one finished JSON value, whatever wrapper it came in.

Knows the shape of a call ("name" and "arguments"), not the marks around it and not what a tool takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .json_text import Member, members


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call: the tool's name and its arguments as the text of a JSON object."""

    name: str
    arguments: str


def calls_in(text: str) -> list[Call]:
    """The calls written in one finished JSON value: an object, or a list of them.

    Raises:
        ValueError: malformed, or not the shape of a call.
    """
    text = text.strip()
    if not text.startswith("["):
        return [_call_of(members(text))]
    wrapped = members('{"calls": ' + text + "}")[0].value
    if not wrapped or not all(isinstance(item, dict) for item in wrapped):
        raise ValueError("expected a list of call objects")
    return [_call_of([Member(k, v, json.dumps(v, ensure_ascii=False)) for k, v in item.items()]) for item in wrapped]


def _call_of(found: list[Member]) -> Call:
    by_key = {m.key: m for m in found}
    name = by_key["name"].value if "name" in by_key else None
    if not isinstance(name, str) or not name:
        raise ValueError('the call has no "name"')
    given = by_key.get("arguments") or by_key.get("parameters")
    if given is None or given.value in (None, ""):
        return Call(name, "{}")
    if isinstance(given.value, dict):
        return Call(name, given.text)
    if isinstance(given.value, str):  # JSON inside a JSON string: one layer too many
        try:
            members(given.value)
        except ValueError:
            raise ValueError(f'"arguments" must be an object, got the text {given.text[:80]}') from None
        return Call(name, given.value)
    raise ValueError(f'"arguments" must be an object, got {given.text[:80]}')
