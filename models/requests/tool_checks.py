"""What may stand in a request's `tools` and `tool_choice`. Raises RequestError with the tool's place and name.

Does not read the schemas: see `schema.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import RequestError


def _fail(message: str) -> NoReturn:
    raise RequestError(message)


def tool_names(tools: Any) -> list[str]:
    """The names of the tools, each checked.

    Raises:
        RequestError: no function tool, a name that is empty or doubled, or what could not come as JSON.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        _fail(f"tools must be a list, got {type(tools).__name__}")
    names: list[str] = []
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            _fail(f'tools[{i}] is not {{"type": "function", "function": {{"name": …}}}}')
        if tool.get("type", "function") != "function":
            _fail(f"tools[{i}] has the type {tool['type']!r}; only functions are supported")
        _check_plain(tool, f"tools[{i}] ({function['name']!r})")
        if not function["name"].strip() or _has_surrogate(function["name"]):
            _fail(f"tools[{i}] has the name {function['name']!r}, which no model can write")
        if not isinstance(function.get("strict"), bool | None):
            _fail(f"tools[{i}] ({function['name']}): strict must be True or False, got {function['strict']!r}")
        if not isinstance(function.get("parameters") or {}, Mapping):
            _fail(f"tools[{i}] ({function['name']}): parameters must be a JSON Schema object")
        if function["name"] in names:
            _fail(f"two tools are called {function['name']!r}")
        names.append(function["name"])
    return names


def _check_plain(value: Any, where: str) -> None:
    """Refuse what could not come as JSON over a wire: sets, keys that are no text, NaN."""
    try:
        json.dumps(value, allow_nan=False)
        keys_are_text = _keys_are_text(value)
    except RecursionError:
        _fail(f"{where} is nested too deeply")
    except (TypeError, ValueError) as error:
        _fail(f"{where} is not plain JSON: {error}")
    if not keys_are_text:
        _fail(f"{where} is not plain JSON: every key must be a text")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _keys_are_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _keys_are_text(item) for key, item in value.items())
    return not isinstance(value, list | tuple) or all(map(_keys_are_text, value))


def check_choice(choice: Any, names: Sequence[str]) -> None:
    """Check `tool_choice` against the names of the offered tools.

    Raises:
        RequestError: it has another shape, or asks for a tool that is not offered.
    """
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            _fail(f'tool_choice {choice!r}; known: "auto", "none", "required", one function, allowed_tools')
        if choice == "required" and not names:
            _fail('tool_choice is "required" but no tools are offered')
        return
    try:
        one = choice["type"] == "function"
        named = (
            [choice["function"]["name"]] if one else [t["function"]["name"] for t in choice["allowed_tools"]["tools"]]
        )
        mode = "required" if one else choice["allowed_tools"].get("mode", "auto")
    except (KeyError, TypeError, AttributeError):
        _fail(
            'tool_choice must be {"type": "function", "function": {"name": …}} or '
            '{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}'
        )
    if mode not in ("auto", "required"):
        _fail(f'allowed_tools has the mode {mode!r}; known: "auto", "required"')
    if missing := [n for n in named if n not in names]:
        _fail(f"tool_choice names {missing[0]!r}; offered: {', '.join(names) or 'none'}")
    if mode == "required" and not named:
        _fail("tool_choice requires a call but allows no tool")
