"""Whether a reply begins with a call: all that can begin one is weighed together."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from laploop.models import ChatModel, Request
from laploop.models.dialect import get_dialect
from laploop.models.opening import end_bias, is_open, share_of_calls

USER = [{"role": "user", "content": "Hi"}]
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
CODER = get_dialect("qwen2.5-coder")
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "nothing"}


@pytest.fixture
def leaning(tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the share at which the tiny model calls."""

    def set_share(share: float) -> ChatModel:
        monkeypatch.setattr(tiny_chat, "dialect", dataclasses.replace(CODER, call_share=share))
        return tiny_chat

    return set_share


def test_ways_to_begin_a_call_count_together(tiny_chat: ChatModel) -> None:
    """Two ways to begin a call, each less probable than the text, are more probable together."""
    vocabulary = tiny_chat.engine.vocabulary
    special = vocabulary.special["<tool_call>"]
    brace, letter = (vocabulary.tokenize(text)[0] for text in ("{", "z"))
    top = [(letter, math.log(0.4)), (special, math.log(0.3)), (brace, math.log(0.3))]
    assert share_of_calls(top, vocabulary, CODER) == pytest.approx(0.6)
    assert share_of_calls(top[:1], vocabulary, CODER) == 0


@pytest.mark.parametrize(("share", "calls"), [(0.0, True), (2.0, False)])
def test_the_share_decides(leaning: Any, share: float, calls: bool) -> None:
    message = leaning(share).create(USER, tools=[LOOK], max_tokens=80, seed=1)["choices"][0]["message"]
    assert bool(message.get("tool_calls")) == calls
    assert bool(message.get("content")) != calls


def test_behind_results_the_most_probable_token_decides() -> None:
    options = {"tools": [LOOK]}
    assert is_open(Request.of(USER, options), CODER)
    assert not is_open(Request.of([*USER, CALL, RESULT], options), CODER)


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_streamed_is_plain(leaning: Any, share: float) -> None:
    model = leaning(share)
    options: dict[str, Any] = {"tools": [LOOK], "max_tokens": 80, "seed": 1}
    plain = model.create(USER, **options)["choices"][0]
    deltas = [c["choices"][0]["delta"] for c in model.stream(USER, **options) if c["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == (plain["message"].get("content") or "")
    assert [d for d in deltas if d.get("tool_calls")] != [] or not plain["message"].get("tool_calls")


def test_weighing_costs_one_step_and_no_second_prompt(leaning: Any) -> None:
    fresh = [{"role": "user", "content": "What is new since yesterday evening?"}]
    timings = leaning(2.0).create(fresh, tools=[LOOK], max_tokens=4, seed=1)["timings"]
    assert timings["predicted_steps"] <= timings["predicted_n"] + 1
    assert timings["prompt_n"] > 0, "what the weighing evaluated is not counted as cached"


@pytest.mark.parametrize(
    ("options", "is_weighed"),
    [
        ({"tools": [LOOK]}, True),
        ({"tools": [LOOK], "tool_choice": "required"}, False),
        ({"tools": [LOOK], "tool_choice": "none"}, False),
        ({"tools": [LOOK], "response_format": {"type": "json_object"}}, False),
        ({}, False),
    ],
)
def test_only_what_is_open_is_weighed(options: dict[str, Any], is_weighed: bool) -> None:
    assert is_open(Request.of(USER, options), CODER) == is_weighed
    assert not is_open(Request.of(USER, options), get_dialect("qwen3")), "one mark, which the model was trained for"


def test_calling_permits_the_same_tools_and_asks_for_one() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    only = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]},
    }
    for choice in ("auto", "required", only):
        request = Request.of(USER, {"tools": [LOOK, other], "tool_choice": choice})
        assert not request.must_call or choice == "required"
        assert request.calling().must_call
        assert request.calling().allowed_names == request.allowed_names


def test_a_block_ends_where_another_call_is_not_sure(tiny_chat: ChatModel) -> None:
    """Its closing mark's beginnings gain what nine to one comes to; other marks and families gain nothing."""
    vocabulary = tiny_chat.engine.vocabulary
    bias = end_bias(vocabulary, dataclasses.replace(CODER, more_share=0.9))
    assert list(bias.values()) == pytest.approx([math.log(9)] * len(bias))
    assert {vocabulary.name_of(token) for token in bias} >= {"<"}
    assert all("</tools>".startswith(vocabulary.name_of(token)) for token in bias)
    assert end_bias(vocabulary, get_dialect("qwen3")) == {}


@pytest.mark.parametrize(("share", "n_calls"), [(1 - 1e-9, 1), (1e-9, 2)])
def test_the_share_of_another_call_decides_how_many_there_are(
    tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch, share: float, n_calls: int
) -> None:
    family = dataclasses.replace(CODER, more_share=share, wrappers=CODER.wrappers[1:])
    monkeypatch.setattr(tiny_chat, "dialect", family)
    reply = tiny_chat.create(USER, tools=[LOOK], tool_choice="required", max_tokens=80, seed=1, temperature=0)
    assert min(len(reply["choices"][0]["message"]["tool_calls"]), 2) == n_calls
