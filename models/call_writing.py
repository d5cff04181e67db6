"""A call as a family's model would write it: for templates that leave calls out, and to find out what one writes.

Knows call shapes; not what a tool takes, nor how a written call is read back (`parsing.argument_texts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .dialect import CallShape, Wrapper


class WrittenCall(NamedTuple):
    """What a call says: the tool's name, its arguments (an object, or the text of one that is no JSON), and its id."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""


def calls_text(wrapper: Wrapper, calls: Sequence[WrittenCall]) -> str:
    """All calls of a reply."""
    joint = wrapper.joint or ""
    texts = [call_text(wrapper.shape, call) for call in calls]
    if wrapper.many:
        return f"{wrapper.open}{wrapper.lead}{joint.join(texts)}{wrapper.trail}{wrapper.close}"
    return joint.join(f"{wrapper.open}{wrapper.lead}{text}{wrapper.trail}{wrapper.close}" for text in texts)


def call_text(shape: CallShape, call: WrittenCall) -> str:
    """One call, without the marks around it."""
    name = json.dumps(call.name, ensure_ascii=False)[1:-1] if shape.is_json else call.name
    call_id = f"{shape.id_behind_name}{call.id}" if shape.id_behind_name else ""
    told = f'{shape.id_behind_arguments}{call.id}"' if shape.id_behind_arguments and call.id else ""
    return f"{shape.head}{name}{call_id}{shape.middle}{arguments_text(shape, call.arguments)}{told}{shape.tail}"


def arguments_text(shape: CallShape, arguments: Mapping[str, Any] | str) -> str:
    """The arguments in a shape's notation; a text that is no object stays as it is."""
    if isinstance(arguments, str):
        return arguments
    if shape.arguments == "tags":
        return "".join(tagged(key, bare_value(value)) for key, value in arguments.items())
    if shape.arguments == "quoted":
        return quoted_value(arguments, shape.quote)
    return json_text(arguments)


def json_text(value: Any) -> str:
    """JSON as models write it, and with the spelling that a message's arguments came in."""
    return str(getattr(value, "text", None) or json.dumps(value, ensure_ascii=False))


def tagged(key: str, text: str) -> str:
    """One argument between its tags."""
    return f"<parameter={key}>\n{text}\n</parameter>\n"


def bare_value(value: Any) -> str:
    """A value between tags: a text is itself, all else is JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def quoted_value(value: Any, quote: str) -> str:
    """A value with bare keys, in the order in which Jinja's dictsort has them, and with its texts between marks."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, Mapping):
        members = sorted(value.items(), key=lambda member: member[0].lower())
        return "{" + ",".join(f"{key}:{quoted_value(item, quote)}" for key, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(quoted_value(item, quote) for item in value) + "]"
    return json.dumps(value)
