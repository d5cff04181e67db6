"""A JSON Schema, honestly: what is enforced while sampling, what only afterwards, and what is no schema at all.

The facts on llguidance 1.9 are measured, see docs/schemas.md. Does not know tools or grammars beyond that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from laploop.engine import GrammarError
from laploop.engine.grammar import Grammar

from .errors import RequestError
from .schema_refs import dangling_refs

MAX_SCHEMA_BYTES = 500_000

# llguidance knows no other formats.
_ENFORCED_FORMATS = frozenset({
    "date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
})  # fmt: skip
# llguidance's own rules for these take the year 0 and a 60th second anywhere, which validators refuse. Leap years:
# divisible by 4, but of whole centuries only those divisible by 400.
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"
_PATTERN_OF_FORMAT = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[Tt]{_TIME}$"}
# From here on llguidance takes seconds or gigabytes: its automaton has a state for each remainder of the division.
_MOST_REMAINDERS = 10_000
# Keywords that llguidance ignores without a word.
_IGNORED = frozenset(["discriminator", "contentEncoding", "contentMediaType", "contentSchema"])
# Keywords that say nothing about which values are valid.
_ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "$comment", "$schema", "$id", "deprecated",
    "readOnly", "writeOnly", "$defs", "definitions", "$anchor", "nullable",
})  # fmt: skip
_SUBSCHEMA_MAPS = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])
_SUBSCHEMA_LISTS = frozenset(["anyOf", "allOf", "oneOf", "prefixItems"])
_SUBSCHEMAS = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_REFUSED = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties",
    "$dynamicRef", "$recursiveRef",
})  # fmt: skip


class Finding(NamedTuple):
    """One keyword of a schema and what becomes of it: "enforced", "validated" (after generation) or "rejected"."""

    pointer: str
    keyword: str
    status: str


def schema_report(schema: Mapping[str, Any] | bool) -> list[Finding]:
    """For each keyword that restricts values: its JSON pointer, its name, and whether sampling enforces it.

    Args:
        schema: a JSON Schema (2020-12).
    """
    if isinstance(schema, bool):
        return []
    if faults := list(_faults(schema)):
        return [Finding(pointer, keyword, "rejected") for pointer, keyword, _ in faults]
    whole = _compiles(schema)
    return [
        Finding(pointer, keyword, "enforced" if whole and not _ignored(node, keyword) else _alone(node, keyword))
        for pointer, node in _walk(schema, "")
        for keyword in node
        if keyword not in _ANNOTATIONS and keyword != "x-guidance"
    ]


def _ignored(node: Mapping[str, Any], keyword: str) -> bool:
    if keyword == "format":
        return node.get("type") not in (None, "string") or node["format"] not in _ENFORCED_FORMATS
    if keyword == "multipleOf":
        return _n_remainders(node["multipleOf"]) > _MOST_REMAINDERS
    return keyword in _IGNORED


def _n_remainders(divisor: Any) -> int:
    """The digits of a divisor as a whole number: 700 and 0.07 count as 7."""
    digits = Decimal(str(divisor)).normalize().as_tuple().digits
    return int("".join(map(str, digits)))


def _alone(node: Mapping[str, Any], keyword: str) -> str:
    """Status of a keyword in a schema that llguidance refuses as a whole: would it take this node's keyword?"""
    if keyword in _REFUSED and node[keyword] is not False:
        return "validated"
    if _ignored(node, keyword):
        return "validated"
    if keyword in ("oneOf", "patternProperties", "pattern", "$ref", "minProperties"):
        rest = {k: node[k] for k in (keyword, "type", "properties", "required") if k in node}
        return "enforced" if _compiles(rest) else "validated"
    return "enforced"


