"""A reference that leads nowhere makes a schema invalid; one that leads somewhere, however it is written, does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine import Grammar
from laploop.models import schema_report
from laploop.models.errors import RequestError
from laploop.models.schemas.schema import check_schema, enforced
from laploop.models.schemas.schema_refs import dangling_refs

NAME = st.text(min_size=1, max_size=8)


def found_in(schema: dict[str, Any]) -> list[tuple[str, str, str]]:
    return list(dangling_refs(schema))


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"properties": {"x": {"$ref": "#/$defs/no"}}}, "/properties/x", "$ref"),
        ({"$ref": "#/$defs/no", "$defs": {"yes": {}}}, "", "$ref"),
        ({"items": {"$ref": "#no"}}, "/items", "$ref"),
        ({"anyOf": [{}, {"$ref": "#/anyOf/2"}]}, "/anyOf/1", "$ref"),
        ({"anyOf": [{"$ref": "#/anyOf/first"}]}, "/anyOf/0", "$ref"),
        ({"required": ["a"], "not": {"$ref": "#/required/0"}}, "/not", "$ref"),
        ({"$id": "https://x.example/s", "items": {"$ref": "https://x.example/s#/$defs/no"}}, "/items", "$ref"),
        ({"$defs": {"a": {"$id": "b", "items": {"$ref": "#/$defs/a"}}}}, "/$defs/a/items", "$ref"),
        ({"properties": {"default": {"$ref": "#/no"}}}, "/properties/default", "$ref"),
        ({"properties": {"a/b": {"$dynamicRef": "#no"}}}, "/properties/a~1b", "$dynamicRef"),
        ({"x-parts": {"p": {"$ref": "#/x-parts/q"}}, "$ref": "#/x-parts/p"}, "/x-parts/p", "$ref"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_by_place_and_keyword(
    schema: dict[str, Any], pointer: str, keyword: str
) -> None:
    assert [(p, k) for p, k, _ in found_in(schema)] == [(pointer, keyword)]
    assert [tuple(f) for f in schema_report(schema)] == [(pointer, keyword, "rejected")]
    with pytest.raises(RequestError) as caught:
        check_schema(schema, "tool 'f'")
    assert str(caught.value).startswith(f"tool 'f': invalid schema at {pointer or '/'}: {keyword}: '")


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$ref": "#"}, ""),
        ({"allOf": [{"type": "object"}, {"$ref": "#"}]}, "/allOf/1"),
        ({"anyOf": [{"$ref": "#"}, {}]}, "/anyOf/0"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}, "/$defs/x"),
        ({"items": {"$ref": "#n"}, "$defs": {"x": {"$anchor": "n", "not": {"$ref": "#n"}}}}, "/$defs/x/not"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"dependentSchemas": {"k": {"$ref": "#"}}}}}, ""),
    ],
)
def test_a_reference_that_leads_back_to_its_own_place_is_refused(schema: dict[str, Any], pointer: str) -> None:
    """Regression: the matcher gave up in the middle of a call ("NoExtensionBias"), validators at every value."""
    assert (pointer, "$ref") in [(p, k) for p, k, _ in found_in(schema)]
    with pytest.raises(RequestError, match="leads back to itself"):
        check_schema(schema, "tool 'f'")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"b": {"$ref": "#"}}}}},
        {"properties": {"child": {"$ref": "#"}}},
        {"items": {"$ref": "#name"}, "$defs": {"a": {"$anchor": "name"}}},
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": True}},
        {"items": {"$ref": "#/properties/y%20z"}, "properties": {"y z": {}}},
        {"items": {"$ref": "part"}, "$defs": {"a": {"$id": "part"}}},
        {"items": {"$ref": "#/components/schemas/A"}, "components": {"schemas": {"A": {"type": "integer"}}}},
        {"items": {"$ref": "https://elsewhere.example/schema#/nothing"}},
        {"const": {"$ref": "#/$defs/no"}, "default": {"$ref": "#/no"}, "enum": [{"$ref": "#/no"}]},
        {"properties": {"$ref": {"type": "string"}}},
        {"x-example": {"$ref": "#/no"}},
    ],
)
def test_a_reference_that_is_met_or_is_none_is_accepted(schema: dict[str, Any]) -> None:
    assert found_in(schema) == []
    check_schema(schema, "tool 'f'")


@given(NAME, NAME)
def test_any_name_is_found_by_its_pointer_and_only_by_it(name: str, other: str) -> None:
    from urllib.parse import quote

    def reference(text: str) -> str:
        return "#/$defs/" + quote(text.replace("~", "~0").replace("/", "~1"), safe="~")

    found = found_in({"$defs": {name: {}}, "items": {"$ref": reference(other)}})
    assert bool(found) == (name != other)


NODE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "/properties/a"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "/items"),
        ({"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 2}, "/prefixItems/1"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1}, "/additionalProperties"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["x"]}, "/additionalProperties"),
        ({"$ref": "#/$defs/n", "$defs": {"n": NODE}}, "/$defs/n/properties/a"),
        (
            {
                "$ref": "#/$defs/n",
                "$defs": {"n": {**NODE, "properties": {"a": {"$ref": "#/$defs/m"}}}, "m": {"anyOf": [NODE, NODE]}},
            },
            "/$defs/n/properties/a",
        ),
    ],
)
def test_a_value_that_could_never_end_is_refused_by_place(schema: dict[str, Any], pointer: str) -> None:
    """Regression: compiling the first took up to 8 s and failed, and no call could have been closed."""
    report = schema_report(schema)
    assert {finding.status for finding in report} == {"rejected"}
    assert any(finding.pointer == pointer or finding.keyword == "$ref" for finding in report)
    with pytest.raises(RequestError, match="none is finite") as caught:
        check_schema(schema, "tool 'f'")
    assert "tool 'f'" in str(caught.value) and "$ref" in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},  # a number meets it
        {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}},
    ],
)
def test_a_value_that_can_end_is_not(schema: dict[str, Any]) -> None:
    check_schema(schema, "tool 'f'")
    assert {finding.status for finding in schema_report(schema)} == {"enforced"}


def test_a_part_that_could_never_end_is_never_begun() -> None:
    """An optional one: left out of the grammar, so that a model cannot go down without end."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "null"}}, "$defs": {"n": NODE}}
    grammar = Grammar.json_schema(enforced(schema).schema)
    assert grammar.accepts('{"b": null}') and not grammar.accepts('{"a": {"a": {}}}')
