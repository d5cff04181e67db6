"""Schemas: refused by name, normalised without loss, and reported honestly."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine import Grammar
from laploop.models import schema_report
from laploop.models.errors import RequestError
from laploop.models.schema import MAX_SCHEMA_BYTES, arguments_schema, check_schema, enforced, normalise, refusal


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "objekt"}, "at /", "type"),
        (obj(a={"minimum": "1"}), "/properties/a", "minimum"),
        (obj(a={"pattern": "("}), "/properties/a", "pattern"),
        (
            obj(a={"type": "array", "items": {"patternProperties": {"[": {}}}}),
            "/properties/a/items",
            "patternProperties",
        ),
        (obj(**{"a/b": {"anyOf": [{"pattern": "*"}]}}), "/properties/a~1b/anyOf/0", "pattern"),
        ({"required": "a"}, "at /", "required"),
    ],
)
def test_what_is_no_schema_is_refused_by_pointer_and_keyword(schema: Any, pointer: str, keyword: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_schema(schema, "tool 'f'")
    assert "tool 'f'" in str(caught.value) and pointer in str(caught.value) and keyword in str(caught.value)
    assert {finding.status for finding in schema_report(schema)} == {"rejected"}


def test_a_schema_too_large_is_refused() -> None:
    with pytest.raises(RequestError, match=str(MAX_SCHEMA_BYTES)):
        check_schema({"enum": ["x" * MAX_SCHEMA_BYTES]}, "tool 'f'")


@pytest.mark.parametrize(
    ("schema", "status"),
    [
        (obj(a={"type": "string", "pattern": "^x+$", "maxLength": 3}), {"enforced"}),
        (obj(a={"type": "string", "format": "date"}), {"enforced"}),
        (True, set()),
        ({"title": "t", "description": "d", "default": 1}, set()),
    ],
)
def test_a_schema_that_is_enforced_says_so(schema: Any, status: set[str]) -> None:
    assert {finding.status for finding in schema_report(schema)} == status


@pytest.mark.parametrize(
    ("extra", "keyword"),
    [
        ({"not": {"const": 1}}, "not"),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"contains": {"const": 1}}, "contains"),
        ({"type": "string", "pattern": "(?=x)y"}, "pattern"),
        ({"type": "string", "format": "json-pointer"}, "format"),
    ],
)
def test_what_only_validation_sees_is_reported_so_and_the_rest_is_not(extra: dict[str, Any], keyword: str) -> None:
    findings = {
        (f.pointer, f.keyword): f.status for f in schema_report(obj(a=extra, b={"type": "integer", "minimum": 1}))
    }
    assert findings["/properties/a", keyword] == "validated"
    assert findings["/properties/b", "minimum"] == "enforced"


def test_enforced_is_no_empty_word() -> None:
    """Every keyword that is reported as enforced makes the grammar refuse a value that breaks it."""
    breaking = {
        "type": ({"type": "integer"}, "x"),
        "enum": ({"enum": [1, 2]}, 3),
        "const": ({"const": "a"}, "b"),
        "minimum": ({"type": "integer", "minimum": 3}, 2),
        "exclusiveMaximum": ({"type": "number", "exclusiveMaximum": 3}, 3),
        "multipleOf": ({"type": "integer", "multipleOf": 3}, 4),
        "minLength": ({"type": "string", "minLength": 2}, "a"),
        "maxLength": ({"type": "string", "maxLength": 2}, "abc"),
        "pattern": ({"type": "string", "pattern": "^a"}, "b"),
        "format": ({"type": "string", "format": "uuid"}, "b"),
        "minItems": ({"type": "array", "minItems": 1}, []),
        "maxItems": ({"type": "array", "maxItems": 1}, [1, 2]),
        "items": ({"type": "array", "items": {"type": "integer"}}, ["a"]),
        "prefixItems": ({"type": "array", "prefixItems": [{"type": "integer"}]}, ["a"]),
        "required": ({"type": "object", "required": ["a"]}, {}),
        "properties": ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "x"}),
        "additionalProperties": ({"type": "object", "additionalProperties": False}, {"a": 1}),
        "anyOf": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a"),
        "allOf": ({"type": "integer", "allOf": [{"minimum": 3}]}, 2),
    }
    for keyword, (schema, value) in breaking.items():
        assert ("", keyword, "enforced") in schema_report(schema), keyword
        assert not Grammar.json_schema(schema).accepts(json.dumps(value)), keyword


# -- normalising ----------------------------------------------------------------------------------------------------


def test_nullable_is_written_out() -> None:
    schema = normalise(
        obj(a={"type": "string", "enum": ["x"], "nullable": True}, b={"type": "integer", "nullable": False})
    )
    grammar = Grammar.json_schema(schema)
    assert grammar.accepts('{"a": null, "b": 1}') and grammar.accepts('{"a": "x", "b": 1}')
    assert not grammar.accepts('{"a": "x", "b": null}')


def test_a_callers_x_guidance_cannot_switch_enforcement_off() -> None:
    schema = arguments_schema(
        {**obj(a={"type": "integer", "x-guidance": {"lenient": True}}), "x-guidance": {"coerce_one_of": True}}
    )
    assert "x-guidance" not in json.dumps(enforced(schema).schema)


def test_values_are_left_alone() -> None:
    """Keywords are normalised where schemas stand, never inside constants, defaults or property names."""
    inner = {"nullable": True, "format": "odd", "x-guidance": 1}
    schema = obj(nullable={"const": inner}, format={"enum": [inner]}, uniqueItems={"default": inner})
    assert normalise(schema) == schema


@pytest.mark.parametrize(
    "keep", [{"additionalProperties": True}, {"patternProperties": {"^x": {}}}, {"$ref": "#/$defs/a"}]
)
def test_arguments_are_closed_unless_the_schema_says_otherwise(keep: dict[str, Any]) -> None:
    open_schema = {"properties": {"a": {}}, **keep}
    assert arguments_schema(open_schema).get("additionalProperties") == keep.get("additionalProperties")
    assert arguments_schema({"properties": {"a": {}}})["additionalProperties"] is False
    assert arguments_schema(None) == {"type": "object"}


DATE = re.compile(normalise({"type": "string", "format": "date"})["pattern"])


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_dates_are_those_that_validators_take(year: int, month: int, day: int) -> None:
    """Regression: llguidance's own rule takes the year 0, which jsonschema's check refuses."""
    text = f"{year:04d}-{month:02d}-{day:02d}"
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        assert not DATE.search(text)
    else:
        assert DATE.search(text)


@pytest.mark.parametrize("text", ["2024-02-29T23:59:59Z", "2024-05-06t01:02:03.125+02:00", "0001-01-01T00:00:00z"])
def test_date_times_are_taken(text: str) -> None:
    grammar = Grammar.json_schema(normalise({"type": "string", "format": "date-time"}))
    assert grammar.accepts(json.dumps(text))


@pytest.mark.parametrize("text", ["2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z", "2024-01-01"])
def test_date_times_that_validators_refuse_are_not(text: str) -> None:
    grammar = Grammar.json_schema(normalise({"type": "string", "format": "date-time"}))
    assert not grammar.accepts(json.dumps(text))


def test_refusal() -> None:
    assert refusal(obj(a={"type": "integer"})) == ""
    assert "uniqueItems" in refusal({"type": "array", "uniqueItems": True})


@pytest.mark.parametrize("divisor", [123_456_789, 1_000_003, 0.12345678, 1e300 / 7])
def test_a_large_divisor_is_left_to_validation(divisor: float) -> None:
    """Regression: llguidance builds a state for each remainder; a request took minutes and gigabytes."""
    schema = {"type": "number", "multipleOf": divisor}
    assert "multipleOf" not in normalise(schema)
    assert [f.status for f in schema_report(schema) if f.keyword == "multipleOf"] == ["validated"]


@pytest.mark.parametrize("divisor", [7, 0.01, 0.05, 1_000_000, 997, 0.125])
def test_a_small_divisor_is_enforced_whatever_the_number_of_decimals(divisor: float) -> None:
    """Regression: of multiples of 0.01 only 1.50 was taken and not 1.5, which is how json.dumps writes it."""
    grammar = Grammar.json_schema(normalise({"type": "number", "multipleOf": divisor}))
    multiples = [Decimal(str(divisor)) * n for n in (0, 1, 2, 5, 10, 100, 250, 1000)]
    texts = [json.dumps(int(m) if m == int(m) else float(m)) for m in multiples]
    assert [text for text in texts if not grammar.accepts(text)] == []
    assert not grammar.accepts(str(multiples[1] + Decimal("0.0001")))


def test_half_a_surrogate_pair_and_great_depth_are_refused_with_words() -> None:
    """Regression: UnicodeEncodeError and RecursionError."""
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"not": deep}
    for schema, words in (({"enum": ["\ud800"]}, "not plain JSON"), (deep, "nested too deeply")):
        with pytest.raises(RequestError, match=f"tool 'f': the schema is {words}"):
            check_schema(schema, "tool 'f'")
