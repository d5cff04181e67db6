"""Whatever a request holds is used or refused by name: never a raw error, never dropped."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laploop.engine import EngineError
from laploop.models import DIALECTS, ModelError, Request, ScriptedModel, render_prompt
from laploop.models.errors import RequestError
from laploop.models.grammar import reply_grammar
from laploop.models.requests.request import RequestOptions
from laploop.models.template import builtin_template
from laploop.models.text_protocol import protocol_messages, speaks_protocol

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FULL: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "Rome?"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Why not?",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Rome"}'}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": {"city": "Oslo"}}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look.", "parameters": PARAMETERS, "strict": True},
        }
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]},
    },
    "parallel_tool_calls": True,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "reply", "description": "It.", "strict": True, "schema": PARAMETERS},
    },
    "n": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "repeat_penalty": 1.1,
    "logit_bias": {"7": 1.5},
    "seed": 3,
    "max_tokens": 9,
    "max_completion_tokens": 9,
    "stop": ["END"],
    "logprobs": True,
    "top_logprobs": 2,
    "enable_thinking": True,
    "thinking_budget": 64,
    "reasoning_effort": "low",
    "user": "anna",
    "safety_identifier": "a",
    "prompt_cache_key": "k",
    "metadata": {"run": "7"},
    "store": False,
    "service_tier": "auto",
    "modalities": ["text"],
}
# Where any key may stand, and where a value is only described.
OPEN = {"parameters", "schema", "arguments", "metadata", "logit_bias"}

junk = st.one_of(
    st.sampled_from([0, 1, -1, 2**31, 2**63, 10**400, 10**5000, 0.5, -0.0, math.nan, math.inf, -math.inf, True, False]),
    st.sampled_from(["", " ", "x", "auto", "none", "\ud800", "\x00", "a" * 1000, "<|im_end|>", b"", b"x", range(0)]),
    st.sampled_from([[], {}, [[]], [{}], {"": ""}, {1: 2}, {"type": "text"}, {"type": "function"}, object(), {5}, ...]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values inside."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


PLACES = places(FULL)


def at(request: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        request = request[step]
    return request


def asked(fields: dict[str, Any]) -> Request:
    return Request.of(fields["messages"], {k: v for k, v in fields.items() if k != "messages"})


def use(request: Request) -> None:
    """All that a model makes of a request before it computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("qwen3", "react"):
            family = DIALECTS[name]
            reply_grammar(request, family, "none").check()
            if family.labels and speaks_protocol(request):
                str(render_prompt(builtin_template(), protocol_messages(request, family, builtin_template())))
        prompt = render_prompt(builtin_template(), request.messages, request.shown_tools, request.enable_thinking)
        str(prompt).encode("utf-8")


def test_the_request_of_these_laws_is_one() -> None:
    use(asked(FULL))


@settings(max_examples=300)
@given(path=st.sampled_from(PLACES), value=junk)
@example(path=("reasoning_effort",), value="")
@example(path=("messages", 1, "content", 0, "text"), value="\ud800")
@example(path=("tools", 0, "function", "parameters"), value=[])
def test_a_value_is_used_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """Regression: what was falsy was dropped in a dozen places; numbers beyond a float, half surrogate pairs and
    texts of thousands of digits were errors of Python's."""
    fields = copy.deepcopy(FULL)
    at(fields, path[:-1])[path[-1]] = value
    try:
        request = asked(fields)
        use(request)
    except (ModelError, EngineError) as error:
        assert str(error) and len(str(error)) < 2000
        return
    if value is None or path[0] in ("store", "service_tier", "modalities", "max_completion_tokens"):
        return  # not given; or they may say nothing else
    if path[-1] not in ("mode", "type") and not _same(value, at(FULL, path)):
        assert request != asked(FULL), f"{value!r} at {path} changes nothing"


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a in ({}, []) and b in ({}, []))


@given(data=st.data(), value=st.sampled_from([0, 1, "x", [1], {"a": 1}, True]))
def test_a_key_that_nobody_reads_is_refused(data: st.DataObject, value: Any) -> None:
    """Regression: in tools, calls, content parts, tool_choice and response_format such keys were dropped."""
    fields = copy.deepcopy(FULL)
    objects = [p for p in [(), *PLACES] if isinstance(at(fields, p), dict) and not OPEN & set(p)]
    place = at(fields, data.draw(st.sampled_from(objects)))
    key = data.draw(st.sampled_from(["extra", "schema_", "Name", "function_call", "self", "stream", "cache_control"]))
    place[key] = value
    with pytest.raises(RequestError, match=key):
        asked(fields)


@given(name=st.sampled_from(sorted(RequestOptions.__annotations__)), value=junk)
def test_a_field_alone_is_used_or_refused(name: str, value: Any) -> None:
    user = [{"role": "user", "content": "x"}]
    try:
        request = Request.of(user, {name: value})
        use(request)
        ScriptedModel(["a"] * 130).create(user, **{name: value})  # type: ignore[arg-type]
    except (ModelError, EngineError) as error:
        assert str(error) and len(str(error)) < 2000


@given(messages=st.one_of(junk, st.lists(junk, max_size=3)))
def test_any_messages_are_used_or_refused(messages: Any) -> None:
    try:
        use(Request.of(messages, {}))
    except ModelError as error:
        assert len(str(error)) < 2000
