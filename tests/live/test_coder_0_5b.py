"""qwen2.5-coder-0.5b: calls are valid because they are constrained, not because the model is clever."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from laploop.models import ChatModel

MODEL = "qwen2.5-coder-0.5b"
N_CTX = 4096


def function(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT, UNIT = {"type": "string"}, {"enum": ["celsius", "fahrenheit"]}
TOOLS = [
    function("get_weather", "Weather of a city today.", ["city"], city=TEXT, unit=UNIT),
    function("calculate", "Work out an arithmetic expression.", ["expression"], expression=TEXT),
    function(
        "search_notes",
        "Search the user's notes.",
        ["query", "limit"],
        query={"type": "string", "minLength": 1, "maxLength": 40},
        limit={"type": "integer", "minimum": 1, "maximum": 20},
        tags={"type": "array", "items": {"enum": ["work", "home", "travel"]}, "maxItems": 2},
    ),
    function(
        "remind",
        "Set a reminder.",
        ["text", "when"],
        text=TEXT,
        when={
            "type": "object",
            "properties": {"date": {"type": "string", "format": "date"}, "hour": {"type": "integer", "maximum": 23}},
            "required": ["date"],
            "additionalProperties": False,
        },
    ),
]
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
PROMPTS = [
    "What is the weather in Paris?",
    "Is it warmer in Rome or in Oslo today?",
    "What is 23 times 17?",
    "Find my notes on the trip to Lisbon, at most five.",
    "Remind me on 2025-03-04 at 9 to call the bank.",
    "How hot is it in Cairo, in fahrenheit?",
    "Add 12.5 and 7, then double it.",
    "Which of my work notes mention the budget?",
    "Tell me to water the plants on 1 May 2026.",
    'Look for the words "quote \\" and {brace}" in my notes.',
    "北京今天天气怎么样？",
    "上海和广州哪里更热？",
    "帮我算一下 128 除以 4。",
    "查一下我关于出差的笔记，最多三条。",
    "提醒我 2025-12-31 晚上 8 点给妈妈打电话。",
    "哈尔滨现在多少华氏度？",
    "(3+5)*12 等于几？",
    "我的笔记里有没有“会议纪要”？",
    "明年元旦提醒我体检。",
    "你好，随便帮我做点什么。",
]


def ask(model: ChatModel, text: str, **options: Any) -> dict[str, Any]:
    """The first choice of a greedy reply."""
    reply = model.create([{"role": "user", "content": text}], **{"temperature": 0, "max_tokens": 160, **options})
    choice: dict[str, Any] = {**reply["choices"][0], "usage": reply["usage"]}
    return choice


def check_calls(choice: dict[str, Any]) -> list[str]:
    """Every call parses and validates; returns the names. Whether a date exists (0000-01-01) is no grammar's matter."""
    assert "invalid_tool_calls" not in choice
    for call in choice["message"].get("tool_calls") or ():
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
    return [call["function"]["name"] for call in choice["message"].get("tool_calls") or ()]


@pytest.mark.parametrize("text", PROMPTS)
def test_a_required_call_is_made_and_valid(model: ChatModel, text: str) -> None:
    choice = ask(model, text, tools=TOOLS, tool_choice="required")
    assert check_calls(choice)
    assert choice["finish_reason"] in ("tool_calls", "length")


@pytest.mark.parametrize(("number", "text"), list(enumerate(PROMPTS)))
def test_a_named_call_is_that_one_and_valid(model: ChatModel, number: int, text: str) -> None:
    """Also where the question has nothing to do with the function."""
    name = list(SCHEMAS)[number % len(SCHEMAS)]
    named = {"type": "function", "function": {"name": name}}
    choice = ask(model, text, tools=TOOLS, tool_choice=named, parallel_tool_calls=False)
    assert check_calls(choice) == [name]


@pytest.mark.parametrize("text", PROMPTS[::4])
def test_auto_gives_valid_calls_or_text(model: ChatModel, text: str) -> None:
    choice = ask(model, text, tools=TOOLS)
    assert check_calls(choice) or choice["message"]["content"].strip()


def test_none_gives_text(model: ChatModel) -> None:
    choice = ask(model, PROMPTS[0], tools=TOOLS, tool_choice="none")
    assert check_calls(choice) == []
    assert choice["message"]["content"].strip()


def test_a_model_that_cannot_think_says_so(model: ChatModel) -> None:
    with pytest.warns(UserWarning, match="enable_thinking has no effect: .* has no thinking mode"):
        choice = ask(model, "Say hello.", enable_thinking=True, max_tokens=16)
    assert "reasoning_content" not in choice["message"]
    assert choice["message"]["content"].strip()


def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(model: ChatModel) -> None:
    text = "Count from 1 to 10, separated by commas."
    ask(model, text, max_tokens=1)  # from here on both runs find the same prompt in memory: the same rounding
    whole = ask(model, text)["message"]["content"]
    stop = whole[len(whole) // 2 :][:3]
    choice = ask(model, text, stop=["never said", stop])
    assert stop
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_max_tokens_ends_with_length(model: ChatModel) -> None:
    choice = ask(model, "Write a long story about a dragon.", max_tokens=6)
    assert choice["finish_reason"] == "length"
    assert choice["usage"]["completion_tokens"] == 6
    assert choice["message"]["content"].strip()


@pytest.mark.parametrize("text", ["Anna is 31 and lives in Rome.", "王伟，45岁，住在成都。"])
def test_a_response_format_is_kept(model: ChatModel, text: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "home": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}, "country": {"type": ["string", "null"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "age", "home"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    choice = ask(model, f"Give name, age and home as JSON. {text}", response_format=wanted)
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)
    assert choice["finish_reason"] == "stop"


def test_any_json_object_as_response_format(model: ChatModel) -> None:
    wanted = {"type": "json_object"}
    choice = ask(model, 'Reply with JSON that has the key "city".', response_format=wanted, max_tokens=200)
    assert isinstance(json.loads(choice["message"]["content"]), dict)