def _walk(node: Any, pointer: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(node, Mapping):
        return
    yield pointer, node
    for keyword, value in node.items():
        at = f"{pointer}/{keyword}"
        if keyword in _SUBSCHEMA_MAPS and isinstance(value, Mapping):
            for name, child in value.items():
                yield from _walk(child, f"{at}/{name.replace('~', '~0').replace('/', '~1')}")
        elif keyword in _SUBSCHEMA_LISTS and isinstance(value, list):
            for i, child in enumerate(value):
                yield from _walk(child, f"{at}/{i}")
        elif keyword in _SUBSCHEMAS:
            yield from _walk(value, at)


def _faults(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What makes it no valid schema: (pointer, keyword, reason)."""
    import jsonschema

    checker = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    for error in checker.iter_errors(schema):
        path = [str(p) for p in error.absolute_path]
        yield "/" + "/".join(path[:-1]) if path[:-1] else "", path[-1] if path else "", error.message
    for pointer, node in _walk(schema, ""):
        for keyword, patterns in (
            ("pattern", [node.get("pattern")]),
            ("patternProperties", node.get("patternProperties")),
        ):
            for pattern in patterns or ():
                if isinstance(pattern, str) and (why := _bad_pattern(pattern)):
                    yield pointer, keyword, why
    yield from dangling_refs(schema, _walk)


def _bad_pattern(pattern: str) -> str:
    try:
        # ECMA 262's named classes that Python's re does not know; their presence is no fault.
        re.compile(re.sub(r"\\[pP]\{[^}]*\}", "x", pattern))
    except re.error as error:
        return f"not a regular expression: {error}"
    return ""


@lru_cache(maxsize=512)
def _faults_of_text(text: str) -> tuple[tuple[str, str, str], ...]:
    """Remembered, since a request with ten tools came to 6 ms of checks each time."""
    return tuple(_faults(json.loads(text)))


def check_schema(schema: Mapping[str, Any], where: str) -> None:
    """Refuse what is no valid schema.

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
        for pointer, keyword, why in _faults_of_text(text):
            raise RequestError(f"{where}: invalid schema at {pointer or '/'}: {keyword}: {why}")
    except RecursionError as error:
        raise RequestError(f"{where}: the schema is nested too deeply") from error
    except (TypeError, ValueError) as error:  # a set, a NaN, half a surrogate pair
        raise RequestError(f"{where}: the schema is not plain JSON: {error}") from error


def normalise(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema in the words that llguidance takes: OpenAPI's `nullable` written out, no-ops, unknown formats and
    large divisors dropped, dates and times as patterns, and no `x-guidance` of the caller's, which could switch
    enforcement off."""
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ("x-guidance", "nullable") or (keyword == "uniqueItems" and value is False):
            continue
        if keyword in ("format", "multipleOf") and _ignored(schema, keyword):
            continue
        if keyword == "format" and value in _PATTERN_OF_FORMAT and "pattern" not in schema:
            keyword, value = "pattern", _PATTERN_OF_FORMAT[value]
        if keyword in _SUBSCHEMA_MAPS and isinstance(value, Mapping):
            value = {k: _normalise_any(v) for k, v in value.items()}
        elif keyword in _SUBSCHEMA_LISTS and isinstance(value, list):
            value = [_normalise_any(v) for v in value]
        elif keyword in _SUBSCHEMAS:
            value = _normalise_any(value)
        result[keyword] = value
    if schema.get("nullable") is True and "type" in result:
        kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*kinds, "null"] if "null" not in kinds else kinds
        if "enum" in result and None not in result["enum"]:
            result["enum"] = [*result["enum"], None]
    return result


def _normalise_any(value: Any) -> Any:
    return normalise(value) if isinstance(value, Mapping) else value


def arguments_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of a tool's arguments: always an object; closed where the tool lists its parameters and does not say
    otherwise, so that no argument is invented."""
    schema = normalise(parameters or {})
    schema.setdefault("type", "object")
    open_ended = {"additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if"}
    if schema.get("properties") and not open_ended & schema.keys():
        schema["additionalProperties"] = False
    return schema


@lru_cache(maxsize=512)
def _compiles_text(text: str) -> str:
    try:
        Grammar.json_schema(json.loads(text))
    except GrammarError as error:
        return str(error)
    return ""


def _compiles(schema: Mapping[str, Any]) -> bool:
    return not why_not_enforced(schema)


def why_not_enforced(schema: Mapping[str, Any]) -> str:
    """llguidance's reason to refuse the schema; empty if it enforces all of it."""
    return _compiles_text(json.dumps(schema))
