"""The calls that stand in one finished JSON value, whatever wrapper it came in.

Knows the shapes in which models write a call, not the marks around it and not what a tool takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from .json_text import Member, elements, members, object_text, strict_text, value_end

# Where the tool's name and its arguments stand: the families' own keys first, then those of OpenAI's API, of
# LangChain's structured chat agent (action, action_input) and of other agents' prompts.
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
LIST_KEY = "tool_calls"
_BESIDE = frozenset({"id", "type", LIST_KEY, *NAME_KEYS, *ARGUMENT_KEYS})


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call: the tool's name, its arguments as the text of a JSON object, and the id that the model gave it."""

    name: str
    arguments: str
    id: str = ""


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
    text = _single(text)
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
    given_id = by_key["id"].value if "id" in by_key else ""
    return Call(name, _arguments_of(by_key), given_id if isinstance(given_id, str) else "")


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


def _single(text: str) -> str:
    """A value without the second pair of braces that Qwen2.5's template shows by an oversight."""
    text = text.strip()
    return text[1:-1] if text.startswith("{{") and text.endswith("}}") else text


# -- arguments on their own, as text protocols have them ---------------------------------------------------------------

_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
_COMMA = re.compile(r"\s*(?:,|\Z)")
_NAMED = re.compile(r"\s*[:=]\s*(?=\S)")


def arguments_in(text: str, text_parameter: str | None = None) -> str:
    """The arguments of a call as the text of one JSON object.

    Args:
        text: a JSON object; one in a JSON string; nothing; or, for a tool whose only parameter is a text, that text.
        text_parameter: the name of that parameter.

    Raises:
        ValueError: it is something else.
    """
    text = text.strip()
    if not text:
        return "{}"
    if text.startswith("{"):
        return object_text(_single(text))
    if text_parameter and text.startswith(text_parameter) and (named := _NAMED.match(text, len(text_parameter))):
        text = text[named.end() :]
    value: object = text
    if text[0] == '"':
        try:
            value = json.loads(text, strict=False)
        except ValueError:
            value = text
        if isinstance(value, str) and value.lstrip().startswith("{"):
            return object_text(value)
    elif text[0] == text[-1] == "'" and len(text) > 1:
        value = text[1:-1]
    if text_parameter is None or not isinstance(value, str) or text[0] == "[":
        raise ValueError(f"expected a JSON object, found {text[:80]!r}")
    return strict_text(json.dumps({text_parameter: value}, ensure_ascii=False))


def keywords_in(text: str) -> str | None:
    """The arguments in `name=value, …`, each value being JSON, as the text of one JSON object; None: it is not that."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        key = _KEYWORD.match(text, at)
        if not key or key.group(1) in found:
            return None
        try:
            end = value_end(text, key.end())
        except ValueError:
            return None
        comma = _COMMA.match(text, end)
        if not comma:
            return None
        found[key.group(1)] = text[key.end() : end]
        at = comma.end()
    if not found:
        return None
    return object_text("{" + ", ".join(f'"{key}": {value}' for key, value in found.items()) + "}")
