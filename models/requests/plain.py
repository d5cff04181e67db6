"""What all parts of a request are made of: JSON, whose texts can be written, under keys that are known.

Each check raises RequestError with the place, what was there, and what may be.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from laploop.engine.values import shown

from ..errors import RequestError


def fail(message: str) -> NoReturn:
    """Raise RequestError."""
    raise RequestError(message)


def check_text(value: Any, where: str) -> None:
    """Refuse what is no text, and half a surrogate pair, which no encoding can write."""
    if not isinstance(value, str):
        fail(f"{where} must be a text, got {shown(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"U+{ord(value[error.start]):04X}"
        fail(f"{where} holds half a surrogate pair ({half}) at character {error.start}, which is no text")


def check_plain(value: Any, where: str) -> None:
    """Refuse what could not come as JSON over a wire: sets, keys that are no text, NaN, half a surrogate pair."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
        keys_are_text = _keys_are_text(value)
    except RecursionError:
        fail(f"{where} is nested too deeply")
    except (TypeError, ValueError) as error:
        fail(f"{where} is not plain JSON: {error}")
    if not keys_are_text:
        fail(f"{where} is not plain JSON: every key must be a text")


def _keys_are_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _keys_are_text(item) for key, item in value.items())
    return not isinstance(value, list | tuple) or all(map(_keys_are_text, value))


def check_keys(value: Mapping[Any, Any], where: str, known: Collection[str]) -> None:
    """Refuse keys that would be ignored."""
    if unknown := [key for key in value if key not in known]:
        fail(f"{where} has the field {shown(unknown[0])}, which is not supported; known: {', '.join(known)}")


def is_empty(value: Any) -> bool:
    """Whether a value says nothing: None, or an empty text, list or object."""
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's content as text: a string, or the text parts of a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
