"""A JSON Schema, honestly: what is enforced while sampling, what only afterwards, and what is no schema at all.

How the enforceable part is found: `schema_enforced`. Does not know tools or grammars beyond that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from laploop.engine.values import shown

from ..errors import RequestError
from ..requests.plain import check_plain
from .schema_enforced import ENFORCED_FORMATS, Enforced, enforced, is_idle, normalise, refusal, validated_format
from .schema_keywords import RESTRICTING, walk
from .schema_refs import dangling_refs, endless, references

__all__ = [
    "Enforced", "Finding", "arguments_schema", "check_schema", "closed", "enforced", "normalise", "refusal",
    "schema_report",
]  # fmt: skip

MAX_SCHEMA_BYTES = 500_000


class Finding(NamedTuple):
    """One keyword of a schema and what becomes of it: "enforced", "validated" (after generation) or "rejected"."""

    pointer: str
    keyword: str
    status: str


def schema_report(schema: Mapping[str, Any] | bool) -> list[Finding]:
    """For each keyword that restricts values: its JSON pointer, its name, and whether sampling enforces it.

    Keywords that restrict nothing (descriptions, `nullable`, `contentMediaType`, `discriminator`, formats that no
    validator knows, names that are no keywords) are left out.

    Args:
        schema: a JSON Schema (2020-12).

    Raises:
        RequestError: it is no JSON object.
    """
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, Mapping):
        raise RequestError(f"schema is {shown(schema)}; expected a JSON Schema as an object, or True or False")
    check_plain(schema, "the schema")
    if faults := _faults(schema):
        return [Finding(pointer, keyword, "rejected") for pointer, keyword, _ in faults]
    part = enforced(schema)
    idle = tuple(f"{pointer}/{k}/" for pointer, node in walk(schema) for k in node if is_idle(node, k))
    findings = []
    for pointer, node in walk(schema):
        if f"{pointer}/".startswith(idle):
            continue
        for keyword in [k for k in node if _restricts(node, k)]:
            is_enforced = _is_said(node, keyword) and part.holds(pointer, keyword)
            findings.append(Finding(pointer, keyword, "enforced" if is_enforced else "validated"))
    return findings


def _restricts(node: Mapping[str, Any], keyword: str) -> bool:
    """Whether a keyword can make a value invalid, there where it stands."""
    if keyword == "format":
        return validated_format(node["format"]) and "string" in node.get("type", "string")
    return keyword in RESTRICTING and not is_idle(node, keyword)


def _is_said(node: Mapping[str, Any], keyword: str) -> bool:
    return keyword != "format" or node["format"] in ENFORCED_FORMATS


def check_schema(schema: Mapping[str, Any], where: str) -> None:
    """Refuse what is no valid schema, and what no finite value can meet.

    Args:
        schema: the schema.
        where: whose it is, for the message, such as "tool 'get_weather'".

    Raises:
        RequestError: names `where`, the JSON pointer and the keyword.
    """
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        size = len(text.encode("utf-8"))
        if size > MAX_SCHEMA_BYTES:
            raise RequestError(f"{where}: the schema has {size} bytes, at most {MAX_SCHEMA_BYTES} are taken")
        for pointer, keyword, why in _faults(schema):
            raise RequestError(f"{where}: invalid schema at {pointer or '/'}: {keyword}: {why}")
    except RecursionError as error:
        raise RequestError(f"{where}: the schema is nested too deeply") from error
    except (TypeError, ValueError) as error:  # a set, a NaN, half a surrogate pair
        raise RequestError(f"{where}: the schema is not plain JSON: {error}") from error


# With one of these an object may have keys that its `properties` do not list.
_OPENING = frozenset(["additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if"])
# What judges a value together with the schema around it; OpenAI's `strict` refuses them.
_COMPOSING = frozenset(["allOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"])


def arguments_schema(parameters: Mapping[str, Any] | None, *, strict: bool = False) -> dict[str, Any]:
    """The schema of a tool's arguments: always an object, and `closed`."""
    return closed({**(parameters or {}), "type": (parameters or {}).get("type", "object")}, strict=strict)


def closed(schema: Mapping[str, Any], *, strict: bool = False) -> dict[str, Any]:
    """The schema of an object without keys that nobody listed, so that none is invented: where it lists `properties`
    and does not say otherwise, there are no others.

    Args:
        schema: the schema.
        strict: close the objects inside it too. Where schemas are composed, so that a part may list some keys and
            another part more, only the outermost is closed.
    """
    if strict and not any(_is_composed(node) for _, node in walk(schema)):
        copied: dict[str, Any] = json.loads(json.dumps(schema))
        for node in [node for _, node in walk(copied)]:
            _close(node)
        return copied
    outer = dict(schema)
    _close(outer)
    return outer


def _is_composed(node: Mapping[str, Any]) -> bool:
    return bool(_COMPOSING & node.keys()) or ("properties" in node and bool({"anyOf", "oneOf", "$ref"} & node.keys()))


def _close(node: Any) -> None:
    if node.get("properties") and not _OPENING & node.keys():
        node["additionalProperties"] = False


def _faults(schema: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """What makes it no valid schema: (pointer, keyword, reason)."""
    return _faults_of_text(json.dumps(schema))


@lru_cache(maxsize=512)
def _faults_of_text(text: str) -> tuple[tuple[str, str, str], ...]:
    return tuple(_find_faults(json.loads(text)))


def _find_faults(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    is_schema = True
    for error in _schema_checker().iter_errors(schema):
        is_schema = False
        path = [str(p) for p in error.absolute_path]
        yield "/" + "/".join(path[:-1]) if path[:-1] else "", path[-1] if path else "", error.message
    for pointer, node in walk(schema):
        for keyword, patterns in (
            ("pattern", [node.get("pattern")]),
            ("patternProperties", node.get("patternProperties")),
        ):
            for pattern in patterns or ():
                if isinstance(pattern, str) and (why := _bad_pattern(pattern)):
                    is_schema = False
                    yield pointer, keyword, why
    if is_schema:
        yield from dangling_refs(schema)
    if is_schema and not any(dangling_refs(schema)):
        yield from _endless_values(schema)


@lru_cache(maxsize=1)
def _schema_checker() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)


def _endless_values(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """A schema that only an infinitely large value could meet."""
    open_ones = endless(schema)
    if id(schema) not in open_ones:
        return
    for reference in references(schema):
        if id(reference.node) in open_ones and id(reference.target) in open_ones:
            why = f"{reference.node['$ref']!r} asks for one more value of its own kind in each, so that none is finite"
            yield reference.pointer, reference.keyword, why
            return


def _bad_pattern(pattern: str) -> str:
    import regex

    try:
        regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        return f"not a regular expression: {error}"
    return ""
