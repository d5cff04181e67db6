"""Chunks add up to the plain reply, whoever made them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models import ModelError, ScriptedModel, accumulate
from laploop.models.completion import in_openais_form
from laploop.models.errors import RequestError

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
    assert choice["raw_output"] == RAW


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
    assert chunks[-1]["usage"]["total_tokens"] and chunks[-1]["choices"][0]["raw_output"] == RAW


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
    choice, other = completion["choices"]
    assert other["index"] == 1 and other["message"]["content"] == "another choice"
    assert choice["finish_reason"] == "tool_calls" and completion["usage"] == {"total_tokens": 3}
    assert choice["message"]["content"] == "a"
    assert [(c["id"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]] == [
        ("c1", '{"a": 1}'),
        ("c2", ""),
    ]


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match="no chunk"):
        accumulate([])


def test_thoughts_under_another_servers_name_are_thoughts() -> None:
    completion = accumulate([{"id": "x", "choices": [{"index": 0, "delta": {"reasoning": "Hm", "content": None}}]}])
    assert completion["choices"][0]["message"] == {"role": "assistant", "content": "", "reasoning_content": "Hm"}


def test_log_probabilities_of_all_chunks_are_folded() -> None:
    def chunk(delta: dict[str, Any], content: list[Any] | None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "logprobs": {"content": content, "refusal": None}}]}

    completion = accumulate([chunk({}, None), chunk({"content": "ab"}, [1, 2]), chunk({"content": "c"}, [3])])
    assert completion["choices"][0]["logprobs"] == {"content": [1, 2, 3], "refusal": None}


# -- several choices --------------------------------------------------------------------------------------------------


def test_each_choice_takes_a_turn() -> None:
    turns: list[Any] = [RAW, {"raw": "cut", "finish": "length"}, "third"]
    with ScriptedModel(turns, enable_thinking=True) as model:
        chunks = list(model.stream(USER, tools=TOOLS, n=3))
        assert [r.n for r in model.requests] == [3]
    completion = accumulate(chunks)
    assert [c["index"] for c in completion["choices"]] == [0, 1, 2]
    assert [c["finish_reason"] for c in completion["choices"]] == ["tool_calls", "length", "stop"]
    assert [c["message"]["content"] for c in completion["choices"]] == ["Look:", "cut", "third"]
    assert [c["raw_output"] for c in completion["choices"]] == [RAW, "cut", "third"]
    # One id and one bill: all that was written, the prompt once.
    assert len({c["id"] for c in chunks}) == 1 and sum("usage" in c for c in chunks) == 1 and "usage" in chunks[-1]
    usage = completion["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (1, len(RAW) + len("cut") + len("third"))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len("first 京")}
    # Each choice begins with the role and ends with its reason.
    for index in range(3):
        parts = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert parts[0]["delta"] == {"role": "assistant"}
        assert [bool(p["finish_reason"]) for p in parts] == [False] * (len(parts) - 1) + [True]


def test_too_few_turns_for_the_choices_are_an_error() -> None:
    with pytest.raises(ModelError, match="request 1 came, but only 2 turns are scripted and it asks for 3 choices"):
        ScriptedModel(["a", "b"]).stream(USER, n=3)


@given(st.permutations(range(3)), st.integers(1, 9))
def test_chunks_of_choices_may_come_mixed(order: list[int], piece: int) -> None:
    """Servers that generate all choices at once send their chunks as they come."""
    chunks = list(
        ScriptedModel(["a b c", RAW, "d\ne"], enable_thinking=True, piece=piece).stream(USER, n=3, tools=TOOLS)
    )
    whole = accumulate(chunks)
    mixed = sorted(chunks[:-1], key=lambda c: order.index(c["choices"][0]["index"])) + chunks[-1:]
    assert accumulate(mixed)["choices"] == whole["choices"]


# -- stop texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100])
def test_a_script_heeds_stop_texts_but_not_in_thoughts_and_calls(piece: int) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "END"}}\n</tool_call>'
    raw = "<think>\nto the END\n</think>\n\nwait\n" + call
    model = ScriptedModel([raw, "one EN two END three"], enable_thinking=True, piece=piece)
    first = model.create(USER, tools=TOOLS, stop="END")["choices"][0]
    assert first["message"]["reasoning_content"] == "to the END" and first["message"]["content"] == "wait"
    assert json.loads(first["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": "END"}
    options: Any = {"stop": ["END", "never"], "enable_thinking": False}
    second = model.create(USER, tools=TOOLS, **options)["choices"][0]
    assert second["message"]["content"] == "one EN two " and second["finish_reason"] == "stop"
    assert len(second["raw_output"]) < len("one EN two END") + piece, "it ends with the piece that completed the text"


def test_a_stop_text_found_late_is_a_stop() -> None:
    """Regression: an answer that is held back because it may be a thought was read at its end only; the limit that had
    ended the generation meanwhile was told as the reason, of a text that a stop text had cut."""
    turn = {"raw": "one END two three", "finish": "length"}
    (choice,) = ScriptedModel([turn], enable_thinking=True).create(USER, stop="END")["choices"]
    assert choice["message"]["content"] == "one " and choice["finish_reason"] == "stop"
    (choice,) = ScriptedModel([turn], enable_thinking=True).create(USER, stop="never")["choices"]
    assert choice["finish_reason"] == "length"


# -- OpenAI's form of a stream ----------------------------------------------------------------------------------------


def test_usage_comes_alone_and_last_where_it_is_asked_for() -> None:
    plain = list(ScriptedModel([RAW], enable_thinking=True).stream(USER, tools=TOOLS))
    chunks = list(
        ScriptedModel([RAW], enable_thinking=True).stream(USER, tools=TOOLS, stream_options={"include_usage": True})
    )
    assert len(chunks) == len(plain) + 1
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == plain[-1]["usage"]
    assert all(c["choices"] and c["usage"] is None for c in chunks[:-1])
    assert without_ids(accumulate(chunks)) == without_ids(accumulate(plain))


@pytest.mark.parametrize("options", [{"include_usage": False}, {}, {"include_obfuscation": False}])
def test_usage_comes_nowhere_where_it_is_not(options: dict[str, bool]) -> None:
    chunks = list(ScriptedModel(["a b", "c"]).stream(USER, n=2, stream_options=options))
    assert not any("usage" in c or "timings" in c for c in chunks) and all(c["choices"] for c in chunks)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (True, "stream_options must be"),
        ({"include_usage": 1}, "include_usage must be True or False"),
        ({"usage": True}, "no 'usage'; known: include_usage"),
        ({"include_obfuscation": True}, "include_obfuscation"),
    ],
)
def test_wrong_stream_options_are_named(options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        ScriptedModel(["a"]).stream(USER, stream_options=options)


def test_stream_options_are_a_streams() -> None:
    options: Any = {"stream_options": {"include_usage": True}}
    with pytest.raises(RequestError, match=r"'stream_options'; use stream\(\)"):
        ScriptedModel(["a"]).create(USER, **options)


def test_closing_a_stream_in_openais_form_closes_the_models() -> None:
    closed = []

    def chunks() -> Iterator[dict[str, Any]]:
        try:
            while True:
                yield {"id": "x", "choices": [{"index": 0, "delta": {}}]}
        finally:
            closed.append(True)

    stream = in_openais_form(chunks(), include_usage=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert closed == [True]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"tags": [1, 2]}', []),
        ('{"tags": [1, 1]}', [("/tags", "uniqueItems")]),
        ('{"tags": "x", "y": 1}', [("/tags", "type")]),
        ("no JSON", [("", "")]),
        ("", [("", "")]),
    ],
)
def test_an_answer_that_does_not_fit_its_response_format_is_said_to(content: str, found: list[tuple[str, str]]) -> None:
    """Regression: a warning said that what cannot be enforced is validated afterwards; nothing did so."""
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    user = [{"role": "user", "content": "x"}]
    choice = ScriptedModel([content]).create(user, response_format=form)["choices"][0]
    faults = choice.get("schema_violations", [])
    assert [(fault["pointer"], fault["keyword"]) for fault in faults] == found
    assert all(fault["message"].startswith("response_format: ") for fault in faults)
    cut = ScriptedModel([{"raw": content[:5], "finish": "length"}]).create(user, response_format=form)["choices"][0]
    assert "schema_violations" not in cut
