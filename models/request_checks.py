"""What may stand in a request, field by field. Raises RequestError with the field's name, what it was, what is allowed.

Does not know what a field does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .errors import RequestError

ROLES = ("system", "developer", "user", "assistant", "tool")
_MESSAGE_KEYS = {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"}
# Keys that OpenAI's own client writes back into an assistant message; harmless while they are empty.
_EMPTY_ONLY = {"refusal", "audio", "annotations", "function_call"}
_RESPONSE_FORMATS = ("text", "json_object", "json_schema")


class _Range:
    """A number from `low` to `high`; `low` itself only where `with_low`."""

    def __init__(self, low: float, high: float = math.inf, *, whole: bool = False, with_low: bool = True) -> None:
        self.low, self.high, self.whole, self.with_low = low, high, whole, with_low

    def takes(self, value: Any) -> bool:
        """Whether `value` is such a number; booleans are none."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        above = value >= self.low if self.with_low else value > self.low
        return above and value <= self.high and not math.isinf(value)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.low == -math.inf:
            return kind
        low = f"{'≥' if self.with_low else '>'} {self.low}"
        return f"{kind} {low}" if self.high == math.inf else f"{kind} {low} and ≤ {self.high}"


_NUMBERS = {
    "temperature": _Range(0),
    "top_p": _Range(0, 1, with_low=False),
    "min_p": _Range(0, 1),
    "top_k": _Range(0, whole=True),
    "presence_penalty": _Range(-math.inf),
    "frequency_penalty": _Range(-math.inf),
    "repeat_penalty": _Range(0, with_low=False),
    "seed": _Range(-math.inf, whole=True),
    "max_tokens": _Range(1, whole=True),
    "thinking_budget": _Range(0, whole=True),
}


def _fail(message: str) -> NoReturn:
    raise RequestError(message)


def check_options(options: Mapping[str, Any]) -> None:
    """Check everything but the messages.

    Args:
        options: those that were given; none is None.

    Raises:
        RequestError: a value has the wrong type or is out of range, or two contradict each other.
    """
    for name, allowed in _NUMBERS.items():
        if name in options and not allowed.takes(options[name]):
            _fail(f"{name} must be {allowed}, got {options[name]!r}")
    for name in ("enable_thinking", "parallel_tool_calls"):
        if not isinstance(options.get(name, True), bool):
            _fail(f"{name} must be True or False, got {options[name]!r}")
    _check_stop(options.get("stop", ()))
    _check_response_format(options.get("response_format", {"type": "text"}))
    _check_choice(options.get("tool_choice", "auto"), _tool_names(options.get("tools", ())))


def _check_stop(stop: Any) -> None:
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(s, str) for s in texts):
        _fail(f"stop must be a text or a list of texts, got {stop!r}")
    if not all(texts):
        _fail("an empty stop string would stop at once")


def _check_response_format(form: Any) -> None:
    kind = form.get("type") if isinstance(form, Mapping) else form
    if not isinstance(form, Mapping) or kind not in _RESPONSE_FORMATS:
        _fail(f'response_format must be {{"type": …}}; got type {kind!r}; known: {", ".join(_RESPONSE_FORMATS)}')
    if kind == "json_schema":
        inner = form.get("json_schema")
        if not isinstance(inner, Mapping) or not isinstance(inner.get("schema", {}), Mapping):
            _fail('response_format of type json_schema needs {"json_schema": {"name": …, "schema": {…}}}')


def _tool_names(tools: Any) -> list[str]:
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


def _check_choice(choice: Any, names: Sequence[str]) -> None:
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


def checked_messages(messages: Any) -> tuple[dict[str, Any], ...]:
    """The messages, each checked and copied.

    Raises:
        RequestError: none at all, a broken one, a call without its one result, or a result without its call.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        _fail(f"messages must be a list of messages, got {type(messages).__name__}")
    if not messages:
        _fail("messages is empty: at least one message is needed")
    checked = tuple(_checked_message(m, f"messages[{i}]") for i, m in enumerate(messages))
    _check_pairs(checked)
    return checked


def _checked_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        _fail(f'{where} is a {type(message).__name__}; expected {{"role": …, "content": …}}')
    role = message.get("role")
    if role not in ROLES:
        _fail(f"{where} has role {role!r}; known: {', '.join(ROLES)}")
    for key, value in message.items():
        if key not in _MESSAGE_KEYS and (key not in _EMPTY_ONLY or value):
            _fail(f"{where} has the field {key!r}, which is not supported")
    if not isinstance(message.get("content") or "", str | list | tuple):
        _fail(f"{where}: content must be a text or a list of text parts, got {message['content']!r}")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        _fail(f"{where} is a tool result without tool_call_id")
    if calls := message.get("tool_calls"):
        if role != "assistant":
            _fail(f"{where} has tool_calls but role {role!r}; only an assistant calls")
        _check_calls(calls, where)
    return dict(message)


def _check_calls(calls: Any, where: str) -> None:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        _fail(f"{where}: tool_calls must be a list, got {type(calls).__name__}")
    ids: list[str] = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            _fail(f'{where}: tool_calls holds no {{"id": …, "type": "function", "function": {{"name": …}}}}')
        if not isinstance(function.get("arguments") or "", str | Mapping):
            _fail(f"{where}: arguments of {function['name']} must be a JSON text, got {function['arguments']!r}")
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            _fail(f"{where}: the call of {function['name']} has no id")
        if call_id in ids:
            _fail(f"{where}: two calls have the id {call_id!r}")
        ids.append(call_id)


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    """Every call is followed at once by exactly one result, and no result comes without its call."""
    open_ids: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in open_ids:
                _fail(f"messages[{i}] answers the call {call_id!r}, which no message before it makes")
            open_ids.remove(call_id)
            continue
        if open_ids:
            break
        if message["role"] == "assistant":
            open_ids = [c["id"] for c in message.get("tool_calls") or ()]
    if open_ids:
        _fail(f"the call {open_ids[0]!r} has no result: a tool message must follow it")
