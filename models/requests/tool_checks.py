"""What may stand in a request's `tools` and `tool_choice`. Raises RequestError with the tool's place and name.

Does not read the schemas: see `schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laploop.engine.values import shown

from .plain import check_keys, check_plain, check_text, fail

_FUNCTION_KEYS = ("name", "description", "parameters", "strict")
_MOST_NAME_CHARS = 256  # OpenAI takes 64; the text protocol's parser looks no further for the end of a name
_CHOICES = ("auto", "none", "required")


def tool_names(tools: Any) -> list[str]:
    """The names of the tools, each checked.

    Raises:
        RequestError: no function tool, a name that is doubled or that no model can write, a field that is not known,
            or what could not come as JSON.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        fail(f"tools must be a list, got {shown(tools)}")
    names: list[str] = []
    for i, tool in enumerate(tools):
        name = _checked_name(tool, f"tools[{i}]")
        if name in names:
            fail(f"two tools are called {name!r}")
        names.append(name)
    return names


def _checked_name(tool: Any, where: str) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        fail(f'{where} is not {{"type": "function", "function": {{"name": …}}}}')
    name: str = function["name"]
    if tool.get("type", "function") != "function":
        fail(f"{where} has the type {shown(tool['type'])}; only functions are supported")
    # What is not printable has to be escaped, which models do in many ways: such calls would not be this tool's.
    if not name.strip() or not name.isprintable():
        fail(f"{where} has the name {shown(name)}, which no model can write; expected printable characters")
    if len(name) > _MOST_NAME_CHARS:
        fail(f"{where} has a name of {len(name)} characters, at most {_MOST_NAME_CHARS} are read back: {shown(name)}")
    where = f"{where} ({name})"
    check_keys(tool, where, ("type", "function"))
    check_keys(function, where, _FUNCTION_KEYS)
    check_plain(tool, where)
    if (description := function.get("description")) is not None:
        check_text(description, f"{where}: description")
    if not isinstance(function.get("parameters"), Mapping | None):
        fail(f"{where}: parameters must be a JSON Schema object, got {shown(function['parameters'])}")
    if not isinstance(function.get("strict"), bool | None):
        fail(f"{where}: strict must be True or False, got {shown(function['strict'])}")
    return name


def check_choice(choice: Any, names: Sequence[str]) -> None:
    """Check `tool_choice` against the names of the offered tools.

    Raises:
        RequestError: it has another shape, or asks for a tool that is not offered.
    """
    if isinstance(choice, str):
        if choice not in _CHOICES:
            fail(f'tool_choice {shown(choice)}; known: "auto", "none", "required", one function, allowed_tools')
        if choice == "required" and not names:
            fail('tool_choice is "required" but no tools are offered')
        return
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "function":
        named, mode = [_named(choice, "tool_choice", ("name",))], "required"
    elif kind == "allowed_tools" and isinstance(choice.get("allowed_tools"), Mapping):
        check_keys(choice, "tool_choice", ("type", "allowed_tools"))
        allowed = choice["allowed_tools"]
        check_keys(allowed, "tool_choice: allowed_tools", ("mode", "tools"))
        tools, mode = allowed.get("tools"), allowed.get("mode", "auto")
        if not isinstance(tools, list | tuple):
            fail(f"tool_choice: allowed_tools needs tools, a list; got {shown(tools)}")
        # Whole tools are as good as their names.
        named = [
            _named(tool, f"tool_choice: allowed_tools: tools[{i}]", _FUNCTION_KEYS) for i, tool in enumerate(tools)
        ]
    else:
        fail(
            'tool_choice must be {"type": "function", "function": {"name": …}} or '
            f'{{"type": "allowed_tools", "allowed_tools": {{"mode": …, "tools": […]}}}}, got {shown(choice)}'
        )
    if mode not in ("auto", "required"):
        fail(f'tool_choice: allowed_tools has the mode {shown(mode)}; known: "auto", "required"')
    if missing := [n for n in named if n not in names]:
        fail(f"tool_choice names {shown(missing[0])}; offered: {', '.join(names) or 'none'}")
    if mode == "required" and not named:
        fail("tool_choice requires a call but allows no tool")


def _named(tool: Any, where: str, known: Sequence[str]) -> str:
    """The name in {"type": "function", "function": {"name": …}}."""
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        fail(f'{where} must be {{"type": "function", "function": {{"name": …}}}}, got {shown(tool)}')
    check_keys(tool, where, ("type", "function"))
    check_keys(function, f"{where}: function", known)
    name: str = function["name"]
    return name
