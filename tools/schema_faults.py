"""What a schema that its meta-schema accepts can still have wrong: references that go round, patterns that are none.

It knows which keywords hold schemas, not what tools are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .validator import fault_of_pattern

# Keywords whose value is a schema, a list of schemas, or schemas by name (JSON Schema 2020-12, core and
# applicators).
ONE = frozenset(
    [
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
BY_NAME = ("properties", "$defs", "patternProperties", "dependentSchemas")
# Those that judge the same value as the schema around them, not a part of it (the same, "in-place applicators").
_IN_PLACE = frozenset(["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"])


def parts_of(schema: Any) -> Iterator[tuple[str, str, Any]]:
    """The schemas directly inside one: (keyword, JSON pointer from here, schema)."""
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        if keyword in ONE:
            yield keyword, f"/{keyword}", value
        elif keyword in LIST and isinstance(value, list):
            for index, item in enumerate(value):
                yield keyword, f"/{keyword}/{index}", item
        elif keyword in BY_NAME and isinstance(value, Mapping):
            for name, item in value.items():
                yield keyword, f"/{keyword}/{name}", item


def faults(root: Mapping[str, Any]) -> Iterator[str]:
    """Each fault as `pointer: what is wrong`, outer ones first.

    A reference that leads, without going into a property or an item, back to where it stands would have a validator
    follow it for ever (JSON Schema 2020-12, core, 9.4.1 forbids it).
    """
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        pointer, schema = waiting.pop(0)
        if not isinstance(schema, Mapping):
            continue
        if isinstance(pattern := schema.get("pattern"), str) and (why := fault_of_pattern(pattern)):
            yield f"{pointer}/pattern: {pattern!r} is no regular expression: {why}"
        patterns = schema.get("patternProperties")
        for pattern in patterns if isinstance(patterns, Mapping) else ():
            if why := fault_of_pattern(pattern):
                yield f"{pointer}/patternProperties: {pattern!r} is no regular expression: {why}"
        if isinstance(reference := schema.get("$ref"), str):
            if not reference.startswith("#"):
                yield f"{pointer}/$ref: {reference!r} points outside the schema; copy its target into $defs"
            elif _leads_back(schema, root):
                yield f"{pointer}/$ref: {reference!r} leads back to itself, so that no value could ever be judged"
        waiting += [(pointer + step, part) for _, step, part in parts_of(schema)]


def _leads_back(start: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    waiting, seen = [_target(start, root)], set[int]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        if schema is start:
            return True
        seen.add(id(schema))
        waiting += [part for keyword, _, part in parts_of(schema) if keyword in _IN_PLACE]
        if isinstance(schema.get("$ref"), str):
            waiting.append(_target(schema, root))
    return False


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """What a JSON pointer in `$ref` leads to; None for nothing, and for anchors."""
    reference = str(schema["$ref"])
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        elif isinstance(target, Mapping) and step in target:
            target = target[step]
        else:
            return None
    return None if reference not in ("#", "") and not reference.startswith("#/") else target
