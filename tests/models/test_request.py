"""A request is checked before any model is involved; every refusal names the field."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.models import ModelError, Request
from laploop.models.errors import RequestError
from laploop.models.requests.request import RequestOptions

USER = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


NAMED = {"type": "function", "function": {"name": "f"}}


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
        ({"tools": [{"function": {"name": "f", "description": {1}}}]}, r"tools\[0\] \(f\) is not plain JSON.*set"),
        ({"tools": [{"function": {"name": "f", "parameters": {"properties": {1: {}}}}}]}, "every key must be a text"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"enum": [float("nan")]}}}]},
            "not plain JSON.*nan|NaN|JSON",
        ),
        ({"tools": [{"function": {"name": "f", "parameters": DEEP}}]}, r"tools\[0\] \(f\) is nested too deeply"),
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
        ({"tools": [{"function": {"name": "f", "strict": "yes"}}]}, r"tools\[0\] \(f\): strict"),
        ({"n": 0}, "n must be a whole number ≥ 1 and ≤ 128, got 0"),
        ({"n": 129}, "n must be"),
        ({"n": True}, "n must be"),
        ({"logprobs": 3}, "logprobs must be True or False"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs needs logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs needs logprobs"),
        ({"logit_bias": [5]}, "logit_bias must map"),
        ({"logit_bias": {"Rome": 5}}, "token ids.*'Rome'"),
        ({"logit_bias": {-1: 5}}, "token ids.*-1"),
        ({"logit_bias": {"-1": 5}}, "token ids.*'-1'"),
        ({"logit_bias": {True: 5}}, "token ids.*True"),
        ({"logit_bias": {"7": 100.5}}, "logit_bias of token 7.*100.5"),
        ({"logit_bias": {7: "5"}}, "logit_bias of token 7"),
        ({"logit_bias": {7: float("nan")}}, "logit_bias of token 7"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens.*6 and 5: give one"),
        ({"reasoning_effort": "xhigh"}, "'xhigh'; known: none, minimal, low, medium, high; .*thinking_budget"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"reasoning_effort": "none", "enable_thinking": True}, "'none' contradicts enable_thinking=True"),
        ({"user": 5}, "user must be a text"),
        ({"prompt_cache_key": []}, "prompt_cache_key must be a text"),
        ({"safety_identifier": 1.5}, "safety_identifier must be a text"),
        ({"metadata": ["a"]}, "metadata must map"),
        ({"metadata": {"a": 1}}, "metadata must map"),
        ({"store": True}, "store can only be false, got True"),
        ({"service_tier": "flex"}, 'service_tier can only be "auto" or "default"'),
        ({"modalities": ["text", "audio"]}, "modalities can only be"),
        ({"functions": []}, "'functions'; use tools"),
        ({"function_call": "auto"}, "'function_call'; use tool_choice"),
        ({"stream": True}, r"'stream'; use stream\(\)"),
        ({"verbosity": "low"}, "'verbosity'; use a sentence"),
        ({"audio": {}}, "'audio'; supported: tools"),
        ({"prediction": {}}, "'prediction'; supported: tools"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"response_format": {"type": "xml"}}, "'xml'.*json_object"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"temperature": 10**400}, "temperature must be a number ≥ 0 and ≤ 1000000, got 1000"),
        ({"frequency_penalty": 10**400}, "frequency_penalty must be"),
        ({"presence_penalty": -(10**5000)}, "presence_penalty must be .* got a value of type int that cannot"),
        ({"repeat_penalty": 1e-300}, "repeat_penalty must be"),
        ({"top_k": 2**31}, "top_k must be a whole number ≥ 0 and ≤ 2147483647"),
        ({"max_tokens": -1}, "max_tokens must be a whole number ≥ 1, got -1"),
        ({"logit_bias": {"9" * 5000: 1}}, "token ids.*'999"),
        ({"logit_bias": {2**31: 1}}, "token ids.*2147483648"),
        ({"logit_bias": {"٣": 1}}, "token ids"),
        ({"logit_bias": {"7": 1, 7: 2}}, "names the token 7 twice"),
        ({"reasoning_effort": ""}, "reasoning_effort ''; known: none"),
        ({"reasoning_effort": 0}, "reasoning_effort 0; known: none"),
        ({"reasoning_effort": []}, r"reasoning_effort \[\]; known: none"),
        ({"store": 0}, "store can only be false, got 0"),
        ({"stop": b""}, "stop must be a text or a list of texts, got b''"),
        ({"stop": range(0)}, "stop must be a text"),
        ({"stop": ["a", "\ud800"]}, "stop is not plain JSON.*surrogates"),
        ({"user": "\udcff"}, r"user holds half a surrogate pair \(U\+DCFF\) at character 0"),
        ({"metadata": {"a": "\ud800"}}, "metadata is not plain JSON"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "json_object takes no schema.*json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": {}}}, "json_object takes no schema"),
        ({"response_format": {"type": "text", "strict": True}}, "'strict', which is not supported"),
        ({"response_format": {"type": "json_schema", "json_schema": {"shema": {}}}}, "'shema'.*known: name"),
        ({"response_format": {"type": "json_schema", "json_schema": {"strict": 1}}}, "strict must be True or False"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": 5}}}, "name must be a text, got 5"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "\ud800"}}}},
            "response_format is not plain JSON",
        ),
        ({"tools": [{**TOOL, "cache_control": {}}]}, r"tools\[0\] \(f\) has the field 'cache_control'"),
        ({"tools": [{"function": {"name": "f", "parameters": []}}]}, r"parameters must be .* object, got \[\]"),
        ({"tools": [{"function": {"name": "f", "parameters": False}}]}, "parameters must be"),
        ({"tools": [{"function": {"name": "f", "description": 5}}]}, "description must be a text, got 5"),
        ({"tools": [{"function": {"name": "f", "description": "\ud800"}}]}, "not plain JSON.*surrogates"),
        ({"tools": [{"function": {"name": "f", "returns": {}}}]}, "'returns'.*known: name, description, parameters"),
        ({"tools": [{"function": {"name": "a\nb"}}]}, r"has the name 'a.nb', which no model can write"),
        ({"tools": [{"function": {"name": "a\u200bb"}}]}, "which no model can write"),
        ({"tools": [{"function": {"name": "a" * 257}}]}, "a name of 257 characters, at most 256"),
        ({"tools": [TOOL], "tool_choice": {**NAMED, "name": "f"}}, "tool_choice has the field 'name'"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f", "strict": True}}},
            "function has the field 'strict'",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": ["f"]}}}, "tool_choice must be"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "allowed_tools": {"tools": []}}}, "tool_choice must be"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 5}}}, "needs tools"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [], "max": 1}}},
            "allowed_tools has the field 'max'",
        ),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], words: str) -> None:
    """Regression: wrong types ended in TypeError, KeyError, AttributeError, RecursionError and UnicodeEncodeError, or
    only in the engine; a tool of another type, or without a name, was taken for a function. What was empty, or stood
    beside what was looked at, was dropped without a word; numbers of thousands of digits were a ValueError; a name
    that models escape made calls of no tool."""
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
        ([{"role": "user", "content": "x", "name": 5}], r"messages\[0\]: name must be a text, got 5"),
        ([{"role": "user", "content": 0}], "content must be a text or a list of text parts, got 0"),
        ([{"role": "user", "content": b"x"}], "content must be a text"),
        ([{"role": "user", "content": "\ud800"}], r"messages\[0\]: content holds half a surrogate pair \(U\+D800\)"),
        ([{"role": "user", "content": [5]}], r"content\[0\] is of type 5: only text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url': only text"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x", "cache": 1}]}],
            r"content\[0\] has the field 'cache'",
        ),
        ([{"role": "user", "content": "x", "tool_call_id": "c"}], "only the role 'tool' has that"),
        ([{"role": "user", "content": "x", "reasoning_content": "y"}], "only the role 'assistant' has that"),
        ([{"role": "user", "content": "x", "refusal": 0}], "'refusal'"),
        ([{"role": "user", "content": "x", 5: 1}], "the field 5"),
        ([{"role": ["user"], "content": "x"}], r"role \['user'\]"),
        ([*USER, {"role": "assistant", "content": "", "reasoning_content": []}], "reasoning_content must be a text"),
        ([*USER, {"role": "assistant", "content": "", "tool_calls": {}}], "tool_calls must be a list"),
        ([*USER, calling({**CALL, "type": "custom"}), RESULT], "type 'custom'; only functions"),
        ([*USER, calling({**CALL, "name": "f"}), RESULT], "the call of f has the field 'name'"),
        ([*USER, calling({**CALL, "function": {"name": "f", "parsed": 1}}), RESULT], "the field 'parsed'"),
        ([*USER, calling({**CALL, "function": {"name": "f", "arguments": {"a": {1}}}}), RESULT], "not plain JSON"),
        ([*USER, calling({**CALL, "function": {"name": "f", "arguments": 0}}), RESULT], "must be a JSON text, got 0"),
        ([*USER, calling({**CALL, "function": {"name": "f", "arguments": "\udc00"}}), RESULT], "half a surrogate"),
        ([*USER, calling({**CALL, "function": {"name": ""}}), RESULT], "tool_calls holds no"),
    ],
)
def test_a_message_that_is_wrong_is_named(messages: Any, words: str) -> None:
    """Regression: what was falsy (0, {}, []) counted as missing, whatever it was; half a surrogate pair was a
    UnicodeEncodeError, or a question mark in the prompt."""
    with pytest.raises(RequestError, match=words) as caught:
        Request.of(messages, {})
    assert isinstance(caught.value, ModelError)


def test_what_openais_client_writes_back_is_taken() -> None:
    empty = {"refusal": None, "audio": None, "annotations": [], "function_call": None, "reasoning": None}
    reply = {**calling(CALL), **empty, "reasoning_details": []}
    request = Request.of([*USER, reply, RESULT, {"role": "assistant", "content": "done"}, *USER], {"tools": [TOOL]})
    assert len(request.messages) == 5
    with pytest.raises(RequestError, match="refusal"):
        Request.of([*USER, {"role": "assistant", "content": "", "refusal": "I will not"}], {})


def test_results_may_come_in_any_order() -> None:
    second = {**CALL, "id": "c2"}
    Request.of([*USER, calling(CALL, second), {**RESULT, "tool_call_id": "c2"}, RESULT], {})


def test_none_means_not_given() -> None:
    assert Request.of(USER, dict.fromkeys(RequestOptions.__annotations__)) == Request.of(USER, {})


def test_what_says_nothing_new_is_taken() -> None:
    """What official clients and frameworks send although it changes nothing here."""
    same = {"store": False, "service_tier": "auto", "modalities": ["text"], "tool_choice": "none", "n": 1}
    assert Request.of(USER, same) == Request.of(USER, {"tool_choice": "none"})
    assert Request.of(USER, {"parallel_tool_calls": False, "tool_choice": "auto"}).allowed_names == []


def test_notes_on_a_request_are_kept() -> None:
    notes = {"user": "anna", "safety_identifier": "a1", "prompt_cache_key": "k", "metadata": {"run": "7"}}
    request = Request.of(USER, notes)
    assert {name: getattr(request, name) for name in notes} == notes


def test_a_bias_may_name_its_token_by_a_text() -> None:
    """JSON has no other keys."""
    assert Request.of(USER, {"logit_bias": {"7": -100, 8: 0.5}}).logit_bias == {7: -100, 8: 0.5}
    assert Request.of(USER, {"logit_bias": {}}) == Request.of(USER, {})


def test_the_newer_name_of_max_tokens() -> None:
    assert Request.of(USER, {"max_completion_tokens": 7}).max_tokens == 7
    assert Request.of(USER, {"max_completion_tokens": 7, "max_tokens": 7}).max_tokens == 7


@pytest.mark.parametrize(
    ("options", "thinks", "budget"),
    [
        ({}, None, None),
        ({"reasoning_effort": "none"}, False, None),
        ({"reasoning_effort": "minimal"}, True, 128),
        ({"reasoning_effort": "medium", "enable_thinking": True}, True, 2048),
        ({"reasoning_effort": "high"}, True, None),
        ({"reasoning_effort": "low", "thinking_budget": 9}, True, 9),
        ({"thinking_budget": 9}, None, 9),
        ({"thinking_budget": 0}, False, 0),
        ({"thinking_budget": 0, "enable_thinking": True}, False, 0),
    ],
)
def test_effort_and_budget_come_to_the_same_two_fields(
    options: dict[str, Any], thinks: bool | None, budget: int | None
) -> None:
    request = Request.of(USER, options)
    assert (request.enable_thinking, request.thinking_budget) == (thinks, budget)


def test_names_may_be_in_any_script() -> None:
    tools = [{"function": {"name": "查天气"}}, {"function": {"name": "météo du jour"}}]
    assert Request.of(USER, {"tools": tools}).tool_names == ["查天气", "météo du jour"]


def test_numbers_beyond_a_float_are_numbers() -> None:
    """Regression: OverflowError from asking whether a whole number of 400 digits is infinite."""
    assert Request.of(USER, {"seed": 10**400}).seed == 10**400


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


def test_a_prompt_shows_tools_without_the_word_to_the_decoder() -> None:
    strict = {"type": "function", "function": {"name": "g", "strict": True, "parameters": {"type": "object"}}}
    request = Request.of(USER, {"tools": [strict, TOOL]})
    shown = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
    assert request.shown_tools == [shown, TOOL] and request.tools == (strict, TOOL)


def test_a_request_holds_its_own_messages() -> None:
    messages = [{"role": "user", "content": "x"}]
    request = Request.of(messages, {})
    messages[0]["content"] = "y"
    assert request.messages[0]["content"] == "x"
