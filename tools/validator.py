"""JSON Schema 2020-12 as `jsonschema` has it, but for regular expressions: these have a time limit here.

Python's `re` can take longer than anybody lives for thirty characters of a model's text ("^(a|aa)+$"), holds the
interpreter's lock all the while, and cannot be stopped. `regex` takes the same expressions, and \\p{L}, which JSON
Schema's dialect (ECMA-262) has and `re` has not. OpenAPI's `nullable` is honoured. It does not word what is wrong: that
is `violations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError

PATTERN_S = 0.5  # seconds; an honest pattern takes microseconds


def validator_of(schema: Any) -> Any:
    """A `jsonschema` validator, formats included. The cause of an error is a TimeoutError where a pattern took too
    long."""
    validator = _validator_class()
    return validator(schema, format_checker=validator.FORMAT_CHECKER)


def fault_of_pattern(pattern: str) -> str:
    """Why `pattern` is no regular expression; empty if it is one."""
    import regex

    try:
        regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    make: Any = extend  # it has no types
    return make(
        Draft202012Validator,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "type": _or_null(Draft202012Validator.VALIDATORS["type"]),
            "enum": _or_null(Draft202012Validator.VALIDATORS["enum"]),
        },
    )


def _or_null(rule: Any) -> Any:
    """A keyword's rule that lets null pass where the schema says OpenAPI's `nullable`, as the grammar does."""

    def or_null(validator: Any, wanted: Any, value: Any, schema: Mapping[str, Any]) -> Any:
        is_let_pass = value is None and schema.get("nullable") is True
        return () if is_let_pass else rule(validator, wanted, value, schema)

    return or_null


def _matches(pattern: str, text: str) -> bool:
    import regex

    return regex.search(pattern, text, timeout=PATTERN_S) is not None


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    if isinstance(value, str):
        try:
            if not _matches(pattern, value):
                yield ValidationError(f"{value!r} does not match {pattern!r}")
        except TimeoutError as error:
            yield ValidationError(f"{pattern!r} takes too long", cause=error)


def _pattern_properties(validator: Any, patterns: Any, value: Any, _: Any) -> Iterable[ValidationError]:
    from jsonschema import ValidationError

    if isinstance(value, dict):
        for pattern, schema in patterns.items():
            for key, item in value.items():
                try:
                    is_meant = _matches(pattern, key)
                except TimeoutError as error:
                    yield ValidationError(f"{pattern!r} takes too long", cause=error)
                    continue
                if is_meant:
                    yield from validator.descend(item, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    if not isinstance(value, dict):
        return
    patterns = schema.get("patternProperties", {})
    try:
        known = {key for key in value if any(_matches(pattern, key) for pattern in patterns)}
    except TimeoutError as error:
        yield ValidationError("a pattern takes too long", cause=error)
        return
    extra = [key for key in value if key not in schema.get("properties", {}) and key not in known]
    if wanted is False and extra:
        yield ValidationError(f"unexpected: {', '.join(map(repr, extra))}")
    elif isinstance(wanted, Mapping):
        for key in extra:
            yield from validator.descend(value[key], wanted, path=key)
