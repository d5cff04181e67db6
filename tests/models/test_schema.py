"""Schemas: refused by name, normalised without loss, and reported honestly."""

from __future__ import annotations

import datetime
import json
import random
import re
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np
import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st
from laploop.engine import Grammar
from laploop.engine.grammar import _byte_tokenizer, compile_matcher
from laploop.models import schema_report
from laploop.models.errors import RequestError
from laploop.models.schemas.schema import (
    ENFORCED_FORMATS,
    MAX_SCHEMA_BYTES,
    arguments_schema,
    check_schema,
    enforced,
    normalise,
    refusal,
)


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


# -- what llguidance would not survive, or would not take as a whole ---------------------------------------------------

PLAIN = {"type": "integer", "minimum": 3}


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]}, {"multipleOf"}),
        ({"allOf": [{"$ref": "#/$defs/p"}, {"multipleOf": 991}], "type": "integer"}, {"multipleOf"}),
        (
            {"type": "object", "patternProperties": {"^a": {}, "b$": {}}, "additionalProperties": False},
            {"patternProperties", "additionalProperties"},
        ),
        ({"allOf": [{"anyOf": [obj(**{f"a{i}": {}}), obj(**{f"b{i}": {}})]} for i in range(14)]}, {"allOf"}),
        ({"type": "integer", "minimum": 5, "maximum": 3}, {"*"}),
        (obj(z={"enum": []}), {"*"}),
    ],
)
def test_one_schema_that_does_not_compile_costs_its_neighbours_nothing(schema: Any, left_out: set[str]) -> None:
    """Regressions: two coprime divisors took minutes and gigabytes; a pattern of one key loosened the whole tool."""
    whole = {**obj(odd=schema, plain=PLAIN), "$defs": {"p": {"multipleOf": 997}}}
    part = enforced(whole)
    assert {entry.keyword for entry in part.left_out} == left_out
    assert all(entry.pointer.startswith(("/properties/odd", "/$defs/p")) and entry.why for entry in part.left_out)
    findings = {(f.pointer, f.keyword): f.status for f in schema_report(whole)}
    assert findings["/properties/plain", "minimum"] == findings["", "required"] == "enforced"
    grammar = Grammar.json_schema(part.schema)
    assert not grammar.accepts('{"odd": 5, "plain": 2}') and not grammar.accepts('{"odd": 5}')


def test_deep_nesting_is_enforced_as_far_as_the_grammar_can_be_read() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(70):
        schema = obj(a=schema)
    part = enforced(schema)
    assert [keyword for _, keyword, _ in part.left_out] == ["*"]
    grammar, value = Grammar.json_schema(part.schema), '"x"'
    for _ in range(70):
        value = f'{{"a": {value}}}'
    assert grammar.accepts(value) and not grammar.accepts('{"a": 1}')
    assert {f.status for f in schema_report(schema) if f.pointer.count("/") > 120} == {"validated"}


def test_what_stands_in_unusual_places_is_rewritten_too() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/components/schemas/A"}},
        "required": ["a"],
        "components": {"schemas": {"A": {"type": "string", "nullable": True, "pattern": r"^\W$"}}},
    }
    grammar = Grammar.json_schema(enforced(schema).schema)
    assert grammar.accepts('{"a": null}') and grammar.accepts('{"a": "-"}') and not grammar.accepts('{"a": "é"}')


# -- patterns and formats: what the grammar writes, a validator takes -------------------------------------------------

ATOMS = st.sampled_from([
    "a", "b", "é", "日", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[a-c]", "[^a-c]", r"[^\w]", r"[\W_]", r"[^\D]",
    r"[\s\S]", "[&&~~[]", r"[^\s]", r"\.", r"\/", r"\x41", r"\u00e9", r"\p{Lu}", r"\P{L}", r"[^\p{L}]", r"[\P{L}x]",
    r"\P{P}", r'[^"]', r'[^"\\]', r"[^\\]", r"[\x00-!]", r"[\x00-\x21#-é]", "(?:ab|c)", "(x)", "-", "#", " ",
])  # fmt: skip
PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,2}", "*?"])), max_size=4).map(
    lambda parts: "".join(atom + quantifier for atom, quantifier in parts)
)


@given(PATTERNS, st.sampled_from(["{}", "^{}$", "^{}", "(?i)^{}$", "^(?:{}|z)$"]), st.integers(0, 2**32))
def test_a_text_that_the_grammar_lets_through_matches_the_pattern(pattern: str, frame: str, seed: int) -> None:
    whole = frame.format(pattern)
    part = enforced({"type": "string", "pattern": whole})
    if part.left_out:
        return
    text = random_text(Grammar.json_schema(part.schema), seed)
    assert regex.search(whole, json.loads(text)), (whole, part.schema, text)


@pytest.mark.parametrize("name", sorted(ENFORCED_FORMATS))
@given(seed=st.integers(0, 2**32))
def test_a_text_that_the_grammar_lets_through_has_the_format(name: str, seed: int) -> None:
    text = random_text(Grammar.json_schema(normalise({"type": "string", "format": name})), seed)
    assert jsonschema.Draft202012Validator.FORMAT_CHECKER.conforms(json.loads(text), name), text


def random_text(grammar: Grammar, seed: int) -> str:
    """A text of the grammar, chosen byte by byte, that closes when it has grown."""
    rng = random.Random(seed)
    matcher, written = compile_matcher(_byte_tokenizer(()), grammar.source({})), bytearray()
    while not matcher.is_accepting():
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = [byte for byte in np.flatnonzero(bits).tolist() if byte < 256]
        few = [byte for byte in allowed if byte < 128] or allowed
        quote = ord('"') in allowed and len(written) > 12
        byte = ord('"') if quote else rng.choice(few if rng.random() < 0.7 else allowed)
        if ord("\\") in allowed and rng.random() < 0.2:
            byte = ord("\\")
        matcher.consume_token(byte)
        written.append(byte)
        assume(len(written) < 500)  # it could not be closed by chance
    return written.decode("utf-8")
