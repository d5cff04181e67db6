"""Lossless conversion of JSON values to the type that a schema wants: "28" → 28. It parses no text and
reports no errors.

A value that fits its schema is never touched. A conversion is done only if it is certain and can be read
back: "28" is 28, but "028", "about 28" and "0.10000000000000000001" stay text (and then fail validation).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from .json_text import loads_strict
from .violations import fits

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_MAX_NUMBER_CHARS = 400
_WORDS: dict[str, Any] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_MAX_DEPTH = 64


def convert(
    value: dict[str, Any], schema: Mapping[str, Any], strict: frozenset[str], notes: list[str]
) -> dict[str, Any]:
    """Return the arguments object with values of the wrong type converted where `schema` asks for it.

    Args:
        value: the arguments object.
        schema: JSON Schema of the arguments object; local `$ref`s are followed.
        strict: names of parameters that stay as they are.
        notes: gets one sentence for each conversion.
    """
    if fits(value, schema, schema):
        return value
    converter = _Converter(schema, notes)
    properties = _resolve(schema, schema).get("properties", {})
    return {
        name: item if name in strict or name not in properties else converter.run(item, properties[name], f"/{name}", 0)
        for name, item in value.items()
    }


class _Converter:
    def __init__(self, root: Mapping[str, Any], notes: list[str]) -> None:
        self._root = root
        self._notes = notes

    def run(self, value: Any, schema: Any, pointer: str, depth: int) -> Any:
        schema = _resolve(schema, self._root)
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or fits(value, schema, self._root):
            return value
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._one_of(value, schema[keyword], pointer, depth)
        for part in schema.get("allOf", ()):
            value = self.run(value, part, pointer, depth + 1)
        converted = self._leaf(value, schema, pointer)
        if isinstance(converted, dict):
            properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
            return {
                key: self.run(item, properties.get(key, extra), f"{pointer}/{key}", depth + 1)
                for key, item in converted.items()
            }
        if isinstance(converted, list):
            first, rest = schema.get("prefixItems", []), schema.get("items")
            return [
                self.run(item, first[index] if index < len(first) else rest, f"{pointer}/{index}", depth + 1)
                for index, item in enumerate(converted)
            ]
        return converted

    def _one_of(self, value: Any, branches: Any, pointer: str, depth: int) -> Any:
        """Convert only if all branches that can take the value agree on what it becomes."""
        outcomes: list[tuple[Any, list[str]]] = []
        for branch in branches:
            notes: list[str] = []
            candidate = _Converter(self._root, notes).run(value, branch, pointer, depth + 1)
            if fits(candidate, branch, self._root) and not any(_same(candidate, seen) for seen, _ in outcomes):
                outcomes.append((candidate, notes))
        if len(outcomes) != 1:
            return value
        self._notes.extend(outcomes[0][1])
        return outcomes[0][0]

    def _leaf(self, value: Any, schema: Mapping[str, Any], pointer: str) -> Any:
        candidates = [item for item in _candidates(value, schema) if not _same(item, value)]
        # A container may still have wrong members, which are converted one level down.
        good = [item for item in candidates if isinstance(item, (dict, list)) or fits(item, schema, self._root)]
        if not good or any(not _same(item, good[0]) for item in good):
            return value
        before, after = (json.dumps(item, ensure_ascii=False) for item in (value, good[0]))
        self._notes.append(f"{pointer}: {_cut(before)} read as {_cut(after)}")
        return good[0]


def _candidates(value: Any, schema: Mapping[str, Any]) -> list[Any]:
    types = schema.get("type", [])
    wanted = {types} if isinstance(types, str) else set(types)
    if not wanted and "enum" in schema:
        wanted = {"integer", "number", "boolean", "null", "string"}
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)] if "string" in wanted and abs(value) < 10**_MAX_NUMBER_CHARS else []
    if not isinstance(value, str):
        return []
    found: list[Any] = []
    text = value.strip()
    if wanted & {"integer", "number"}:
        found += _numbers(text, wanted)
    if text in _WORDS:
        kind = "null" if _WORDS[text] is None else "boolean"
        found += [_WORDS[text]] if kind in wanted else []
    if wanted & {"array", "object"} and text[:1] in ("[", "{"):
        found += _container(text, wanted)
    return found


def _numbers(text: str, wanted: set[str]) -> list[Any]:
    if len(text) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return []
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return []
    if re.fullmatch(r"-?[0-9]+", text):
        return [int(text)]
    number = float(text)
    if abs(number) == float("inf") or Decimal(repr(number)) != exact:
        return []
    if "number" not in wanted:
        return [int(number)] if number.is_integer() else []
    return [number]


def _container(text: str, wanted: set[str]) -> list[Any]:
    try:
        value = loads_strict(text)
    except ValueError:
        return []
    return [value] if ("array" if isinstance(value, list) else "object") in wanted else []


def _resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow local `$ref`s; siblings of a `$ref` are kept, as 2020-12 says."""
    seen: set[str] = set()
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        reference = schema["$ref"]
        if reference in seen:
            return {}
        seen.add(reference)
        target: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
            else:
                return {}
        if not isinstance(target, Mapping):
            return target
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: Python's 1 == True == 1.0 would hide a conversion."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
