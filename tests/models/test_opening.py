"""Whether a reply begins with a call: all that can begin one is weighed together."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from laploop.models import ChatModel, Request
from laploop.models.dialect import get_dialect
from laploop.models.opening import answering, calls_since_asked, end_bias, is_open, share_of_calls

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


def behind_results(question: str = "Hi", **options: Any) -> Request:
    return Request.of([{"role": "user", "content": question}, CALL, RESULT], {"tools": [LOOK], **options})


def test_behind_results_it_is_weighed_whether_a_call_would_be_another_one() -> None:
    assert is_open(behind_results(), CODER)
    assert not is_open(behind_results(tool_choice="none"), CODER)
    assert not is_open(behind_results(), get_dialect("qwen3")), "trained on results"


def test_a_call_is_known_again_however_its_arguments_came_back() -> None:
    """Regression: Pydantic AI sends arguments back without spaces, the model repeats them so, and the call was taken
    for another one."""
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":"门"}'}}
    messages = [*USER, CALL, RESULT, *USER, {"role": "assistant", "tool_calls": [call]}, RESULT]
    assert [*calls_since_asked(Request.of(messages, {"tools": [LOOK]}))] == [
        '{"name": "look", "arguments": {"at":"门"}}',
        '{"name": "look", "arguments": {"at": "门"}}',
    ]
    call["function"]["arguments"] = {"at": "门"}
    assert [*calls_since_asked(Request.of(messages, {"tools": [LOOK]}))] == [
        '{"name": "look", "arguments": {"at": "门"}}'
    ]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("Is it open?", "Answer from the results: Is it open?"),
        ("开门了吗？", "请根据结果回答：开门了吗？"),
        ("{question}", "Answer from the results: {question}"),
    ],
)
def test_the_question_stands_behind_the_results_of_an_answer(question: str, line: str) -> None:
    request = behind_results(question)
    asked = answering(request, CODER)
    assert asked.messages == (*request.messages, {"role": "user", "content": line})
    assert asked.allowed_names == [] and asked.tools == request.tools


def test_of_a_long_question_beginning_and_end_are_said_again() -> None:
    (line,) = answering(behind_results("a" * 5000 + "b" * 5000), CODER).messages[3:]
    assert line["content"] == f"Answer from the results: {'a' * 500} … {'b' * 500}"


def test_nothing_is_said_again_where_nobody_asked_or_the_family_needs_it_not() -> None:
    for request, family in [
        (behind_results(""), CODER),
        (behind_results(), get_dialect("qwen3")),
        (Request.of(USER, {"tools": [LOOK]}), CODER),
    ]:
        assert answering(request, family).messages == request.messages


def test_marks_in_the_question_stay_text(tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is content wherever it stands: no control token comes from it."""
    plain, marked = (answering(behind_results(f"Hi {text}"), CODER) for text in ("there", "<|im_end|>"))
    special = set(tiny_chat.engine.vocabulary.special.values())
    counts = [
        sum(token in special for token in tiny_chat._transcripts.tokens_of(tiny_chat.render(request)))
        for request in (plain, marked)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_a_reply_behind_results_comes_whatever_the_share(
    tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(tiny_chat, "dialect", dataclasses.replace(CODER, again_share=share))
    request = behind_results()
    reply = tiny_chat.create(request.messages, tools=[LOOK], max_tokens=60, seed=1)["choices"][0]["message"]
    assert reply.get("tool_calls") or reply["content"]


def test_a_context_without_room_for_the_question_does_without(
    tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is a help; where the prompt just fits, it is not what makes it too long."""
    monkeypatch.setattr(tiny_chat, "dialect", CODER)
    word, n = "go ", 1
    while tiny_chat.count_tokens(behind_results(word * n).messages, [LOOK]) < tiny_chat.n_ctx - 100:
        n += 20
    request = behind_results(word * n, tool_choice="none", max_tokens=4)
    assert tiny_chat.create(request.messages, tools=[LOOK], tool_choice="none", max_tokens=4)["usage"]["prompt_tokens"]


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
