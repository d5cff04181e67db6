"""What may stand in a request's messages. Raises RequestError with the message's place, what it was, what is allowed.

Does not know templates, nor what a message means to a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import RequestError

ROLES = ("system", "developer", "user", "assistant", "tool")
_KEYS = {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"}
# Keys that clients write back into an assistant message as they got it from a server (OpenAI's own; "reasoning" is
# vLLM's and OpenRouter's); harmless while they are empty.
_EMPTY_ONLY = {"refusal", "audio", "annotations", "function_call", "reasoning", "reasoning_details"}


def _fail(message: str) -> NoReturn:
    raise RequestError(message)


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
        if key not in _KEYS and (key not in _EMPTY_ONLY or value):
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
