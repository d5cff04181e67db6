"""Schemas of forty functions, beside those that pydantic and the mcp SDK make of the same ones. Where they differ, it
is listed here with its reason (and told in docs/schemas.md); a new difference is a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from forty_functions import FORTY
from jsonschema import Draft202012Validator
from laploop.tools import schema_from_function
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

# Of all functions. Titles ("A" for a) say nothing, and a CPU reads 40 tokens a second; a default of null is what
# leaving out means anyway; `required` is always there; only pydantic and we refuse unknown arguments, so that a model
# that made one up is told. Of one function:
DIFFERENCES = {
    "f31": "format: path is no format of JSON Schema: it is left out (and the parameter is strict)",
    "f34": "a plain string in Annotated is a description: the others take it for nothing",
    "f37": "*args and **kwargs cannot be named by a model: pydantic refuses the function, mcp asks for both",
    "f40": "what a partial has fixed is not the model's: pydantic shows it with its value, mcp refuses partials",
}


def bare(schema: Any, *, root: bool = True) -> Any:
    """A schema without what is decided for all functions (see above)."""
    if isinstance(schema, list):
        return [bare(item, root=False) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties" or key == "$defs":
            kept[key] = {name: bare(item, root=False) for name, item in value.items()}
        elif key == "title" or (key == "default" and value is None) or (root and key == "additionalProperties"):
            continue
        elif key == "required":
            if value:
                kept[key] = sorted(value)
        else:
            kept[key] = bare(value, root=False)
    return kept


def of_pydantic(function: Callable[..., Any]) -> dict[str, Any]:
    return TypeAdapter(function).json_schema()


def of_mcp(function: Callable[..., Any]) -> dict[str, Any]:
    metadata = pytest.importorskip("mcp.server.mcpserver.utilities.func_metadata")
    schema: dict[str, Any] = metadata.func_metadata(function).arg_model.model_json_schema(by_alias=True)
    return schema


@pytest.mark.parametrize("name", FORTY)
@pytest.mark.parametrize("other", [of_pydantic, of_mcp])
def test_the_schema_is_theirs_but_for_what_is_listed(name: str, other: Callable[..., dict[str, Any]]) -> None:
    ours = schema_from_function(FORTY[name])["parameters"]
    Draft202012Validator.check_schema(ours)
    assert ours["additionalProperties"] is False and next(iter(ours["properties"])) == "a"
    try:
        theirs = other(FORTY[name])
    except (PydanticInvalidForJsonSchema, AttributeError):
        assert name in DIFFERENCES
        return
    if other is of_pydantic:
        assert theirs["additionalProperties"] is False
    assert (bare(ours) == bare(theirs)) is (name not in DIFFERENCES), (ours, theirs)


def test_the_listed_differences_are_these() -> None:
    assert "format" not in schema_from_function(FORTY["f31"])["parameters"]["properties"]["a"]
    assert schema_from_function(FORTY["f34"])["parameters"]["properties"]["a"]["description"] == "A city, e.g. Paris"
    assert list(schema_from_function(FORTY["f37"])["parameters"]["properties"]) == ["a"]
    assert list(schema_from_function(FORTY["f40"])["parameters"]["properties"]) == ["a", "n"]
    assert "secret" not in str(schema_from_function(FORTY["f40"]))
