"""Argument text becomes checked values: strict JSON, repair, lossless conversion, messages to act on."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import ArgumentsError, parse_arguments


def object_schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "name"},
        "days": {"type": "integer", "maximum": 9},
    },
    "required": ["city"],
    "additionalProperties": False,
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TYPES: dict[str, Any] = {
    "string": st.text(),
    "integer": st.integers(),
    "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(json_values, max_size=3),
    "object": st.dictionaries(st.text(), json_values, max_size=3),
}


@given(st.data())
def test_law_valid_values_pass_unchanged(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    value = data.draw(st.one_of([TYPES[kind] for kind in kinds]))
    for schema in ({"type": kinds}, {"anyOf": [{"type": kind} for kind in kinds]}):
        parsed = parse_arguments(json.dumps({"x": value}), object_schema(x=schema))
        assert json.dumps(parsed.value) == json.dumps({"x": value})  # JSON text: 1, 1.0 and True differ
        assert parsed.notes == ()


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_law_conversion_is_the_inverse_of_printing(number: int, ratio: float, flag: bool) -> None:
    schema = object_schema(i={"type": "integer"}, f={"type": "number"}, b={"type": "boolean"}, s={"type": "string"})
    given_ = {"i": str(number), "f": json.dumps(ratio), "b": json.dumps(flag), "s": number}
    parsed = parse_arguments(json.dumps(given_), schema)
    assert json.dumps(parsed.value) == json.dumps({"i": number, "f": ratio, "b": flag, "s": str(number)})
    assert len(parsed.notes) == 4


@given(st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_law_converted_numbers_keep_their_exact_value(text: str) -> None:
    try:
        parsed = parse_arguments(json.dumps({"x": text}), object_schema(x={"type": "number"}))
    except ArgumentsError:
        return
    value = parsed.value["x"]
    assert Decimal(repr(value)) == Decimal(text)


@given(json_values)
def test_law_any_json_inside_a_string_converts_to_itself(value: Any) -> None:
    schema = object_schema(x={"type": ["array", "object"]})
    if isinstance(value, (list, dict)):
        assert parse_arguments(json.dumps({"x": json.dumps(value)}), schema).value == {"x": value}


@given(st.text() | json_values.map(json.dumps))
def test_law_any_text_gives_a_valid_object_or_an_arguments_error(text: str) -> None:
    try:
        value = parse_arguments(text, WEATHER).value
    except ArgumentsError as error:
        assert error.problems
    else:
        assert isinstance(value["city"], str)


@pytest.mark.parametrize(
    ("given_", "schema", "expected"),
    [
        ("28", {"type": "integer"}, 28),
        (" 28 ", {"type": "integer"}, 28),
        ("28.0", {"type": "integer"}, 28),
        ("3.5", {"type": "number"}, 3.5),
        ("28", {"type": "number"}, 28),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("null", {"type": ["integer", "null"]}, None),
        ('["a"]', {"type": "array", "items": {"type": "string"}}, ["a"]),
        ('["1", 2]', {"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ('{"a": "1"}', {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ([{"n": "4"}], {"type": "array", "items": {"$ref": "#/$defs/N"}}, [{"n": 4}]),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("2", {"enum": [1, 2, 3]}, 2),
        (90210, {"type": "string"}, "90210"),
        (["1", "x"], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "x"]),
        ({"k": "7"}, {"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 7}),
    ],
)
def test_conversion(given_: Any, schema: dict[str, Any], expected: Any) -> None:
    whole = {
        **object_schema(x=schema),
        "$defs": {"N": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    parsed = parse_arguments(json.dumps({"x": given_}), whole)
    assert json.dumps(parsed.value["x"]) == json.dumps(expected)
    assert len(parsed.notes) >= 1 and "/x" in parsed.notes[0]


@pytest.mark.parametrize(
    ("given_", "schema"),
    [
        ("028", {"type": "integer"}),
        ("28 days", {"type": "integer"}),
        ("3.5", {"type": "integer"}),
        ("1e999", {"type": "number"}),
        ("0.1000000000000000055511151231257827", {"type": "number"}),
        ("١", {"type": "integer"}),
        ("yes", {"type": "boolean"}),
        ("1", {"type": "boolean"}),
        (1, {"type": "boolean"}),
        (True, {"type": "string"}),
        (True, {"type": "integer"}),
        ("dataset", {"type": "array"}),
        ("['a']", {"type": "array"}),
        ('["a"]', {"type": "object"}),
        ("1", {"anyOf": [{"type": "integer"}, {"type": "array"}], "not": {"const": 1}}),
        ("NaN", {"type": "number"}),
    ],
)
def test_what_is_not_certain_is_refused(given_: Any, schema: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsError):
        parse_arguments(json.dumps({"x": given_}), object_schema(x=schema))


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Rome",}',
        "{'city': 'Rome'}",
        '{"city": "Rome"',
        'Sure: {"city": "Rome"}',
        '```json\n{"city": "Rome"}\n```',
        '{city: "Rome"}',
    ],
)
def test_broken_json_is_repaired_and_reported(text: str) -> None:
    parsed = parse_arguments(text, WEATHER)
    assert parsed.value == {"city": "Rome"}
    assert "repaired" in parsed.notes[0]


def test_strict_parameters_are_neither_repaired_nor_converted() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
    strict = frozenset({"path"})
    for text in ('{"path": "a",}', "{'path': '/tmp'}", '{"path": "/etc/pass', json.dumps('{"path": "a"}')):
        with pytest.raises(ArgumentsError):
            parse_arguments(text, schema, strict)
    with pytest.raises(ArgumentsError, match="/path"):
        parse_arguments('{"path": 7}', schema, strict)
    assert parse_arguments('{"path": "a", "n": "7"}', schema, strict).value == {"path": "a", "n": 7}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"city": "a", "city": "b"}', "'city' stands twice"),
        ('{"city": "a", "days": NaN}', "NaN"),
        ('{"city": "a", "days": -Infinity}', "Infinity"),
        ('{"city": "a", "days": 1e999}', "too large"),
        ('["Rome"]', "one JSON object"),
        ('"Rome"', "one JSON object"),
        ("hello there", "not valid JSON"),
        ("[" * 100_000, "not"),
    ],
)
def test_refused_texts(text: str, said: str) -> None:
    with pytest.raises(ArgumentsError, match=said):
        parse_arguments(text, WEATHER)


def test_empty_arguments_are_an_empty_object() -> None:
    for text in ("", "  \n", "null", "{}"):
        assert parse_arguments(text, {"type": "object", "properties": {}, "additionalProperties": False}).value == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"town": "Rome"},
            ["unknown argument 'town'; allowed: city, days", "missing argument 'city' (string: name)"],
        ),
        ({"city": "Rome", "days": "many"}, ['/days: expected integer, received string "many"']),
        ({"city": None}, ["/city: expected string, received null"]),
        ({"city": "Rome", "days": 12}, ["/days: expected a number of at most 9, received integer 12"]),
    ],
)
def test_messages_say_place_expected_and_received(arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments(arguments, WEATHER)
    assert list(caught.value.problems) == said


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"enum": ["tea", "coffee"]}, "milk", '/x: expected one of "tea", "coffee", received string "milk"'),
        ({"const": 1}, 2, "/x: expected 1, received integer 2"),
        ({"type": "string", "pattern": "^a$"}, "b", "/x: expected a string that matches the pattern ^a$"),
        ({"type": "string", "format": "email"}, "b", "/x: expected a string in the format email"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "b", "/x: expected integer or null"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "/x: expected an array without repeated items"),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, "/x: unknown key 'a'; allowed: none"),
        ({"type": "object", "required": ["k"]}, {}, "/x: missing key 'k'"),
        (
            {"type": "array", "items": {"type": "integer"}},
            [1, "q"],
            '/x/1: expected integer, received string "q"',
        ),
        (False, 1, "expected nothing here (leave it out)"),
        ({"$ref": "#/$defs/none"}, 1, "leads nowhere"),
        ({"not": {"const": 1}}, 1, '/x: expected a value that meets not {"const": 1}'),
    ],
)
def test_every_keyword_has_a_sentence(schema: Any, value: Any, said: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments({"x": value}, {"type": "object", "properties": {"x": schema}})
    assert said in str(caught.value)


def test_many_faults_are_counted_not_listed() -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments({f"wrong{n}": 1 for n in range(20)}, WEATHER)
    assert len(caught.value.problems) == 6 and "more" in caught.value.problems[-1]


def test_the_given_object_is_not_changed() -> None:
    given_ = {"city": "Rome", "days": "3"}
    parsed = parse_arguments(given_, WEATHER)
    assert given_ == {"city": "Rome", "days": "3"} and parsed.value["days"] == 3


@pytest.mark.parametrize("arguments", [None, 3, ["a"], b"{}"])
def test_what_is_neither_text_nor_an_object_is_named(arguments: Any) -> None:
    """Regression: it was "'NoneType' object has no attribute 'strip'"."""
    with pytest.raises(ArgumentsError, match="JSON text or an object, received"):
        parse_arguments(arguments, WEATHER)
