"""The calls that stand in one finished JSON value, whatever wrapper it came in.

Knows the shapes in which models write a call, not the marks around it and not what a tool takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from .json_text import Member, elements, members, object_text

# Where the tool's name and its arguments stand: the families' own keys first, then those of OpenAI's API, of
# LangChain's structured chat agent (action, action_input) and of other agents' prompts.
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
LIST_KEY = "tool_calls"
_BESIDE = frozenset({"id", "type", LIST_KEY, *NAME_KEYS, *ARGUMENT_KEYS})


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
    return [_call_of(found) for found in _objects_in(text)]


def bare_calls_in(text: str, known: Collection[str]) -> list[Call]:
    """The calls in a value that no mark says to be one: each names a known tool, and says nothing besides.

    Raises:
        ValueError: it is something else.
    """
    calls = []
    for found in _objects_in(text):
        for member in found:
            if member.key not in _BESIDE:
                raise ValueError(f"{member.key!r} is no part of a call")
        calls.append(_call_of(found))
    if unknown := next((c.name for c in calls if c.name not in known), None):
        raise ValueError(f"no tool is called {unknown!r}")
    return calls


def name_in(text: str) -> str | None:
    """The name in the text of a call that cannot be decoded, as far as it can be made out."""
    found = re.search(r'"name"\s*:\s*"([^"\\]*)"', text)
    return found.group(1) if found else None


def _objects_in(text: str) -> list[list[Member]]:
    text = text.strip()
    if text.startswith("{{") and text.endswith("}}"):  # as Qwen2.5's template shows it, by an oversight
        text = text[1:-1]
    if not text.startswith("["):
        found = members(text)
        if len(found) != 1 or found[0].key != LIST_KEY:
            return [found]
        text = found[0].text
    objects = [members(item) for item in elements(text)]
    if not objects:
        raise ValueError("expected a list of call objects")
    return objects


def _call_of(found: list[Member]) -> Call:
    by_key = {m.key: m for m in found}
    function = by_key.get("function")
    if "name" not in by_key and function and isinstance(function.value, dict):
        return _call_of(members(function.text))
    names = [by_key[k] for k in NAME_KEYS if k in by_key and by_key[k].value is not None]
    if "name" in by_key:  # the families' own key: what else there is does not matter
        names = [by_key["name"]]
    if len(names) > 1:
        raise ValueError(f"the call names its tool twice, as {names[0].key!r} and as {names[1].key!r}")
    name = names[0].value if names else None
    if not isinstance(name, str) or not name:
        raise ValueError('the call has no "name"')
    if not name.isprintable():
        raise ValueError(f'the "name" {name!r} is no name of a tool')
    return Call(name, _arguments_of(by_key))


def _arguments_of(by_key: dict[str, Member]) -> str:
    given = [by_key[k] for k in ARGUMENT_KEYS if k in by_key and by_key[k].value not in (None, "")]
    if not given:
        return "{}"
    if len(given) > 1:
        raise ValueError(f"the call has arguments twice, as {given[0].key!r} and as {given[1].key!r}")
    if isinstance(given[0].value, dict):
        return given[0].text
    if isinstance(given[0].value, str):  # JSON inside a JSON string: one layer too many
        try:
            return object_text(given[0].value)
        except ValueError:
            pass
    raise ValueError(f'"{given[0].key}" must be an object, got {given[0].text[:80]}')
