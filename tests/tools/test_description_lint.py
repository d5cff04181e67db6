"""Advice on a tool's words: each rule fires where it should, and is silent about what is well said."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from laploop.tools import Tool, builtin_tools, tool
from laploop.tools.description_lint import lint_description
from pydantic import Field


def problems(item: Tool) -> list[tuple[str, str]]:
    return [(advice.place, advice.problem) for advice in lint_description(item)]


def described(text: str, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool("get_level", text, schema, lambda **values: values)


GOOD = "Water level of a river, in metres. Returns level and time."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no description"), ("Get level.", "says no more than the name"), ("Gets the level", "says no more"),
        ("Handles various river things. Returns text.", "vague ('Handles')"),
        ("Water level of a river.", "nothing about the result"),
        ("查询河流水位。", "nothing about the result"), (GOOD + " More words." * 60, "characters long"),
    ],
)  # fmt: skip
def test_words_of_a_tool(text: str, said: str) -> None:
    assert any(place == "" and said in problem for place, problem in problems(described(text)))


@pytest.mark.parametrize(
    "text", [GOOD, "查询某条河流当前的水位，返回米数和时间。", "Draws a map of a river and shows it."]
)
def test_good_words_are_left_alone(text: str) -> None:
    assert problems(described(text)) == []


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, "no description"), ({"type": "string", "description": "The river"}, "no example"),
        ({"type": "string", "description": "河流名称"}, "no example"),
        ({"type": "integer", "description": "How deep"}, "no range"),
        ({"type": "string", "description": "The river, e.g. Danube"}, ""), ({"type": "string", "enum": ["a"]}, ""),
        ({"type": "string", "description": "河流名称，例如长江"}, ""), ({"type": "string", "format": "date"}, ""),
        ({"type": "integer", "description": "How deep", "minimum": 0}, ""),
        ({"type": "integer", "description": "1 to 10"}, ""),
        ({"type": "boolean", "description": "Whether to wait"}, ""),
        ({"anyOf": [{"type": "number"}, {"type": "null"}], "description": "Depth"}, "no range"),
    ],
)  # fmt: skip
def test_words_of_a_parameter(schema: dict[str, Any], said: str) -> None:
    assert problems(described(GOOD, x=schema)) == ([("x", said)] if said else [])


def test_a_function_as_people_write_it_and_better() -> None:
    @tool
    def search(query: str, limit: int, kind: Literal["news", "papers"]) -> list[str]:
        """Search stuff."""
        return []

    assert problems(search) == [
        ("", "says no more than the name"), ("", "nothing about the result"), ("query", "no description"),
        ("limit", "no description"), ("limit", "no range"),
    ]  # fmt: skip

    @tool
    def search_archive(
        query: Annotated[str, "Words, e.g. heat pump"], limit: Annotated[int, Field(ge=1, le=20)] = 5
    ) -> list[str]:
        """Search the archive of articles by words. Returns titles, the newest first."""
        return []

    assert problems(search_archive) == []


def test_the_built_in_tools_are_nearly_without() -> None:
    """Their words were measured on small models, and are not changed for a rule."""
    assert {item.name: problems(item) for item in builtin_tools() if problems(item)} == {
        "search_files": [("query", "no example")]
    }


def test_every_advice_says_how() -> None:
    for advice in lint_description(described("", x={"type": "integer"}, y={"type": "string", "description": "y"})):
        assert len(advice.suggestion) > 20
