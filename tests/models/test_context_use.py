"""What messages take of the context: the parts add up to the prompt, and each is what its text takes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.engine import ContextError
from laploop.models import ChatModel

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]
SYSTEM = {"role": "system", "content": "Be brief."}


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "get_time", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def said(text: str, thought: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})


TEXT = st.text(st.sampled_from("ab 京\n<|im_end|>"), min_size=1, max_size=30)
TURN = st.one_of(
    st.tuples(TEXT, TEXT).map(lambda t: [user(t[0]), said(t[1])]),
    st.tuples(TEXT, TEXT, TEXT).map(lambda t: [user(t[0]), said(t[1], t[2])]),
    st.tuples(TEXT, TEXT, TEXT).map(lambda t: [user(t[0]), call("a"), result("a", t[1]), said(t[2])]),
    st.tuples(TEXT, TEXT, TEXT).map(lambda t: [user(t[0]), call("a", "b"), result("a", t[1]), result("b", t[2])]),
)


@settings(max_examples=60)
@given(
    turns=st.lists(TURN, min_size=1, max_size=4),
    system=st.booleans(),
    tools=st.sampled_from([None, TOOLS]),
    dialect=st.sampled_from([None, "react"]),
)
def test_the_parts_add_up_to_the_prompt(
    tiny_chat: ChatModel, turns: list[list[dict[str, Any]]], system: bool, tools: Any, dialect: str | None
) -> None:
    model = ChatModel(tiny_chat.engine, "tiny", dialect)
    messages = [SYSTEM] * system + [m for turn in turns for m in turn]
    use = model.context_use(messages, tools)
    assert use.n_used == model.count_tokens(messages, tools)
    assert use.n_left == model.n_ctx - use.n_used
    assert len(use.messages) == len(messages)
    assert min(*use.messages, use.n_tools, use.n_rest) >= 0


def test_each_message_costs_what_it_adds(tiny_chat: ChatModel) -> None:
    """Where the template tells messages one after the other, the cost is the difference that a message makes."""
    count = tiny_chat.count_tokens
    messages = [SYSTEM, user("a b"), user("京 b a b"), user("again and again")]
    use = tiny_chat.context_use(messages, TOOLS)
    prompts = [count(messages[:n], TOOLS) for n in (1, 2, 3, 4)]
    assert list(use.messages[1:]) == [b - a for a, b in itertools.pairwise(prompts)]
    assert use.n_tools == count([*messages[:1], user("x")], TOOLS) - count([*messages[:1], user("x")])
    assert use.messages[0] + use.n_tools + use.n_rest == prompts[0]


def test_results_of_one_turn_are_told_apart(tiny_chat: ChatModel) -> None:
    """Qwen's template puts them into one turn of the user's."""
    messages = [user("a"), call("a", "b"), result("a", "brown fox " * 20), result("b", "x"), said("b")]
    use = tiny_chat.context_use(messages, TOOLS)
    assert use.messages[2] > 20 > use.messages[3] > 0


def test_thoughts_of_a_loop_under_way_are_counted_where_they_are_told(tiny_chat: ChatModel) -> None:
    """The template repeats thoughts since the last question, and drops older ones."""
    thoughtful = call("a") | {"reasoning_content": "the quick brown fox " * 20}
    now = tiny_chat.context_use([user("a"), thoughtful, result("a", "x")], TOOLS).messages[1]
    later = tiny_chat.context_use([user("a"), thoughtful, result("a", "x"), said("b"), user("c")], TOOLS).messages[1]
    assert now > later + 20


def test_a_prompt_fits_up_to_the_last_token(tiny_chat: ChatModel) -> None:
    """One token of room is enough for a reply of one; with none both numbers and the way out are told, undecoded."""
    n_ctx = tiny_chat.n_ctx
    n_around = tiny_chat.count_tokens([user("x")]) - 1
    fits = user("x" * (n_ctx - n_around - 1))
    assert tiny_chat.context_use([fits]).n_left == 1
    reply = tiny_chat.create([fits], max_tokens=50, temperature=0)
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (n_ctx - 1, 1)
    full = user("x" * (n_ctx - n_around))
    assert tiny_chat.context_use([full]).n_left == 0
    before = [list(slot.cached) for slot in tiny_chat.engine._slots]
    with pytest.raises(ContextError, match=rf"{n_ctx} tokens, the context holds {n_ctx}: use a larger n_ctx \(-c\)"):
        tiny_chat.create([full])
    over = user("x" * (n_ctx - n_around + 1))
    with pytest.raises(ContextError, match=rf"{n_ctx + 1} tokens, the context holds {n_ctx}"):
        tiny_chat.create([over])
    assert [list(slot.cached) for slot in tiny_chat.engine._slots] == before
