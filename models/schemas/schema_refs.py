"""References inside a JSON Schema: where they lead, and whether that is nowhere, round and round, or without end.
Nothing is fetched; a reference to another document is not judged.

The rules of resolution (identifiers, anchors, pointers) are those of `referencing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .schema_keywords import in_place, walk


class Reference(NamedTuple):
    """A `$ref` or `$dynamicRef`.

    Args:
        pointer: where the schema that holds it stands.
        node: that schema.
        keyword: of the two.
        target: the schema it leads to; None where it leads nowhere or to another document.
        why: what is wrong with it; empty for nothing, or for another document.
    """

    pointer: str
    node: Mapping[str, Any]
    keyword: str
    target: Any
    why: str


def references(schema: Mapping[str, Any]) -> list[Reference]:
    """All references of a schema that its meta-schema accepts, also those in places that only a reference reaches."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    root = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    waiting: list[tuple[str, Any, Any]] = [("", schema, root)]
    seen: set[int] = set()
    found: list[Reference] = []
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
                found.append(Reference(pointer, node, keyword, target, why))
                if isinstance(target, Mapping):  # it may stand where no keyword is known to hold a schema
                    waiting.append((reference.rpartition("#")[2], target, there))
    return found


def dangling_refs(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each reference into `schema` that meets no schema there, or leads back to its own place without going into a part
    of the value, which a validator would follow for ever (core, 9.4.1): (pointer of its place, keyword, reason).

    Args:
        schema: a schema that its meta-schema accepts.
    """
    found = references(schema)
    targets = targets_of(found)
    for reference in found:
        if reference.why:
            yield reference.pointer, reference.keyword, reference.why
    for reference in found:
        if id(reference.node) in targets and reference.keyword == "$ref" and _leads_back(reference.node, targets):
            why = f"{reference.node['$ref']!r} leads back to itself, so that no value could ever be judged"
            yield reference.pointer, "$ref", why


def targets_of(found: Sequence[Reference]) -> dict[int, Any]:
    """id of a schema with `$ref` → what that leads to."""
    return {id(r.node): r.target for r in found if r.keyword == "$ref" and r.target is not None}


def endless(schema: Mapping[str, Any]) -> dict[int, str]:
    """Schemas inside `schema` that every value would have to be infinitely large for, such as an object that requires
    another of its own kind: id of the schema → the keyword that asks for it.

    A schema counts as one of these only if it is certain; other contradictions are not looked for.

    Args:
        schema: one without dangling references.
    """
    found = references(schema)
    targets = targets_of(found)
    nodes: dict[int, Mapping[str, Any]] = {id(node): node for _, node in walk(schema)}
    for reference in found:
        nodes |= {id(node): node for _, node in walk(reference.target)}
    # From "nobody knows a finite value" on: what has one is taken out until nothing changes.
    reasons = dict.fromkeys(nodes, "")
    changed = True
    while changed:
        changed = False
        for key, node in nodes.items():
            if key in reasons:
                reasons[key] = _asks_for(node, targets, reasons)
                if not reasons[key]:
                    del reasons[key]
                    changed = True
    return reasons


def _asks_for(node: Mapping[str, Any], targets: Mapping[int, Any], open_ones: Mapping[int, str]) -> str:
    """The keyword that keeps a schema from having a finite value, as far as is known; empty for none."""

    def is_open(part: Any) -> bool:
        return isinstance(part, Mapping) and id(part) in open_ones

    if "enum" in node or "const" in node:
        return ""
    if is_open(targets.get(id(node))):
        return "$ref"
    if any(is_open(part) for part in node.get("allOf", ())):
        return "allOf"
    for keyword in ("anyOf", "oneOf"):
        if node.get(keyword) and all(is_open(part) for part in node[keyword]):
            return keyword
    kinds = node.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    reasons = [
        _asks_of_object(node, is_open) if kind == "object" else _asks_of_array(node, is_open) if kind == "array" else ""
        for kind in kinds or ("string",)
    ]
    return reasons[0] if all(reasons) else ""


def _asks_of_object(node: Mapping[str, Any], is_open: Any) -> str:
    properties, others = node.get("properties", {}), node.get("additionalProperties")
    if node.get("patternProperties"):  # another name may match one of them
        others = None
    if any(is_open(properties.get(name, others)) for name in node.get("required", ())):
        return "required"
    return "minProperties" if not properties and is_open(others) and node.get("minProperties", 0) > 0 else ""


def _asks_of_array(node: Mapping[str, Any], is_open: Any) -> str:
    n_least, first = node.get("minItems", 0), node.get("prefixItems", ())
    items = [*first[: int(n_least)], *([node.get("items")] if n_least > len(first) else [])]
    return "minItems" if any(is_open(item) for item in items) else ""


def _leads_back(start: Mapping[str, Any], targets: Mapping[int, Any]) -> bool:
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
        waiting += in_place(node)
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
