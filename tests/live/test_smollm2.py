"""smollm2-135m: the smallest real model; it chats. Its template has no place for tools: see test_react.py."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.models import ChatModel, accumulate

MODEL = "smollm2-135m"
N_CTX = 2048


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_it_chats(model: ChatModel) -> None:
    reply = model.create(ask("Say hello to Anna."), temperature=0, max_tokens=40)
    [choice] = reply["choices"]
    assert choice["message"]["role"] == "assistant"
    assert any(char.isalpha() for char in choice["message"]["content"])
    assert choice["finish_reason"] in ("stop", "length")
    assert "<|im_" not in choice["message"]["content"]
    usage = reply["usage"]
    assert 0 < usage["completion_tokens"] <= 40
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert reply["timings"]["predicted_per_second"] > 0


@pytest.mark.parametrize("text", ["Write one sentence about the sea.", "用一句话介绍北京。"])
def test_streamed_is_plain(model: ChatModel, text: str) -> None:
    """Bit-equal: the file is Q4_1, whose results do not depend on how tokens are batched."""
    plain = model.create(ask(text), temperature=0, max_tokens=48)
    chunks = list(model.stream(ask(text), temperature=0, max_tokens=48))
    streamed = accumulate(chunks)
    assert len([c for c in chunks if c["choices"][0]["delta"].get("content")]) > 3, "it came in pieces"
    assert streamed["choices"] == plain["choices"]
    assert streamed["choices"][0]["raw_output"] == plain["choices"][0]["raw_output"]
    assert streamed["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


def test_each_turn_reuses_the_whole_turn_before(model: ChatModel) -> None:
    messages = ask("Hello, my name is Anna.")
    before = 0
    for text in ("What is my name?", "Say it again.", "Thank you."):
        reply = model.create(messages, temperature=0, max_tokens=24)
        usage = reply["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert before <= cached < usage["prompt_tokens"]
        before = usage["prompt_tokens"]  # the next prompt begins with all of this one
        messages = [*messages, reply["choices"][0]["message"], *ask(text)]
    assert before > 0
