"""Which of JSON's types the values of a schema may have; for notations that write a text and a number alike.

Does not know whether a value is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = frozenset(["string", "number", "boolean", "null", "array", "object"])
_MOST_REFERENCES = 20


def type_of(value: Any) -> str:
    """The name of a value's type; integers are numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def value_types(schema: Any, root: Any, n_followed: int = 0) -> frozenset[str]:
    """The types that are not excluded.

    Args:
        schema: a part of `root`, or all of it.
        root: what its references lead into.
    """
    if schema is False:
        return frozenset()
    if not isinstance(schema, Mapping) or n_followed > _MOST_REFERENCES:
        return TYPES
    types = TYPES
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        types &= {"number" if name == "integer" else str(name) for name in named}
    if "const" in schema:
        types &= {type_of(schema["const"])}
    if isinstance(schema.get("enum"), list):
        types &= {type_of(value) for value in schema["enum"]}
    if "$ref" in schema:
        types &= value_types(target(root, schema["$ref"]), root, n_followed + 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            parts = [value_types(part, root, n_followed + 1) for part in schema[keyword]]
            types &= frozenset().union(*parts)
    for part in schema.get("allOf") or ():
        types &= value_types(part, root, n_followed + 1)
    return types | {"null"} if schema.get("nullable") is True else types


def target(root: Any, reference: Any) -> Any:
    """What a reference into the same schema leads to; True, which allows everything, where it leads elsewhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return True
    found = root
    for step in reference.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return True
    return found
