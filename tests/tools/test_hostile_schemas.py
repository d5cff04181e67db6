"""Schemas that would hang, crash or flood: refused where the tool is made, or survived where a model's text meets
them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from laploop.tools import SchemaError, Tool

CATASTROPHE = "^(a|aa)+$"  # Python's re: each further character makes it 1.6 times as long
LONG = "a" * 80 + "!"


def nested(n_levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(n_levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def make(schema: dict[str, Any]) -> Tool:
    return Tool("f", "d", {"type": "object", **schema}, lambda **given: sorted(given))


def a(schema: Any, **more: Any) -> dict[str, Any]:
    return {"properties": {"a": schema}, **more}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#"}, "parameters/$ref: '#' leads back"),
        ({"allOf": [{"$ref": "#"}]}, "parameters/allOf/0/$ref: '#' leads back"),
        ({"anyOf": [{"$ref": "#"}, {"type": "object"}]}, "leads back to itself"),
        (a({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"$ref": "#/$defs/x"}}}), "/$defs/x/$ref: '#/$defs/x' leads back"),
        (
            a({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"not": {"$ref": "#/$defs/x"}}}}),
            "leads back to itself",
        ),
        (nested(3000), "nested too deeply"),
        (a({"enum": ["\ud800"]}), "half a surrogate pair"),
        (a({"pattern": "("}), "parameters/properties/a/pattern: '(' is no regular expression"),
        ({"patternProperties": {"[": {}}}, "parameters/patternProperties: '[' is no regular expression"),
        (a({"$ref": "other.json"}), "'other.json' points outside"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_where_the_tool_is_made(schema: dict[str, Any], message: str) -> None:
    """They were taken: each call then answered "nested too deeply" whatever its arguments, or a bare RecursionError,
    re.error or UnicodeEncodeError came up, here or in the middle of a call."""
    with pytest.raises(SchemaError, match=re.escape(message)):
        make(schema)


@pytest.mark.parametrize(
    "schema",
    [
        a({"$ref": "#"}),
        a({"type": "array", "items": {"$ref": "#/properties/a"}}),
        a({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": {"anyOf": [{"type": "null"}, a({"$ref": "#/$defs/tree"})]}}}),
        a({"$ref": "#/$defs/x"}, b={"$ref": "#/$defs/x"}, **{"$defs": {"x": {"type": ["null", "array", "object"]}}}),
    ],
    ids=["root", "items", "tree", "twice"],
)
def test_references_that_go_one_level_down_each_time_are_recursion_as_it_should_be(schema: dict[str, Any]) -> None:
    tool = make(schema)
    assert tool.invoke("{}").value == []
    assert tool.invoke('{"a": []}').is_error == (schema == a({"$ref": "#"}))


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (a({"type": "string", "pattern": CATASTROPHE}), {"a": LONG}),
        ({"patternProperties": {CATASTROPHE: {"type": "integer"}}}, {LONG: 1}),
        ({"patternProperties": {CATASTROPHE: {}}, "additionalProperties": False}, {LONG: 1}),
    ],
    ids=["pattern", "patternProperties", "additionalProperties"],
)
def test_a_pattern_that_takes_for_ever_is_given_up(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """It hung the whole process: Python's `re` holds the interpreter's lock, so that not even Ctrl-C came through."""
    result = make(schema).invoke(arguments)
    assert result.is_error
    if "properties" in schema:
        assert result.content.startswith('f: /a: expected a text that can be compared with the pattern "^(a|aa)+$"')


def test_properties_by_pattern_are_judged_as_the_standard_says() -> None:
    tool = make(
        {
            "properties": {"a": {}},
            "patternProperties": {"^x": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        }
    )
    assert tool.invoke('{"a": "s", "x1": 1, "z": true}').value == ["a", "x1", "z"]
    assert tool.invoke('{"x1": null}').content.startswith("f: /x1: expected integer")
    assert tool.invoke('{"z": null}').content.startswith("f: /z: expected boolean")


def test_named_classes_of_characters_are_taken() -> None:
    """ECMA-262, JSON Schema's dialect, has them; every call ended in re.error: bad escape."""
    tool = make(a({"type": "string", "pattern": r"^\p{L}+$"}))
    assert tool.invoke('{"a": "京ä"}').value == ["a"] and tool.invoke('{"a": "1"}').is_error


@pytest.mark.parametrize("keyword", ["multipleOf", "maximum"])
def test_a_number_beyond_floating_point_is_an_error_with_words(keyword: str) -> None:
    """multipleOf ended in "OverflowError: int too large to convert to float"."""
    result = make(a({"type": "number", keyword: 0.5})).invoke('{"a": ' + "9" * 400 + "}")
    assert result.is_error and result.content.startswith("f: ") and len(result.content) < 300


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": [f"value-{i}" for i in range(3000)]}, ['"value-2998"', '"value-0"', "2980 others"]),
        ({"anyOf": [{"const": i} for i in range(300)]}, ["0 or 1 or", "one of 280 others"]),
        ({"type": "integer", "minimum": 10**400}, ["received"]),
        ({"enum": []}, ["nothing", "allows no value"]),
    ],
    ids=["enum", "anyOf", "minimum", "empty"],
)
def test_a_fault_is_told_in_few_words(schema: dict[str, Any], words: list[str]) -> None:
    """All 3,000 values were listed: 45 kilobytes, more than a small model's context. The nearest come first."""
    given = "10" if "minimum" in schema else '"value-29980"'
    result = make(a(schema)).invoke('{"a": ' + given + "}")
    assert result.is_error and len(result.content) < 1000
    assert [word for word in words if word not in result.content] == []


def test_unknown_arguments_of_a_tool_with_many() -> None:
    properties = {f"p{i}": {} for i in range(500)}
    result = make({"properties": properties, "additionalProperties": False}).invoke('{"q": 1}')
    assert "unknown argument 'q'; allowed: p0, p1" in result.content and "480 others" in result.content


def test_a_schema_that_doubles_at_each_step_is_given_up_at_the_deadline() -> None:
    """Regression: the deadline held for the function only, not for the check of its arguments, which took for ever."""
    # 2**17 steps: seconds, and then the abandoned thread ends and does not disturb other tests
    steps = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(17)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**steps, "d17": {}}}
    tool = Tool("f", "d", schema, lambda **given: given, timeout_s=0.2)
    assert tool.invoke('{"a": 1}').content.startswith("f: timed out after 0.2 s")
