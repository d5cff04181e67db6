"""The calls in a finished text of a shape: arguments between tags or with bare keys become the text of a JSON object.

A value between tags is a text or JSON, which only the tool's schema tells. Knows shapes and schemas, not what a tool
does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..dialect import CallShape
from ..schemas.value_types import TYPES, type_of, value_types
from .call_scanners import Head
from .call_text import Call, calls_in
from .json_text import object_text, strict_text

_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
# A value ends where the next one, or the call's end, follows its tag.
_VALUE_END = re.compile(r"\n?</parameter>\s*(?=<parameter=|</function>|\Z)")
_WORDS = {"True": True, "False": False, "None": None, "null": None, "true": True, "false": False}
_SCALAR = re.compile(r"[^,{}\[\]]+")
_KEY = re.compile(r"\s*([^:,{}]+?)\s*:\s*")
_MOST_DEPTH = 100


class CallReader:
    """Reads the calls of one wrapper's shape.

    Args:
        shape: how they are written.
        tools: in OpenAI form; their schemas tell texts from numbers.
    """

    def __init__(self, shape: CallShape, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._shape = shape
        self._schema_of = {str(t["function"]["name"]): t["function"].get("parameters") or {} for t in tools}

    def calls_in(self, text: str) -> list[Call]:
        """The calls in one finished text: of the shape, or of JSON, which models write whatever they were taught.

        Raises:
            ValueError: malformed, or not the shape of a call.
        """
        if text.lstrip()[:1] in ("{", "["):
            calls = calls_in(text)
            return calls if self._shape.id_behind_arguments else [Call(c.name, c.arguments) for c in calls]
        head = Head(self._shape)
        inside = text[head.feed(text) :]
        if not head.done:
            raise ValueError(head.broken or "the call has no arguments")
        name = head.name
        if not name or not name.isprintable():
            raise ValueError(f"the name {name!r} is no name of a tool")
        if self._shape.arguments == "tags":
            arguments = _tagged(inside, self._schema_of.get(name, {}))
        elif self._shape.arguments == "quoted":
            arguments = _quoted(inside, self._shape.quote)
        else:
            arguments = object_text(inside)
        return [Call(name, arguments, head.call_id)]


def _tagged(text: str, schema: Mapping[str, Any]) -> str:
    """Arguments between tags."""
    text = text.strip().removesuffix("</function>")
    found: dict[str, Any] = {}
    at = 0
    while opening := _PARAMETER.match(text, at):
        key, start = opening[1].strip(), opening.end()
        start += text.startswith("\n", start)
        # The value may be empty: then its only line feed was just taken.
        end = _VALUE_END.search(text, start)
        if not end:
            raise ValueError(f"the parameter {key!r} has no end")
        if key in found:
            raise ValueError(f"the parameter {key!r} is given twice")
        found[key] = _value(text[start : end.start()], schema, key)
        at = end.end()
    if text[at:].strip():
        raise ValueError(f"expected a parameter, found {text[at:].strip()[:80]!r}")
    return strict_text(json.dumps(found, ensure_ascii=False))


def _value(text: str, root: Mapping[str, Any], key: str) -> Any:
    """A value that may be a text or JSON."""
    listed = (root.get("properties") or {}).get(key, root.get("additionalProperties", True))
    types = value_types(listed, root) or TYPES
    if types == {"string"}:
        return text
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = _WORDS.get(text.strip(), text)
    if isinstance(value, str) or type_of(value) not in types:
        return text
    # Where both are allowed, what is valid as JSON is JSON.
    return text if "string" in types and not _is_valid(value, listed, root) else value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_valid(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    import jsonschema

    within = {"$defs": root.get("$defs", {}), "definitions": root.get("definitions", {}), "allOf": [schema]}
    try:
        return bool(jsonschema.Draft202012Validator(within).is_valid(value))
    except Exception:  # noqa: BLE001  # a reference that leads elsewhere; the value is checked again with the call
        return True


def _quoted(text: str, quote: str) -> str:
    """An object with bare keys."""
    value, at = _Quoted(text.strip(), quote).value(0, 0)
    if text.strip()[at:].strip() or not isinstance(value, dict):
        raise ValueError(f"expected one object, found {text[:80]!r}")
    return strict_text(json.dumps(value, ensure_ascii=False))


class _Quoted:
    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote = text, quote

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        """The value at an index, and the index behind it."""
        text = self._text
        if depth > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        if text.startswith(self._quote, at):
            start = at + len(self._quote)
            end = text.find(self._quote, start)
            if end < 0:
                raise ValueError("a text has no end")
            return text[start:end], end + len(self._quote)
        if text.startswith(("{", "["), at):
            return self._inside(at, depth)
        found = _SCALAR.match(text, at)
        if not found:
            raise ValueError(f"expected a value at character {at}")
        word = found[0].strip()
        if word in _WORDS:
            return _WORDS[word], found.end()
        try:
            value = json.loads(word, parse_constant=_refuse)
        except (ValueError, RecursionError):
            value = word  # a text without its marks
        return value, found.end()

    def _inside(self, at: int, depth: int) -> tuple[Any, int]:
        text, is_object = self._text, self._text[at] == "{"
        close, at = "}" if is_object else "]", self._skip(at + 1)
        members: dict[str, Any] = {}
        items: list[Any] = []
        while not text.startswith(close, at):
            if members or items:
                if not text.startswith(",", at):
                    raise ValueError(f"expected ',' or {close!r} at character {at}")
                at = self._skip(at + 1)
            key = ""
            if is_object:
                key, at = self._key(at)
                if key in members:
                    raise ValueError(f"duplicate key {key!r}")
            value, at = self.value(at, depth + 1)
            if is_object:
                members[key] = value
            else:
                items.append(value)
            at = self._skip(at)
        return (members if is_object else items), at + 1

    def _key(self, at: int) -> tuple[str, int]:
        if self._text.startswith(self._quote, at):
            key, at = self.value(at, 0)
            at = self._skip(at)
            if not self._text.startswith(":", at):
                raise ValueError(f"expected ':' at character {at}")
            return str(key), self._skip(at + 1)
        found = _KEY.match(self._text, at)
        if not found:
            raise ValueError(f"expected a key at character {at}")
        return found[1], found.end()

    def _skip(self, at: int) -> int:
        while self._text[at : at + 1].isspace():
            at += 1
        return at
