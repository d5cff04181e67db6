"""References inside a JSON Schema that lead nowhere, or round and round. Nothing is fetched; a reference to another
document is not judged.

The rules of resolution (identifiers, anchors, pointers) are those of `referencing`; which keywords hold schemas, the
caller knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Walk = Callable[[Any, str], Iterator[tuple[str, Mapping[str, Any]]]]
# Keywords whose schemas judge the same value as the schema around them, not a part of it (core, 10.2).
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


def dangling_refs(schema: Mapping[str, Any], walk: Walk) -> Iterator[tuple[str, str, str]]:
    """Each reference into `schema` that meets no schema there, or leads back to its own place without going into a part
    of the value, which a validator would follow for ever (core, 9.4.1): (pointer of its place, keyword, reason).

    Args:
        schema: a schema that its meta-schema accepts.
        walk: gives (pointer, schema) of a schema at a pointer and of all schemas inside it, outer ones first.
    """
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    root = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    waiting: list[tuple[str, Any, Any]] = [("", schema, root)]
    seen: set[int] = set()
    targets: dict[int, Mapping[str, Any]] = {}  # id of a schema with $ref → what that leads to
    places: list[tuple[str, Mapping[str, Any]]] = []
    while waiting:
        start, part, resolver = waiting.pop(0)
        resolvers = {start: resolver}
        for pointer, node in walk(part, start):
            if id(node) in seen:
                continue
            seen.add(id(node))
            resolver = _nearest(resolvers, pointer)
            if isinstance(node.get("$id"), str) and pointer:
                resolver = resolvers[pointer] = resolver.in_subresource(DRAFT202012.create_resource(node))
            for keyword in ("$ref", "$dynamicRef"):
                reference = node.get(keyword)
                if not isinstance(reference, str):
                    continue
                target, there, why = _follow(reference, resolver)
                if why:
                    yield pointer, keyword, why
                elif isinstance(target, Mapping):  # it may stand where no keyword is known to hold a schema
                    waiting.append((reference.rpartition("#")[2], target, there))
                    if keyword == "$ref":
                        targets[id(node)] = target
                        places.append((pointer, node))
    for pointer, node in places:
        if _leads_back(node, targets):
            yield pointer, "$ref", f"{node['$ref']!r} leads back to itself, so that no value could ever be judged"


def _leads_back(start: Mapping[str, Any], targets: Mapping[int, Mapping[str, Any]]) -> bool:
    waiting: list[Any] = [targets[id(start)]]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        if node is start:
            return True
        seen.add(id(node))
        if id(node) in targets:
            waiting.append(targets[id(node)])
        for keyword in _IN_PLACE:
            value = node.get(keyword)
            if isinstance(value, list):
                waiting += value
            elif isinstance(value, Mapping):
                waiting += value.values() if keyword == "dependentSchemas" else [value]
    return False


def _nearest(resolvers: Mapping[str, Any], pointer: str) -> Any:
    """The resolver of the innermost schema with an $id around `pointer`."""
    while pointer not in resolvers:
        pointer = pointer.rpartition("/")[0]
    return resolvers[pointer]


def _follow(reference: str, resolver: Any) -> tuple[Any, Any, str]:
    """What a reference leads to, the resolver there, and the reason why it is no good; None for another document."""
    from referencing import exceptions

    try:
        found = resolver.lookup(reference)
    except (exceptions.PointerToNowhere, exceptions.NoSuchAnchor, exceptions.InvalidAnchor, ValueError, TypeError):
        return None, None, f"{reference!r} leads nowhere in this schema"
    except exceptions.Unresolvable:
        return None, None, ""
    if isinstance(found.contents, (Mapping, bool)):
        return found.contents, found.resolver, ""
    return None, None, f"{reference!r} leads to {found.contents!r:.40}, which is no schema"
