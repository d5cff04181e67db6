"""Sampled tokens stay: a prompt that goes on behind a reply begins with the tokens of that reply, however the template
tells it. And what must not stay does not."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.models import ChatModel, Request

USER = [{"role": "user", "content": "Is it warm in 北京?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
HOT = {"temperature": 1.5, "top_k": 0, "top_p": 1.0}
CALLS: dict[str, dict[str, Any]] = {
    "one call": {"tool_choice": "required", "parallel_tool_calls": False, "enable_thinking": False},
    "calls": {"tool_choice": "required", "enable_thinking": False},
    "free": {"enable_thinking": False},
    "thought first": {"tool_choice": "required", "thinking_budget": 6},
}


def tokens_behind(model: ChatModel, messages: list[dict[str, Any]], tools: Any) -> list[int]:
    return model._transcripts.tokens_of(model.render(Request.of(messages, {"tools": tools})))


def answered(message: dict[str, Any], text: str = "<|im_end|> 晴") -> list[dict[str, Any]]:
    """The message, and what may follow it."""
    calls = message.get("tool_calls")
    results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in calls or ()]
    return [message, *(results or [{"role": "user", "content": text}])]


def has_mark(model: ChatModel, message: dict[str, Any]) -> bool:
    said = [message.get("content"), message.get("reasoning_content")]
    said += [str(call["function"]) for call in message.get("tool_calls", ())]
    return any(model.engine.vocabulary.special_pattern.search(text or "") for text in said)


@pytest.mark.parametrize("dialect", ["qwen3", "qwen2.5", "react"])
@pytest.mark.parametrize("kind", CALLS)
def test_a_round_evaluates_what_is_new(tiny_chat: ChatModel, dialect: str, kind: str) -> None:
    """C059: `cached_tokens` is all of the round before but what was chosen last and never decoded: the mark that the
    grammar put at its end, which is cut into single characters here.

    Regression: every reply behind the empty block of thoughts that Qwen3's template leaves out of a history was
    evaluated anew.
    """
    model = ChatModel(tiny_chat.engine, "tiny", dialect)
    n_rounds = 0
    for seed in range(4):
        messages, n_before = list(USER), 0
        for i in range(4):
            options = {**CALLS[kind], **HOT, "seed": 10 * seed + i}
            reply = model.create(messages, tools=TOOLS, max_tokens=150, **options)
            choice, usage = reply["choices"][0], reply["usage"]
            n_cached = usage["prompt_tokens_details"]["cached_tokens"]
            if n_before:
                assert n_before - len("}}\n</tools>") <= n_cached <= n_before
                n_rounds += 1
            messages += answered(choice["message"])
            whole = choice["finish_reason"] != "length" and "invalid_tool_calls" not in choice
            whole = whole and not has_mark(model, choice["message"])
            # Random weights write these; the protocol does not retell a thought of no words.
            whole = whole and not any(text in choice["raw_output"] for text in ("\nObservation:", "Thought:\n"))
            n_before = usage["total_tokens"] if whole else 0
    assert n_rounds


def test_another_history_is_not_taken_for_it(tiny_chat: ChatModel) -> None:
    for seed in range(5):
        reply = tiny_chat.create(USER, max_tokens=12, enable_thinking=False, seed=seed, **HOT)
        message = {**reply["choices"][0]["message"], "content": "It rains."}
        fresh = ChatModel(tiny_chat.engine, "fresh")
        messages = [*USER, *answered(message)]
        assert tokens_behind(tiny_chat, messages, None) == tokens_behind(fresh, messages, None)


def test_a_mark_in_a_reply_comes_back_as_text(tiny_chat: ChatModel) -> None:
    """Control tokens that a model was talked into do not stay in its history."""
    mark = tiny_chat.engine.vocabulary.special["<|im_start|>"]
    reply = tiny_chat.create(USER, max_tokens=4, enable_thinking=False, temperature=0, logit_bias={mark: 100})
    message = reply["choices"][0]["message"]
    assert message["content"] == "<|im_start|>" * 4
    tokens = tokens_behind(tiny_chat, [*USER, *answered(message)], None)
    assert tokens.count(mark) == 4  # those of the user, the assistant, the user, the assistant


def test_old_thoughts_go_as_the_template_has_it(tiny_chat: ChatModel) -> None:
    """Qwen3's drops them once the user speaks again: what was before them stays."""
    n_thoughts = 0
    for seed in range(8):
        reply = tiny_chat.create(USER, tools=TOOLS, max_tokens=60, seed=seed, **CALLS["thought first"], **HOT)
        message = reply["choices"][0]["message"]
        if not message.get("reasoning_content") or has_mark(tiny_chat, message):
            continue
        n_thoughts += 1
        later = [{"role": "assistant", "content": "It is."}, {"role": "user", "content": "And in Rome?"}]
        messages = [*USER, *answered(message), *later]
        fresh = ChatModel(tiny_chat.engine, "fresh")
        assert tokens_behind(tiny_chat, messages, TOOLS) == tokens_behind(fresh, messages, TOOLS)
        reply = tiny_chat.create(messages, tools=TOOLS, max_tokens=1, enable_thinking=False)
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= tiny_chat.count_tokens(USER, TOOLS)
    assert n_thoughts


def test_other_marks_are_told_in_the_templates_own(tiny_chat: ChatModel) -> None:
    """Qwen2.5-Coder 1.5B writes calls in marks of its own; where it saw its own fences again it went on calling."""
    model, n_others = ChatModel(tiny_chat.engine, "tiny", "qwen2.5-coder"), 0
    prompt = str(model.render(Request.of(USER, {"tools": TOOLS})))
    for seed in range(8):
        reply = model.create(USER, tools=TOOLS, max_tokens=60, seed=seed, **CALLS["one call"], **HOT)
        choice = reply["choices"][0]
        n_others += choice["raw_output"].startswith("<tools>")
        messages = [*USER, *answered(choice["message"])]
        told = model.engine.detokenize(tokens_behind(model, messages, TOOLS))
        assert told.count("<tools>") == prompt.count("<tools>")
        assert told.count("</tool_call>") == 1 + prompt.count("</tool_call>")
    assert n_others
