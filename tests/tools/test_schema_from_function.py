"""Functions become schemas: the case file, and what the hints, docstrings and signatures of real functions
hold."""

from __future__ import annotations

import enum
import functools
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from laploop.tools import SchemaError, Tool, schema_from_function, tool
from pydantic import BaseModel, Field

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "schema-from-function.jsonl").read_text("utf-8").splitlines()
]


def is_valid(schema: dict[str, Any], value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    exec(case["input"]["function"], scope)
    made = schema_from_function(scope[case["input"]["name"]])
    schema, expected = made["parameters"], case["expected"]
    assert set(schema["required"]) == set(expected["required"])
    for accepted in expected.get("accept_args", []):
        assert is_valid(schema, accepted), accepted
    for refused in expected.get("reject_args", []):
        assert not is_valid(schema, refused), refused
    for name, text in expected.get("descriptions", {}).items():
        assert schema["properties"][name]["description"] == text
    for name, parts in expected.get("descriptions_contain", {}).items():
        assert all(part in schema["properties"][name]["description"] for part in parts)
    if "function_description" in expected:
        assert made["description"] == expected["function_description"]
    if "properties_exact" in expected:
        assert list(schema["properties"]) == expected["properties_exact"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(typing.TypedDict, total=False):
    deep: bool
    colours: list[Colour]


class Box(BaseModel):
    corner: Point
    title: str = "box"


def everything(
    point: Point,
    colour: Colour,
    options: Options,
    box: Box,
    kinds: list[Literal["a", "b"]],
    pair: tuple[int, str],
    limits: dict[str, float],
    either: int | list[str],
    *,
    many: Sequence[Options] = (),
    maybe: Point | None = None,
) -> None:
    """Everything."""


def test_rich_types_accept_and_refuse_what_they_say() -> None:
    schema = schema_from_function(everything)["parameters"]
    good: dict[str, Any] = {
        "point": {"x": 1}, "colour": "red", "options": {"deep": True, "colours": ["blue"]},
        "box": {"corner": {"x": 1, "y": 2}}, "kinds": ["a"], "pair": [1, "x"], "limits": {"low": 0.5},
        "either": ["x"], "many": [{"deep": False}], "maybe": None,
    }  # fmt: skip
    assert is_valid(schema, good)
    bad: dict[str, Any] = {
        "point": {"y": 1}, "colour": "green", "options": {"deep": "yes"}, "box": {}, "kinds": ["c"],
        "pair": [1],
        "limits": {"low": "x"}, "either": "x", "many": [{"deep": 3}], "maybe": 3,
    }  # fmt: skip
    for name, value in bad.items():
        assert not is_valid(schema, {**good, name: value}), name
    assert schema["additionalProperties"] is False
    assert "many" not in schema["required"]
    Draft202012Validator.check_schema(schema)


def test_no_titles_but_a_parameter_called_title_stays() -> None:
    def f(title: str, box: Box) -> None:
        """F."""

    schema = schema_from_function(f)["parameters"]
    assert "title" in schema["properties"]
    assert schema["$defs"]["Box"]["properties"]["title"] == {"type": "string", "default": "box"}
    assert "title" not in schema["properties"]["title"]


def test_same_named_types_share_one_definition() -> None:
    def f(a: Point, b: Point, c: list[Point]) -> None:
        """F."""

    assert list(schema_from_function(f)["parameters"]["$defs"]) == ["Point"]


def test_no_parameters_is_exactly_the_empty_object() -> None:
    def now() -> str:
        """Now."""
        return ""

    expected = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert schema_from_function(now) == {"name": "now", "description": "Now.", "parameters": expected}


@pytest.mark.parametrize(
    "docstring",
    [
        "Add.\n\nArgs:\n    a: first: the one\n    b (int): second\n\nReturns:\n    int: the sum\n",
        "Add.\n\nParameters\n----------\na : int\n    first: the one\nb : int\n    second\n\n"
        "Returns\n-------\nint\n    the sum\n",
        "Add.\n\n:param a: first: the one\n:param int b: second\n:returns: the sum\n",
    ],
    ids=["google", "numpy", "rest"],
)
def test_three_docstring_styles_say_the_same(docstring: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    made = tool(add)
    properties = made.parameters["properties"]
    assert (properties["a"]["description"], properties["b"]["description"]) == ("first: the one", "second")
    assert made.description == "Add. Returns: the sum"


def test_annotated_text_and_field_come_before_the_docstring() -> None:
    def f(
        a: Annotated[str, "from annotation"],
        b: Annotated[int, Field(description="from field", ge=1)],
        c: int = Field(3, description="from default", le=5),
    ) -> int:
        """F.

        Args:
            a: from docstring
            b: from docstring
        """
        return c

    made = tool(f)
    properties = made.parameters["properties"]
    assert properties["a"] == {"type": "string", "description": "from annotation"}
    assert properties["b"] == {"type": "integer", "minimum": 1, "description": "from field"}
    assert (properties["c"]["description"], properties["c"]["default"], properties["c"]["maximum"]) == (
        "from default", 3, 5,
    )  # fmt: skip
    assert made.parameters["required"] == ["a", "b"]
    assert made.invoke({"a": "x", "b": 1}).value == 3, "the function must get 3, not a FieldInfo"


def test_none_default_makes_null_legal_and_is_not_shown() -> None:
    def f(ref: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """F."""

    schema = schema_from_function(f)["parameters"]
    assert is_valid(schema, {"ref": None}) and is_valid(schema, {"ref": "x"}) and not is_valid(schema, {"ref": 3})
    assert "default" not in schema["properties"]["ref"]


def test_default_without_annotation_gives_the_type() -> None:
    def f(n=3, flag=False, name="x", ratio=0.5, items=[]):  # type: ignore[no-untyped-def]  # noqa: B006
        """F."""

    properties = schema_from_function(f)["parameters"]["properties"]
    kinds = {name: schema["type"] for name, schema in properties.items()}
    assert kinds == {"n": "integer", "flag": "boolean", "name": "string", "ratio": "number", "items": "array"}


def test_methods_partials_and_callable_objects() -> None:
    class Shop:
        def buy(self, what: str, count: int = 1) -> str:
            """Buy."""
            return f"{count} {what}"

        @classmethod
        def open(cls, day: str) -> str:
            """Open."""
            return day

        def __call__(self, what: str) -> str:
            """Call."""
            return what

    assert tool(Shop().buy).invoke({"what": "tea"}).content == "1 tea"
    assert list(schema_from_function(Shop.open)["parameters"]["properties"]) == ["day"]
    assert schema_from_function(Shop()) | {"parameters": 0} == {
        "name": "Shop",
        "description": "Call.",
        "parameters": 0,
    }
    fixed = functools.partial(Shop().buy, count=3)
    assert list(schema_from_function(fixed)["parameters"]["properties"]) == ["what"]
    assert tool(fixed).invoke({"what": "tea"}).content == "3 tea"


def test_partial_hides_a_secret() -> None:
    def call(query: str, api_key: str) -> str:
        """Call."""
        return query

    assert "secret-value" not in json.dumps(schema_from_function(functools.partial(call, api_key="secret-value")))


def test_positional_only_parameters_are_called_by_position() -> None:
    def power(base: int, exponent: int = 2, /, *, plus: int = 0) -> int:
        """Power."""
        return int(base**exponent) + plus

    made = tool(power)
    assert made.invoke({"base": 3}).value == 9
    assert made.invoke({"base": 2, "exponent": 5, "plus": 1}).value == 33


class Opaque:
    pass


def test_errors_name_the_parameter() -> None:
    def untyped(city) -> None: ...  # type: ignore[no-untyped-def]
    def opaque(thing: Opaque) -> None: ...
    def unknown(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def callback(thing: typing.Callable[[int], int]) -> None: ...

    class Shop:
        def buy(self, what: str) -> None: ...

    for function, name in (
        (untyped, "city"),
        (opaque, "thing"),
        (unknown, "thing"),
        (callback, "thing"),
        (Shop.buy, "self"),
    ):
        with pytest.raises(SchemaError, match=f"'{name}'"):
            schema_from_function(function)


def test_types_of_an_enclosing_function_are_found_where_the_body_uses_them() -> None:
    class Local(enum.Enum):
        A = "a"

    def f(x: Local) -> bool:
        """F."""
        return x is Local.A

    assert tool(f).invoke({"x": "a"}).value is True


def test_default_is_shown_as_json() -> None:
    origin = Point(1, 2)

    def f(colour: Colour = Colour.BLUE, point: Point = origin, odd: float = float("nan")) -> None:
        """F."""

    schema = schema_from_function(f)["parameters"]
    assert schema["properties"]["colour"]["default"] == "blue"
    assert schema["properties"]["point"]["default"] == {"x": 1, "y": 2}
    assert "default" not in schema["properties"]["odd"]
    assert schema["required"] == []


def test_paths_are_strict_without_being_named() -> None:
    def f(path: Path, maybe: Path | None = None, n: int = 1) -> None:
        """F."""

    made = tool(f)
    assert made.strict == {"path", "maybe"}
    assert made.parameters["properties"]["path"] == {"type": "string"}, "pydantic's format 'path' is not JSON Schema's"


def test_invalid_schemas_are_refused_with_tool_and_place() -> None:
    def f(**values: Any) -> None: ...

    good = {"type": "object", "properties": {"x": {"type": "string"}}}
    for bad, said in (
        ({"type": "string"}, "object"),
        ({"type": "object", "properties": {"x": {"type": "text"}}}, "/properties/x/type"),
        ({"type": "object", "properties": {"x": {"$ref": "https://example.com/s.json"}}}, "outside"),
        ({"type": "object", "properties": {"x": {"default": {1, 2}}}}, "plain JSON"),
    ):
        with pytest.raises(SchemaError, match="my_tool") as caught:
            Tool("my_tool", "d", bad, f)
        assert said in str(caught.value)
    Tool("my_tool", "d", good, f)


def test_schema_that_the_function_does_not_take_is_refused() -> None:
    def f(town: str) -> None: ...

    with pytest.raises(SchemaError, match=r"'city'.*town"):
        Tool("t", "d", {"type": "object", "properties": {"city": {"type": "string"}}}, f)
