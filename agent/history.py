"""What makes a list of messages one that a model can be asked with. It knows roles and pairs, not texts.

An assistant message with calls and its results are one unit: they are kept or dropped together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import HistoryError

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")


def messages_of(question: object) -> list[Message]:
    """A question as new messages. Raises HistoryError unless it is a text, or a list of messages."""
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    if not isinstance(question, Sequence) or isinstance(question, bytes):
        raise HistoryError(f"the question is a {type(question).__name__}; expected a text or a list of messages")
    for n, message in enumerate(question):
        if not isinstance(message, Mapping):
            raise HistoryError(f"messages[{n}] is a {type(message).__name__}; expected an object with role and content")
    return [dict(message) for message in question]


def check_history(messages: Sequence[Any]) -> None:
    """Raise HistoryError, naming the message, unless every call has exactly one result, right after it."""
    waiting: list[str] = []
    for n, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise HistoryError(f"messages[{n}] is a {type(message).__name__}; expected an object with role and content")
        role = message.get("role")
        if role not in ROLES:
            raise HistoryError(f"messages[{n}] has the role {role!r}; the roles are: {', '.join(ROLES)}")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                raise HistoryError(f"messages[{n}] is the result of call {call_id!r}, which no message before it makes")
            waiting.remove(str(call_id))
            continue
        if waiting:
            break
        waiting = [str(call.get("id")) for call in message.get("tool_calls") or []]
    if waiting:
        raise HistoryError(f"no result follows for the call {waiting[0]!r}; add a tool message, or drop the call")


def split_units(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages in groups that must not be parted: a message alone, or one with calls and its results."""
    units: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and units:
            units[-1].append(message)
        else:
            units.append([message])
    return units


def trim_history(messages: Sequence[Message], keep_last: int) -> list[Message]:
    """The system messages, at most `keep_last` of the latest others, and the last user message in any case.

    Cuts fall between units, never inside one; a unit that does not fit is left out whole, and so is all
    before it. The messages must be a valid history (check_history); so is what is returned.
    """
    check_history(messages)
    if keep_last < 0:
        raise HistoryError(f"keep_last is {keep_last}; expected 0 or more messages")
    units = split_units(messages)
    last_user = max((n for n, unit in enumerate(units) if unit[0]["role"] == "user"), default=-1)
    kept: set[int] = {n for n, unit in enumerate(units) if unit[0]["role"] in ("system", "developer")}
    room = keep_last
    for n in range(len(units) - 1, -1, -1):
        if n in kept:
            continue
        room -= len(units[n])
        if room < 0:
            break
        kept.add(n)
    if last_user >= 0:
        kept.add(last_user)
    return [message for n in sorted(kept) for message in units[n]]
