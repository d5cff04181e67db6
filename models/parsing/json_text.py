"""Where a JSON value ends in a growing text, and what stands where inside an object.

Knows JSON's outer shape only (strings, brackets, legal characters); whether a finished value is well formed is
json.loads's business. Does not know calls or tags.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

# Outside strings JSON has only these characters; anything else means that the text is no JSON from there on.
_OUTSIDE = re.compile(r"[ \t\r\n,:0-9+\-.eEtrufalsnNIity]*")
_INSIDE = re.compile(r'[^"\\]*')
_MAX_DEPTH = 100


class JsonScanner:
    """Finds the end of one object or array, piece by piece, reading each character once.

    After `feed`, `done` tells that the value is closed, `broken` why it can never be, `in_string` that the text so far
    ends inside a string.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = ""
        self.in_string = False
        self._stack: list[str] = []
        self._escaped = False

    def feed(self, text: str, start: int = 0, end: int | None = None) -> int:
        """Read `text` from `start` to `end`; return the index after the last character that was taken.

        Stops behind the closing bracket (`done`) or in front of an impossible character (`broken`).
        """
        i, n = start, len(text) if end is None else end
        while i < n:
            if self.in_string:
                if self._escaped:
                    self._escaped = False
                    i += 1
                    continue
                i = _INSIDE.match(text, i, n).end()  # type: ignore[union-attr]  # the pattern matches the empty text too
                if i < n:
                    if text[i] == "\\":
                        self._escaped = True
                    else:
                        self.in_string = False
                    i += 1
                continue
            i = _OUTSIDE.match(text, i, n).end()  # type: ignore[union-attr]
            if i >= n:
                break
            char = text[i]
            if char == '"':
                self.in_string = True
            elif char in "{[":
                self._stack.append("}" if char == "{" else "]")
                if len(self._stack) > _MAX_DEPTH:
                    self.broken = f"nested deeper than {_MAX_DEPTH} levels"
                    return i
            elif self._stack and char == self._stack[-1]:
                self._stack.pop()
                if not self._stack:
                    self.done = True
                    return i + 1
            else:
                self.broken = f"unexpected character {char!r}"
                return i
            i += 1
        return i


class Member(NamedTuple):
    """One member of an object: its key, its value, and the value's own text."""

    key: str
    value: Any
    text: str


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# strict=False: models put raw line breaks into strings; `strict_text` escapes them.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# What a string may hold as an escape only; half a surrogate pair, because no encoding can write it.
_ESCAPED_ONLY = re.compile(r"[\x00-\x1f\ud800-\udfff]")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")


def _skip(text: str, i: int) -> int:
    return _SPACE.match(text, i).end()  # type: ignore[union-attr]


def members(text: str) -> list[Member]:
    """Split the text of one JSON object into its members, each with the value's text as strict JSON.

    Raises:
        ValueError: not an object, malformed, a duplicate key, or trailing text; the message names the position.
    """
    try:
        return _members(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _members(text: str) -> list[Member]:
    i = _skip(text, 0)
    if text[i : i + 1] != "{":
        raise ValueError(f"expected an object at character {i}")
    found: dict[str, Member] = {}
    i = _skip(text, i + 1)
    while text[i : i + 1] != "}":
        if found:
            if text[i : i + 1] != ",":
                raise ValueError(f"expected ',' or '}}' at character {i}")
            i = _skip(text, i + 1)
        if text[i : i + 1] != '"':
            raise ValueError(f"expected a key in double quotes at character {i}")
        key, i = _DECODER.raw_decode(text, i)
        i = _skip(text, i)
        if text[i : i + 1] != ":":
            raise ValueError(f"expected ':' at character {i}")
        start = _skip(text, i + 1)
        value, end = _DECODER.raw_decode(text, start)
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = Member(key, value, strict_text(text[start:end]))
        i = _skip(text, end)
    if text[_skip(text, i + 1) :]:
        raise ValueError(f"text after the object at character {i + 1}")
    return list(found.values())


def elements(text: str) -> list[str]:
    """The texts of the elements of one JSON array.

    Raises:
        ValueError: not an array, malformed, or trailing text; the message names the position.
    """
    i = _skip(text, 0)
    if text[i : i + 1] != "[":
        raise ValueError(f"expected a list at character {i}")
    found: list[str] = []
    i = _skip(text, i + 1)
    while text[i : i + 1] != "]":
        if found:
            if text[i : i + 1] != ",":
                raise ValueError(f"expected ',' or ']' at character {i}")
            i = _skip(text, i + 1)
        end = value_end(text, i)
        found.append(text[i:end])
        i = _skip(text, end)
    if text[_skip(text, i + 1) :]:
        raise ValueError(f"text after the list at character {i + 1}")
    return found


def value_end(text: str, start: int) -> int:
    """Index behind the JSON value that begins at `start`.

    Raises:
        ValueError: no value begins there.
    """
    try:
        return int(_DECODER.raw_decode(text, start)[1])
    except RecursionError:
        raise ValueError("nested too deeply") from None


def object_text(text: str) -> str:
    """The text of one JSON object as strict JSON.

    Raises:
        ValueError: as `members`.
    """
    members(text)
    return strict_text(text.strip())


def strict_text(text: str) -> str:
    """A value that is valid but for raw control characters in its strings, and halves of surrogate pairs, with those
    escaped: nothing else changes."""
    try:
        json.loads(text)
    except ValueError:
        is_strict = False
    else:
        is_strict = not _HALF_PAIR.search(text)
    return text if is_strict else _STRING.sub(lambda string: _ESCAPED_ONLY.sub(_escaped, string.group()), text)


def _escaped(character: re.Match[str]) -> str:
    return json.dumps(character.group())[1:-1]
