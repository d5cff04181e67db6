"""OpenAI's `tool_choice` as values: check one, read which tools it permits, narrow it. It knows no grammar.

Limiting tools within a run goes through tool_choice only: the list of tools, and with it the rendered prompt
and the cached prefix, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .errors import ConfigError

ToolChoice = str | dict[str, Any]
_WORDS = ("auto", "none", "required")


def allow_only(names: Sequence[str], mode: str = "auto") -> ToolChoice:
    """The choice that permits these tools and no other; "none" where the list is empty."""
    if not names:
        return "none"
    tools = [{"type": "function", "function": {"name": n}} for n in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def permitted_names(choice: ToolChoice | None, names: Sequence[str]) -> list[str]:
    """Which of the tools `names` a reply to a request with this choice may call."""
    if choice is None or choice in ("auto", "required"):
        return list(names)
    if not isinstance(choice, dict):
        return []
    wanted = set(_names_in(choice))
    return [n for n in names if n in wanted]


def after_first_round(choice: ToolChoice) -> ToolChoice:
    """What follows a first round: a forced call is forced once, or the model could never answer."""
    if choice == "required":
        return "auto"
    if isinstance(choice, dict):
        if choice["type"] == "function":
            return "auto"
        return allow_only(_names_in(choice))
    return choice


def without(choice: ToolChoice, taken: Iterable[str], names: Sequence[str]) -> ToolChoice:
    """The same choice with the tools `taken` away; "none" where that leaves nothing."""
    gone = set(taken)
    permitted = permitted_names(choice, names)
    left = [n for n in permitted if n not in gone]
    return choice if left == permitted else allow_only(left, _mode(choice))


def _mode(choice: ToolChoice) -> str:
    if isinstance(choice, str):
        return "required" if choice == "required" else "auto"
    return "required" if choice["type"] == "function" else str(choice["allowed_tools"].get("mode", "auto"))


def check_choice(choice: ToolChoice, names: Sequence[str]) -> None:
    """Raise ConfigError unless the choice is one of OpenAI's forms and names only tools that exist."""
    if isinstance(choice, str):
        if choice not in _WORDS:
            raise ConfigError(f"tool_choice {choice!r} is not known; use one of {', '.join(_WORDS)}, or an object")
        if choice == "required" and not names:
            raise ConfigError('tool_choice "required" needs at least one tool; this agent has none')
        return
    wanted = _names_in(choice) if isinstance(choice, dict) else []
    if not wanted or not all(isinstance(n, str) for n in wanted):
        raise ConfigError(
            f"tool_choice {choice!r} names no function; expected "
            '{"type": "function", "function": {"name": …}} or {"type": "allowed_tools", "allowed_tools": '
            '{"mode": "auto" or "required", "tools": […]}}'
        )
    if missing := [n for n in wanted if n not in names]:
        known = ", ".join(names) or "none"
        raise ConfigError(f"tool_choice names {', '.join(missing)}; this agent's tools are: {known}")


def _names_in(choice: dict[str, Any]) -> list[Any]:
    if choice.get("type") == "function":
        functions = [choice.get("function")]
    elif choice.get("type") == "allowed_tools" and isinstance(choice.get("allowed_tools"), dict):
        tools = choice["allowed_tools"].get("tools")
        functions = [t.get("function") for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []
    else:
        functions = []
    return [f.get("name") if isinstance(f, dict) else None for f in functions]
