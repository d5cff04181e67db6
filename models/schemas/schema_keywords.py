"""Which keywords of JSON Schema 2020-12 hold schemas, which restrict values; a walk through them. Knows no grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAPS = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])
LISTS = frozenset(["anyOf", "allOf", "oneOf", "prefixItems"])
SINGLE = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
#: Those that can make a value invalid. All others describe, or are not known; nobody checks them.
RESTRICTING = SINGLE | LISTS | frozenset({
    "type", "enum", "const", "$ref", "$dynamicRef", "properties", "patternProperties", "required", "minProperties",
    "maxProperties", "dependentRequired", "dependentSchemas", "minItems", "maxItems", "uniqueItems", "minContains",
    "maxContains", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf",
})  # fmt: skip
#: Those whose schemas judge the same value as the schema around them, not a part of it (core, 10.2).
IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


def children(node: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The schemas directly inside one: (keyword, JSON pointer from here, schema)."""
    for keyword, value in node.items():
        if keyword in MAPS and isinstance(value, Mapping):
            for name, child in value.items():
                yield keyword, f"/{keyword}/{name.replace('~', '~0').replace('/', '~1')}", child
        elif keyword in LISTS and isinstance(value, list):
            for i, child in enumerate(value):
                yield keyword, f"/{keyword}/{i}", child
        elif keyword in SINGLE:
            yield keyword, f"/{keyword}", value


def walk(node: Any, pointer: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(pointer, schema) of a schema at a pointer and of all schemas inside it, outer ones first."""
    if not isinstance(node, Mapping):
        return
    yield pointer, node
    for _, step, child in children(node):
        yield from walk(child, pointer + step)


def in_place(node: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas directly inside one that judge the same value."""
    for keyword in IN_PLACE:
        value = node.get(keyword)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, Mapping):
            yield from value.values() if keyword == "dependentSchemas" else [value]
