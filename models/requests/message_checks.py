"""What may stand in a request's messages. Raises RequestError with the message's place, what it was, what is allowed.

Does not know templates, nor what a message means to a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laploop.engine.values import shown

from .plain import check_keys, check_plain, check_text, fail, is_empty

ROLES = ("system", "developer", "user", "assistant", "tool")
_KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
# Of one role only.
_ROLE_OF = {"reasoning_content": "assistant", "tool_calls": "assistant", "tool_call_id": "tool"}
# Keys that clients write back into an assistant message as they got it from a server (OpenAI's own; "reasoning" is
# vLLM's and OpenRouter's); harmless while they are empty.
_EMPTY_ONLY = {"refusal", "audio", "annotations", "function_call", "reasoning", "reasoning_details"}
# The same in a content part, where OpenAI's Responses API has them.
_EMPTY_ONLY_IN_PART = {"annotations", "logprobs"}
#: Types of content parts that are text; the others are those of OpenAI's Responses API.
TEXT_PARTS = ("text", "input_text", "output_text")


def checked_messages(messages: Any) -> tuple[dict[str, Any], ...]:
    """The messages, each checked and copied.

    Raises:
        RequestError: none at all, a broken one, a call without its one result, or a result without its call.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        fail(f'messages must be a list of {{"role": …, "content": …}}, got {shown(messages)}')
    if not messages:
        fail("messages is empty: at least one message is needed")
    checked = tuple(_checked_message(m, f"messages[{i}]") for i, m in enumerate(messages))
    _check_pairs(checked)
    return checked


def _checked_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        fail(f'{where} is {shown(message)}; expected {{"role": …, "content": …}}')
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        fail(f"{where} has role {shown(role)}; known: {', '.join(ROLES)}")
    check_keys({k: v for k, v in message.items() if not (k in _EMPTY_ONLY and is_empty(v))}, where, _KEYS)
    for key, its_role in _ROLE_OF.items():
        if role != its_role and not is_empty(message.get(key)):
            fail(f"{where} has {key} but role {role!r}; only the role {its_role!r} has that")
    for key in ("name", "reasoning_content", "tool_call_id"):
        if message.get(key) is not None:
            check_text(message[key], f"{where}: {key}")
    _check_content(message.get("content"), f"{where}: content")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        fail(f"{where} is a tool result without tool_call_id")
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], where)
    return dict(message)


def _check_content(content: Any, where: str) -> None:
    if content is None:
        return
    if not isinstance(content, list | tuple):
        if not isinstance(content, str):
            fail(f"{where} must be a text or a list of text parts, got {shown(content)}")
        check_text(content, where)
        return
    for i, part in enumerate(content):
        place = f"{where}[{i}]"
        if not isinstance(part, Mapping) or part.get("type") not in TEXT_PARTS:
            kind = part.get("type") if isinstance(part, Mapping) else part
            fail(f'{place} is of type {shown(kind)}: only text is supported, {{"type": "text", "text": …}}')
        said = {k: v for k, v in part.items() if not (k in _EMPTY_ONLY_IN_PART and is_empty(v))}
        check_keys(said, place, ("type", "text"))
        check_text(part.get("text"), f"{place}: text")


def _check_calls(calls: Any, where: str) -> None:
    if not isinstance(calls, list | tuple):
        fail(f"{where}: tool_calls must be a list, got {shown(calls)}")
    ids: list[str] = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            fail(f'{where}: tool_calls holds no {{"id": …, "type": "function", "function": {{"name": …}}}}')
        check_text(function["name"], f"{where}: the name of a call")
        place = f"{where}: the call of {function['name']}"
        if call.get("type", "function") != "function":
            fail(f"{place} has the type {shown(call['type'])}; only functions are supported")
        # An index is left from a stream's deltas.
        check_keys(call, place, ("id", "type", "function", "index"))
        check_keys(function, place, ("name", "arguments"))
        _check_arguments(function.get("arguments"), f"{where}: arguments of {function['name']}")
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            fail(f"{place} has no id")
        check_text(call_id, f"{place}: id")
        if call_id in ids:
            fail(f"{where}: two calls have the id {shown(call_id)}")
        ids.append(call_id)


def _check_arguments(arguments: Any, where: str) -> None:
    if isinstance(arguments, Mapping):
        check_plain(arguments, where)
    elif isinstance(arguments, str):
        check_text(arguments, where)
    elif arguments is not None:
        fail(f"{where} must be a JSON text, got {shown(arguments)}")


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    """Every call is followed at once by exactly one result, and no result comes without its call."""
    open_ids: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in open_ids:
                fail(f"messages[{i}] answers the call {shown(call_id)}, which no message before it makes")
            open_ids.remove(call_id)
            continue
        if open_ids:
            break
        if message["role"] == "assistant":
            open_ids = [c["id"] for c in message.get("tool_calls") or ()]
    if open_ids:
        fail(f"the call {shown(open_ids[0])} has no result: a tool message must follow it")
