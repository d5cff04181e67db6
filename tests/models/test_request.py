"""A request is checked before any model is involved; every refusal names the field."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.models import ModelError, Request
from laploop.models.errors import RequestError

USER = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def calling(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


DEEP: dict[str, Any] = {}
for _ in range(3000):
    DEEP = {"not": DEEP}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_token": 5}, "max_token.*max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature.*'hot'"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"top_k": 2.5}, "top_k.*2.5"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"thinking_budget": -1}, "thinking_budget"),
        ({"seed": "x"}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"presence_penalty": "x"}, "presence_penalty"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"enable_thinking": "no"}, "enable_thinking"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"stop": ""}, "empty stop"),
        ({"stop": ["a", ""]}, "empty stop"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"tools": [{"name": "f"}]}, r"tools\[0\]"),
        ({"tools": 5}, "tools"),
        ({"tools": [{**TOOL, "type": "custom"}]}, r"tools\[0\] has the type 'custom'; only functions"),
        ({"tools": [{"function": {"name": " "}}]}, r"tools\[0\] has the name ' '"),
        ({"tools": [{"function": {"name": "\ud800"}}]}, r"tools\[0\] has the name '.ud800'"),
        ({"tools": [{"function": {"name": "f", "description": {1}}}]}, r"tools\[0\] \('f'\) is not plain JSON.*set"),
        ({"tools": [{"function": {"name": "f", "parameters": {"properties": {1: {}}}}}]}, "every key must be a text"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"enum": [float("nan")]}}}]},
            "not plain JSON.*nan|NaN|JSON",
        ),
        ({"tools": [{"function": {"name": "f", "parameters": DEEP}}]}, r"tools\[0\] \('f'\) is nested too deeply"),
        ({"tools": [TOOL, TOOL]}, "two tools.*'f'"),
        ({"tools": [TOOL], "tool_choice": "must"}, "'must'.*required"),
        ({"tools": [TOOL], "tool_choice": 5}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice must be"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "'g'; offered: f"),
        ({"tool_choice": "required"}, "no tools"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
            },
            "allows no tool",
        ),
        (
            {
                "tools": [TOOL],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any", "tools": [TOOL]}},
            },
            "mode.*'any'",
        ),
        ({"response_format": {"type": "xml"}}, "'xml'.*json_object"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], words: str) -> None:
    """Regression: wrong types ended in TypeError, KeyError, AttributeError, RecursionError and UnicodeEncodeError, or
    only in the engine; a tool of another type, or without a name, was taken for a function."""
    with pytest.raises(RequestError, match=words):
        Request.of(USER, options)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "empty"),
        ("hello", "messages"),
        ([5], r"messages\[0\]"),
        ([{"role": "robot", "content": "x"}], "'robot'.*developer"),
        ([{"content": "x"}], "None"),
        ([{"role": "user", "content": "x", "colour": 1}], "'colour'"),
        ([{"role": "user", "content": 5}], r"messages\[0\].*content"),
        ([*USER, {"role": "tool", "content": "ok"}], "tool_call_id"),
        ([*USER, RESULT], "'c1'"),
        ([*USER, calling(CALL)], "no result"),
        ([*USER, calling(CALL), *USER], "no result"),
        ([*USER, calling(CALL), RESULT, RESULT], "'c1'"),
        ([*USER, calling({"name": "f"}), RESULT], r"messages\[1\].*tool_calls"),
        ([*USER, calling({**CALL, "function": {"name": "f", "arguments": 5}}), RESULT], r"messages\[1\].*arguments"),
        ([*USER, calling(CALL, CALL), RESULT], "two calls.*'c1'"),
        ([*USER, calling({"type": "function", "function": {"name": "f", "arguments": "{}"}}), RESULT], "no id"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}, RESULT], "assistant"),
    ],
)
def test_a_message_that_is_wrong_is_named(messages: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        Request.of(messages, {})
    assert isinstance(caught.value, ModelError)


def test_what_openais_client_writes_back_is_taken() -> None:
    reply = {**calling(CALL), "refusal": None, "audio": None, "annotations": [], "function_call": None}
    request = Request.of([*USER, reply, RESULT, {"role": "assistant", "content": "done"}, *USER], {"tools": [TOOL]})
    assert len(request.messages) == 5
    with pytest.raises(RequestError, match="refusal"):
        Request.of([*USER, {"role": "assistant", "content": "", "refusal": "I will not"}], {})


def test_results_may_come_in_any_order() -> None:
    second = {**CALL, "id": "c2"}
    Request.of([*USER, calling(CALL, second), {**RESULT, "tool_call_id": "c2"}, RESULT], {})


def test_none_means_not_given() -> None:
    names = ["tools", "tool_choice", "parallel_tool_calls", "temperature", "stop", "seed", "response_format"]
    assert Request.of(USER, dict.fromkeys(names)) == Request.of(USER, {})


@pytest.mark.parametrize(
    ("choice", "allowed", "must"),
    [
        ("auto", ["f", "g"], False),
        ("none", [], False),
        ("required", ["f", "g"], True),
        ({"type": "function", "function": {"name": "g"}}, ["g"], True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}, ["f"], False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}, ["f"], True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, [], False),
    ],
)
def test_what_a_choice_allows(choice: Any, allowed: list[str], must: bool) -> None:
    tools = [TOOL, {"type": "function", "function": {"name": "g"}}]
    request = Request.of(USER, {"tools": tools, "tool_choice": choice})
    assert (request.allowed_names, request.must_call, request.tool_names) == (allowed, must, ["f", "g"])


def test_a_request_holds_its_own_messages() -> None:
    messages = [{"role": "user", "content": "x"}]
    request = Request.of(messages, {})
    messages[0]["content"] = "y"
    assert request.messages[0]["content"] == "x"
