"""Chunks add up to the plain reply, whoever made them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models import ScriptedModel, accumulate
from laploop.models.completion import usage_of

USER = [{"role": "user", "content": "x"}]
TOOLS = [{"type": "function", "function": {"name": n}} for n in ("f", "g")]
RAW = (
    "<think>\nfirst 京\n</think>\n\nLook:\n"
    '<tool_call>\n{"name": "f", "arguments": {"a": "日本", "b":  [1]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
)


def without_ids(completion: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps({k: v for k, v in completion.items() if k not in ("id", "created")})
    calls = completion["choices"][0]["message"].get("tool_calls", ())
    for i, call in enumerate(calls):
        text = text.replace(call["id"], f"id-{i}")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@given(st.integers(1, 200))
def test_streamed_is_plain_at_every_split(piece: int) -> None:
    whole = ScriptedModel([RAW], enable_thinking=True, piece=10_000).create(USER, tools=TOOLS)
    parts = accumulate(ScriptedModel([RAW], enable_thinking=True, piece=piece).stream(USER, tools=TOOLS))
    assert without_ids(parts) == without_ids(whole)


def test_the_shape_is_openais() -> None:
    completion = ScriptedModel([RAW], enable_thinking=True, name="m").create(USER, tools=TOOLS)
    assert completion["object"] == "chat.completion" and completion["model"] == "m" and completion["id"]
    (choice,) = completion["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "Look:" and message["reasoning_content"] == "first 京"
    assert [c["function"] for c in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": "日本", "b":  [1]}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert all(c["type"] == "function" and c["id"] for c in message["tool_calls"])
    assert completion["raw_output"] == RAW


def test_the_deltas_are_openais() -> None:
    chunks = list(ScriptedModel([RAW], enable_thinking=True).stream(USER, tools=TOOLS))
    assert len({c["id"] for c in chunks}) == 1 and {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    parts = [p for c in chunks for p in c["choices"][0]["delta"].get("tool_calls", ())]
    heads = [p for p in parts if "id" in p]
    assert [(h["index"], h["type"], h["function"]["name"]) for h in heads] == [
        (0, "function", "f"),
        (1, "function", "g"),
    ]
    assert all("id" not in p and "name" not in p["function"] for p in parts if p not in heads)
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert chunks[-1]["usage"]["total_tokens"] and chunks[-1]["raw_output"] == RAW


def test_chunks_of_other_servers_are_folded() -> None:
    """A usage chunk without choices, missing indices and roles, nulls, a second choice, arguments in pieces."""

    def chunk(delta: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        choice = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None, **more}]
        return {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choice, "usage": None}

    head = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    completion = accumulate(
        [
            chunk({"role": "assistant", "content": None}),
            chunk({"content": "a"}),
            chunk({"tool_calls": [{"index": 0, **head}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
            chunk({"tool_calls": [{"index": 0, "id": None, "function": {"arguments": ": 1}"}}]}),
            chunk({"tool_calls": [{**head, "id": "c2"}]}),
            {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
            chunk({}, finish_reason="tool_calls"),
            {**chunk(None), "usage": {"total_tokens": 3}},
        ]
    )
    (choice,) = completion["choices"]
    assert choice["finish_reason"] == "tool_calls" and completion["usage"] == {"total_tokens": 3}
    assert choice["message"]["content"] == "a"
    assert [(c["id"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]] == [
        ("c1", '{"a": 1}'),
        ("c2", ""),
    ]


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match="no chunk"):
        accumulate([])


def test_usage_adds_up() -> None:
    usage = usage_of(10, 5, n_cached=4, n_reasoning=2)
    assert usage["total_tokens"] == 15
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}
