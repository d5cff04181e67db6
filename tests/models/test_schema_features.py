"""Every keyword of JSON Schema that docs/schemas.md names: what the grammar enforces, what only validation finds."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine import Grammar
from laploop.models import ScriptedModel, schema_report, tool_grammar
from laploop.models.schemas.schema import enforced
from laploop.tools import Tool, ToolError
from laploop.tools.validator import validator_of

Schema = dict[str, Any]
STRING, INTEGER, NUMBER, OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "object"}
A_AND_B: Schema = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, "additionalProperties": False}
NODE: Schema = {
    "type": "object",
    "properties": {"v": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
    "additionalProperties": False,
}
KINDS = [{**A_AND_B, "properties": {"kind": {"const": kind}, "n": INTEGER}, "required": ["kind", "n"]} for kind in "xy"]

# feature: (schema of one value, values that fit, values that do not); $defs are the tool's.
ENFORCED: dict[str, tuple[Schema, list[Any], list[Any]]] = {
    "type": (INTEGER, [1, -5, 0], ["1", 1.5, True, None]),
    "types": ({"type": ["integer", "null"]}, [1, None], ["1", 1.5, True]),
    "enum": ({"enum": ["a", 1, None, 2.5, [1], {"k": "é"}]}, ["a", 1, None, 2.5, [1], {"k": "é"}], ["b", 2, [2]]),
    "const": ({"const": {"a": ["x"]}}, [{"a": ["x"]}], [{"a": []}, "a"]),
    "$ref": ({"$ref": "#/$defs/word"}, ["one"], [1, "two words"]),
    "$ref with siblings": ({"$ref": "#/$defs/small", "minimum": 3}, [3, 9], [2, 10]),
    "recursion": ({"$ref": "#/$defs/node"}, [{"v": 1, "next": {"v": 2, "next": None}}], [{"v": 1, "next": {"v": 2}}]),
    "$anchor": ({"$ref": "#named"}, [True], [1]),
    "pattern": ({**STRING, "pattern": r"\d-\w"}, ["1-a", "x 1-a y"], ["1", "a-1", "٣-a", "1-é"]),
    "pattern, anchored": ({**STRING, "pattern": "^a|b$"}, ["ax", "xb"], ["xa", "bx"]),
    "pattern (?i)": ({**STRING, "pattern": "(?i)^yes$"}, ["yes", "YeS"], ["no"]),
    "pattern \\p{L}": ({**STRING, "pattern": r"^\p{L}+$"}, ["Grüße", "京"], ["a1", ""]),
    "pattern [[&&]": ({**STRING, "pattern": r"^[[a&&b~~]+$"}, ["[&~", "ab"], ["c"]),
    "pattern \\u": ({**STRING, "pattern": r"^\u00e9\x41\/$"}, ["éA/"], ["eA/"]),
    "minLength": ({**STRING, "minLength": 2}, ["ab", "日本"], ["", "a", "日"]),
    "maxLength": ({**STRING, "maxLength": 2}, ["", "ab", "日本"], ["abc", "日本語"]),
    "minimum": ({**INTEGER, "minimum": 3}, [3, 100], [2, -3]),
    "maximum": ({**NUMBER, "maximum": 2.5}, [2.5, -100], [2.6, 3]),
    "exclusiveMinimum": ({**NUMBER, "exclusiveMinimum": 0}, [0.1, 5], [0, -1]),
    "exclusiveMaximum": ({**INTEGER, "exclusiveMaximum": 3}, [2, -7], [3, 4]),
    "multipleOf": ({**INTEGER, "multipleOf": 7}, [0, 7, -14], [1, 15]),
    "multipleOf, a fraction": ({**NUMBER, "multipleOf": 0.25}, [0.25, 3, 1.5], [0.3, 0.1]),
    "multipleOf, cents": ({**NUMBER, "multipleOf": 0.01, "minimum": 0}, [0.25, 3, 1.5], [0.001, -1]),
    "items": ({"type": "array", "items": INTEGER}, [[], [1, 2]], [["a"], [1, "a"]]),
    "prefixItems": (
        {"type": "array", "prefixItems": [STRING, INTEGER], "items": False}, [["a", 1]], [[1], ["a", 1, 2]]
    ),
    "minItems": ({"type": "array", "items": INTEGER, "minItems": 2}, [[1, 2]], [[], [1]]),
    "maxItems": ({"type": "array", "items": INTEGER, "maxItems": 1}, [[], [1]], [[1, 2]]),
    "properties": ({**A_AND_B}, [{"a": 1}, {"a": 1, "b": "x"}], [{"a": "1"}, {"b": 2}]),
    "required": ({**A_AND_B, "required": ["b"]}, [{"b": "x"}, {"a": 1, "b": "x"}], [{}, {"a": 1}]),
    "additionalProperties: false": (A_AND_B, [{}], [{"c": 1}]),
    "additionalProperties": ({**OBJECT, "additionalProperties": INTEGER}, [{"x": 1, "y": 2}], [{"x": "1"}]),
    "patternProperties": (
        {**OBJECT, "patternProperties": {"^i_": INTEGER, "^s_": STRING}, "additionalProperties": False},
        [{"i_a": 1, "s_a": "x"}],
        [{"i_a": "1"}, {"x": 1}],
    ),
    "minProperties of a map": ({**OBJECT, "additionalProperties": INTEGER, "minProperties": 1}, [{"a": 1}], [{}]),
    "maxProperties of a map": ({**OBJECT, "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 1}]),
    "anyOf": ({"anyOf": [INTEGER, {"type": "null"}]}, [1, None], ["1", 1.5]),
    "allOf with siblings": ({**INTEGER, "allOf": [{"minimum": 3}, {"maximum": 5}]}, [3, 5], [2, 6, "4"]),
    "oneOf, disjoint": ({"oneOf": KINDS}, [{"kind": "x", "n": 1}, {"kind": "y", "n": 2}], [{"kind": "z", "n": 1}, {}]),
    "format date": ({**STRING, "format": "date"}, ["2024-02-29"], ["2023-02-29", "0000-01-01", "today"]),
    "format time": ({**STRING, "format": "time"}, ["10:00:00Z"], ["25:00:00Z", "10:00"]),
    "format date-time": ({**STRING, "format": "date-time"}, ["2024-02-29T10:00:00+01:00"], ["2024-02-29", "now"]),
    "format duration": ({**STRING, "format": "duration"}, ["P3DT4H", "P2W"], ["3 days"]),
    "format email": ({**STRING, "format": "email"}, ["a@b.example"], ["a b"]),
    "format hostname": ({**STRING, "format": "hostname"}, ["www.example.org"], ["-x-", "a b"]),
    "format ipv4": ({**STRING, "format": "ipv4"}, ["127.0.0.1"], ["127.0.0.256", "::1"]),
    "format ipv6": ({**STRING, "format": "ipv6"}, ["::1", "fe80::a"], ["127.0.0.1"]),
    "format uuid": ({**STRING, "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
    "format uri": ({**STRING, "format": "uri"}, ["https://example.org/a?b=c#d"], ["no uri"]),
    "format beside a pattern": ({**STRING, "format": "date", "pattern": "^2024"}, ["2024-01-01"], ["2023-01-01"]),
}  # fmt: skip
DEFINITIONS: Schema = {
    "word": {"type": "string", "pattern": "^[a-z]+$"},
    "small": {"type": "integer", "maximum": 9},
    "flag": {"$anchor": "named", "type": "boolean"},
    "node": NODE,
}
TWO_KEYS = {**OBJECT, "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER}, "additionalProperties": False}
# feature: (schema of one value, the keywords that are not enforced, values that fit, values only validation refuses,
# values that the grammar refuses all the same)
VALIDATED: dict[str, tuple[Schema, set[str], list[Any], list[Any], list[Any]]] = {
    "not": ({**INTEGER, "not": {"const": 1}}, {"not"}, [2], [1], ["x"]),
    "oneOf, overlapping": (
        {"oneOf": [{**INTEGER, "minimum": 0}, {**INTEGER, "maximum": 9}]}, {"oneOf"}, [-1, 10], [5], ["x"]
    ),
    "if": (
        {**INTEGER, "if": {"minimum": 3}, "then": {"maximum": 5}, "else": {"maximum": 1}}, {"if", "then", "else"},
        [4, 0], [9, 2], ["x"],
    ),
    "contains": ({"type": "array", "items": INTEGER, "contains": {"const": 1}}, {"contains"}, [[1]], [[2]], [["x"]]),
    "minContains": (
        {"type": "array", "items": INTEGER, "contains": {"const": 1}, "minContains": 2, "maxContains": 3},
        {"contains", "minContains", "maxContains"}, [[1, 1]], [[1]], [["x"]],
    ),
    "uniqueItems": (
        {"type": "array", "items": INTEGER, "uniqueItems": True}, {"uniqueItems"}, [[1]], [[1, 1]], [["x"]]
    ),
    "propertyNames": ({**OBJECT, "propertyNames": {"pattern": "^a"}}, {"propertyNames"}, [{"a": 1}], [{"b": 1}], ["x"]),
    "dependentRequired": (
        {**TWO_KEYS, "dependentRequired": {"a": ["b"]}}, {"dependentRequired"}, [{"a": 1, "b": 1}], [{"a": 1}],
        [{"a": "x"}],
    ),
    "dependentSchemas": (
        {**TWO_KEYS, "dependentSchemas": {"a": {"required": ["b"]}}}, {"dependentSchemas"}, [{"a": 1, "b": 1}],
        [{"a": 1}], [{"a": "x"}],
    ),
    "unevaluatedProperties": (
        {**OBJECT, "properties": {"a": INTEGER}, "unevaluatedProperties": False}, {"unevaluatedProperties"},
        [{"a": 1}], [{"b": 1}], [{"a": "x"}],
    ),
    "unevaluatedItems": (
        {"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False}, {"unevaluatedItems"}, [[1]], [[1, 2]],
        [["x"]],
    ),
    "$dynamicRef": ({**OBJECT, "properties": {"a": {"$dynamicRef": "#dynamic"}}}, {"$dynamicRef"}, [{"a": 1}],
        [{"a": "x"}], ["x"]),
    "remote $ref": (
        {**OBJECT, "properties": {"a": {"$ref": "https://example.org/s"}, "b": INTEGER}, "required": ["b"]}, {"$ref"},
        [], [{"a": 1, "b": 2}], [{"b": "x"}],
    ),
    "look-ahead": ({**STRING, "pattern": "^(?=x)"}, {"pattern"}, ["xy"], ["y"], [1]),
    "look-behind": ({**STRING, "pattern": "(?<!a)b$"}, {"pattern"}, ["cb"], ["ab"], [1]),
    "\\b": ({**STRING, "pattern": r"\bcat\b"}, {"pattern"}, ["a cat"], ["concat"], [1]),
    "back-reference": ({**STRING, "pattern": r"^(a|b)\1$"}, {"pattern"}, ["aa"], ["ab"], [1]),
    "possessive": ({**STRING, "pattern": "^a++b$"}, {"pattern"}, ["aab"], ["c"], [1]),
    "patternProperties, overlapping": (
        {**OBJECT, "patternProperties": {"^a": INTEGER, "b$": {"minimum": 3}}}, {"patternProperties"}, [{"ab": 3}],
        [{"ab": 1}], ["x"],
    ),
    "minProperties with optional keys": ({**TWO_KEYS, "minProperties": 2}, {"minProperties"}, [{"a": 1, "b": 1}],
        [{"a": 1}], [{"a": "x"}]),
    "format json-pointer": ({**STRING, "format": "json-pointer"}, {"format"}, ["/a"], ["a"], [1]),
    "format regex": ({**STRING, "format": "regex"}, {"format"}, ["a+"], ["("], [1]),
    "format idn-hostname": ({**STRING, "format": "idn-hostname"}, {"format"}, ["例え.example"], ["a b"], [1]),
    "multipleOf, large": ({**INTEGER, "multipleOf": 1_000_003}, {"multipleOf"}, [0, 1_000_003], [5], ["x"]),
    "multipleOf, several": (
        {"allOf": [{**INTEGER, "multipleOf": 991}, {"multipleOf": 997}]}, {"multipleOf"}, [0, 988_027], [991], ["x"]
    ),
    "a limit that the engine takes": (
        {**NUMBER, "exclusiveMinimum": 1, "maximum": 1.5}, {"exclusiveMinimum"}, [1.25], [1], [0, 2]
    ),
    "pattern and length": (
        {**STRING, "pattern": "(?i)^(foo|bar|baz)+$", "minLength": 100, "maxLength": 5000}, {"minLength"}, ["foo" * 40],
        ["foo"], ["x" * 200],
    ),
}  # fmt: skip
DYNAMIC = {"dynamic": {"$dynamicAnchor": "dynamic", "type": "integer"}}


def parameters(schema: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "additionalProperties": False,
        "$defs": DEFINITIONS | DYNAMIC,
    }


def offered(schema: Schema) -> list[Schema]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters(schema)}}]


def written(value: Any) -> str:
    call = json.dumps({"name": "f", "arguments": {"v": value}}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def invoked(schema: Schema, value: Any) -> Any:
    """The result of a tool that is called with this value."""
    return Tool("f", "Takes a value. Returns nothing.", parameters(schema), lambda v: "done").invoke({"v": value})


@pytest.mark.parametrize("feature", ENFORCED)
def test_what_is_enforced_is_accepted_and_rejected_by_the_grammar_itself(feature: str) -> None:
    schema, good, bad = ENFORCED[feature]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = tool_grammar(offered(schema), "required")
    assert [value for value in good if not grammar.accepts(written(value))] == []
    assert [value for value in bad if grammar.accepts(written(value))] == []
    assert [value for value in good if invoked(schema, value).is_error] == []
    assert {finding.status for finding in schema_report(parameters(schema))} == {"enforced"}


@pytest.mark.parametrize("feature", VALIDATED)
def test_what_is_not_enforced_is_said_so_and_found_by_validation(feature: str) -> None:
    schema, keywords, good, wrong, refused = VALIDATED[feature]
    if "format" in keywords:  # nothing is enforced, nothing is lost: the warning would say no more than the report
        grammar = tool_grammar(offered(schema), "required")
    else:
        part = enforced(parameters(schema))
        assert {keyword for _, keyword, _ in part.left_out} == keywords
        grammar = Grammar.json_schema(part.schema)
        assert grammar.accepts(json.dumps({"v": (good or wrong)[0]}, ensure_ascii=False))
        with warnings.catch_warnings():  # once for each tool and schema, whoever comes first
            warnings.simplefilter("ignore")
            grammar = tool_grammar(offered(schema), "required")
    assert [value for value in [*good, *wrong] if not grammar.accepts(written(value))] == []
    assert [value for value in refused if grammar.accepts(written(value))] == []
    report = schema_report(parameters(schema))
    later = {f.keyword for f in report if f.status == "validated" and f.pointer.startswith("/properties/v")}
    assert keywords <= later
    if feature == "remote $ref":
        with pytest.raises(ToolError, match="points outside the schema"):
            invoked(schema, wrong[0])
        return
    assert [value for value in good if invoked(schema, value).is_error] == []
    for value in wrong:
        result = invoked(schema, value)
        assert result.is_error and "f: /v" in result.content
        assert "missing key" in result.content or ("expected" in result.content and "received" in result.content)


@pytest.mark.parametrize("feature", VALIDATED)
def test_the_reply_itself_names_what_does_not_fit(feature: str) -> None:
    """Pointer, keyword, expected and received stand beside the call, which goes to its tool all the same."""
    schema, keywords, good, wrong, _ = VALIDATED[feature]
    for value in [*good, *wrong]:
        model = ScriptedModel([written(value)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            choice = model.create([{"role": "user", "content": "x"}], tools=offered(schema))["choices"][0]
        assert len(choice["message"]["tool_calls"]) == 1
        found = choice.get("schema_violations", [])
        assert bool(found) == (value in wrong)
        for fault in found:
            assert fault["id"] == choice["message"]["tool_calls"][0]["id"] and fault["name"] == "f"
            assert fault["keyword"] in {*keywords, "minimum", "maximum", "type", "required", "const", "pattern", "None"}
            assert fault["expected"] and fault["received"] and fault["message"].startswith("f: /")


IGNORED: dict[str, Schema] = {
    "discriminator": {**OBJECT, "discriminator": {"propertyName": "k"}},
    "contentMediaType": {**STRING, "contentMediaType": "application/json"},
    "contentEncoding": {**STRING, "contentEncoding": "base64", "contentSchema": {}},
    "an unknown keyword": {**STRING, "x-order": 1, "widget": "area"},
    "format of a number": {**INTEGER, "format": "int32"},
    "an unknown format": {**STRING, "format": "password"},
    "then without if": {**STRING, "then": {"const": 1}, "minContains": 2},
    "uniqueItems: false": {"type": "array", "uniqueItems": False},
}


@pytest.mark.parametrize("feature", IGNORED)
def test_what_restricts_nothing_is_neither_reported_nor_lost(feature: str) -> None:
    """No validator looks at these, so the report claims nothing of them; the type beside them is enforced."""
    schema = IGNORED[feature]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = tool_grammar(offered(schema), "required")
    assert [f.keyword for f in schema_report(schema)] == ["type"]
    value = {"string": "x", "integer": 5, "object": {"a": 1}, "array": [1, 1]}[schema["type"]]
    assert grammar.accepts(written(value)) and not invoked(schema, value).is_error
    assert not grammar.accepts(written(None)) and invoked(schema, None).is_error


def test_nullable_means_null_for_the_grammar_and_for_validation() -> None:
    """Regression: the grammar took null, and the tool refused it."""
    schema = {**STRING, "enum": ["a"], "nullable": True}
    grammar = tool_grammar(offered(schema), "required")
    assert grammar.accepts(written(None)) and grammar.accepts(written("a")) and not grammar.accepts(written("b"))
    assert not invoked(schema, None).is_error and not invoked(schema, "a").is_error and invoked(schema, "b").is_error


# -- the report against reality --------------------------------------------------------------------------------------

UNICODE = ("٣-a", "1-é")  # which \d and \w of Python's take, and those of ECMA 262 and the grammar do not
FEATURES = {name: case[0] for cases in (ENFORCED, VALIDATED) for name, case in cases.items()}
VALUES = [value for cases in (ENFORCED, VALIDATED) for case in cases.values() for part in case[1:] if isinstance(part, list) for value in part]  # fmt: skip  # noqa: E501


@given(st.sampled_from(sorted(FEATURES)), st.sampled_from(sorted(FEATURES)), st.data())
def test_what_is_reported_as_enforced_no_grammar_lets_through(first: str, second: str, data: st.DataObject) -> None:
    """Two features side by side: a value that breaks a keyword of status "enforced" is refused by the grammar, whatever
    the other feature does to it; and a valid value is taken."""
    whole = {
        "type": "object",
        "properties": {"v": FEATURES[first], "w": FEATURES[second]},
        "required": ["v", "w"],
        "additionalProperties": False,
        "$defs": DEFINITIONS | DYNAMIC,
    }
    statuses = {(f.pointer, f.keyword): f.status for f in schema_report(whole)}
    grammar = Grammar.json_schema(enforced(whole).schema)
    known = VALIDATED[first][2:4] if first in VALIDATED else ENFORCED[first][1:]
    value = {
        "v": data.draw(st.sampled_from([v for part in known for v in part])),
        "w": data.draw(st.sampled_from(VALUES)),
    }
    if "remote $ref" in (first, second):
        return
    broken = [_place(error.absolute_schema_path) for error in validator_of(whole).iter_errors(value)]
    if any(statuses.get(place) == "enforced" for place in broken):
        assert not grammar.accepts(json.dumps(value, ensure_ascii=False))
    elif not broken and value["v"] not in UNICODE and value["w"] not in UNICODE:
        assert grammar.accepts(json.dumps(value, ensure_ascii=False))


def _place(path: Any) -> tuple[str, str]:
    """Pointer and keyword of what an error is about; of what a reference leads to, the reference."""
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    end = steps.index("$ref") if "$ref" in steps else len(steps) - 1
    return "".join(f"/{step}" for step in steps[:end]), steps[end]
