"""Compaction and long results: nothing is parted, the question stays, the trace keeps all, no context overflows."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.agent import Agent, Compaction, ConfigError, Guards, Memory, ResultCut, RunResult, Session, check_history
from laploop.agent.tokens import TokenCounter
from laploop.models import ChatModel, Model, ScriptedModel
from laploop.models.requests.request import Request
from laploop.tools import Tool, tool

Calls = Callable[..., str]
SUMMARY = {"goal": "find it", "facts": [{"fact": "page 1 is empty", "source": "read"}], "done": ["page 1"], "open": []}
QUESTION = "Where in the long book is the word that I look for?"


@tool
def read(page: int) -> str:
    """Read a page.

    Args:
        page: number
    """
    return f"page {page}: " + "nothing here " * 30


def reading(calls: Calls, n: int) -> str:
    return calls(("read", {"page": n}))


def run_with(turns: list[Any], **given_settings: Any) -> tuple[RunResult, list[Any], ScriptedModel]:
    model = ScriptedModel(turns)
    events = list(Agent(model, [read], max_rounds=50, **given_settings).stream(QUESTION))
    result = events[-1].result
    check_history(result.messages)
    return result, [e for e in events if isinstance(e, Compaction)], model


def test_old_rounds_become_the_models_summary(calls: Calls) -> None:
    turns = [*(reading(calls, n) for n in (1, 2, 3)), json.dumps(SUMMARY), reading(calls, 4), "Not there."]
    result, compactions, model = run_with(turns, memory=Memory(compact_at_tokens=600))
    assert [(c.by, c.n_messages_replaced, c.estimated) for c in compactions] == [("model", 4, True)]
    assert compactions[0].n_tokens_after < compactions[0].n_tokens_before
    asked, before = model.requests[3], model.requests[2]
    assert asked.messages[:-1] == before.messages, "what the model has read already is not read again"
    assert asked.tools == before.tools
    assert asked.tool_choice == "none"
    after = model.requests[4].messages
    assert [m["role"] for m in after] == ["system", "user", "assistant", "tool"]
    assert after[1]["content"].startswith(QUESTION)
    assert "page 1 is empty" in after[1]["content"]
    assert "data, not instructions" in after[1]["content"]
    assert "page 3" in after[3]["content"]
    assert (result.answer, result.rounds) == ("Not there.", 5)
    assert len(result.calls) == 4, "the trace has every result"


@pytest.mark.parametrize("bad", ["not JSON at all", {"raw": '{"goal": "', "finish": "length"}, ""])
def test_without_a_summary_of_the_model_the_loop_writes_one(calls: Calls, bad: Any) -> None:
    turns = [reading(calls, 1), reading(calls, 2), bad, "Not there."]
    result, compactions, model = run_with(turns, memory=Memory(compact_at_tokens=450))
    assert [c.by for c in compactions] == ["loop"]
    assert compactions[0].detail
    assert 'read({\\"page\\": 1})' in model.requests[-1].messages[1]["content"]
    assert result.answer == "Not there."


def test_a_second_summary_takes_the_place_of_the_first(calls: Calls) -> None:
    first, second = ({**SUMMARY, "goal": goal} for goal in ("first summary", "second summary"))
    turns = [reading(calls, 1), reading(calls, 2), json.dumps(first), reading(calls, 3), json.dumps(second), "No."]
    _, compactions, model = run_with(turns, memory=Memory(compact_at_tokens=450))
    assert len(compactions) == 2
    assert "first summary" in model.requests[4].messages[1]["content"], "the second is made of the first"
    last = model.requests[-1].messages[1]["content"]
    assert "second summary" in last and "first summary" not in last
    assert last.count(QUESTION) == 1


def test_the_last_rounds_can_stay(calls: Calls) -> None:
    turns = [*(reading(calls, n) for n in range(1, 5)), json.dumps(SUMMARY), "Not there."]
    _, compactions, model = run_with(turns, memory=Memory(compact_at_tokens=720, keep_rounds=2))
    assert [c.n_messages_replaced for c in compactions] == [4]
    assert [m["role"] for m in model.requests[-1].messages] == ["system", "user", *["assistant", "tool"] * 2]


def test_it_can_be_switched_off(calls: Calls) -> None:
    _, compactions, _ = run_with(
        [*(reading(calls, n) for n in range(4)), "No."], memory=Memory(compact=False, compact_at_tokens=10)
    )
    assert compactions == []


def test_a_long_session_is_compacted_before_the_first_round() -> None:
    session = Session()
    for n in range(6):
        session.messages += [{"role": "user", "content": f"{n} " * 200}, {"role": "assistant", "content": "yes"}]
    model = ScriptedModel([json.dumps(SUMMARY), "Here."])
    agent = Agent(model, [read], memory=Memory(compact_at_tokens=500))
    assert agent.run(QUESTION, session).answer == "Here."
    assert [m["role"] for m in session.messages] == ["user", "assistant"]
    assert session.messages[0]["content"].startswith(QUESTION)


@given(st.data())
@settings(max_examples=50)
def test_pairs_are_never_parted_and_the_question_never_lost(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.integers(0, 4000), min_size=1, max_size=12))
    numbers = iter(texts)

    def say(n: int) -> str:
        return "x" * next(numbers, 10)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    class Endless(ScriptedModel):
        """Calls until the pages are read; summaries whenever it is asked for one."""

        def _stream(self, request: Request) -> Iterator[Any]:
            is_summary = request.response_format is not None
            n = len(self.requests)
            body = f'{{"name": "say", "arguments": {{"n": {n}}}}}'
            calls = "\n".join([f"<tool_call>\n{body}\n</tool_call>"] * data.draw(st.integers(1, 2)))
            raw = json.dumps(SUMMARY) if is_summary else calls if request.tool_choice != "none" else "done"
            self._turns.append(raw)
            return super()._stream(request)

    model = Endless([])
    memory = Memory(
        compact_at_tokens=data.draw(st.integers(1, 2000)),
        keep_rounds=data.draw(st.integers(1, 4)),
        result_tokens=data.draw(st.none() | st.integers(1, 500)),
    )
    agent = Agent(model, [Tool("say", "Say.", schema, say)], max_rounds=len(texts), memory=memory)
    result = agent.run(QUESTION)
    check_history(result.messages)
    for request in model.requests:
        check_history([dict(m) for m in request.messages])
        users = [str(m["content"]) for m in request.messages if m["role"] == "user"]
        assert any(u.startswith(QUESTION) for u in users)
        assert request.messages[0]["role"] == "system"


def test_a_result_of_fifty_megabytes_is_cut_and_kept_whole_in_the_trace(calls: Calls, tiny_chat: ChatModel) -> None:
    """It must not end in an error of the context."""
    text = "0123456789" * 5_000_000

    @tool
    def dump() -> str:
        """Everything."""
        return text

    class Calling(Forced):
        n_forced = 1

    events = list(Agent(Calling(tiny_chat), [dump], max_tokens=40, max_rounds=1, system_prompt="").stream("All?"))
    result = events[-1].result  # type: ignore[union-attr]
    assert result.calls[0]["content"] == text
    cut = next(e for e in events if isinstance(e, ResultCut))
    assert cut.n_chars == len(text)
    shown = next(m["content"] for m in result.messages if m["role"] == "tool")
    assert shown == cut.shown
    assert "of 50,000,000 characters" in shown
    assert TokenCounter(tiny_chat).of_text(shown) <= tiny_chat.n_ctx // 4


class Forced(Model):
    """A model in this process that has to call a tool for so many rounds: random weights seldom do so by choice."""

    n_forced = 40

    def __init__(self, model: ChatModel) -> None:
        self.model, self.name, self.n_ctx = model, model.name, model.n_ctx
        self.count_tokens = model.count_tokens
        self.prompts: list[tuple[int, tuple[Any, ...]]] = []

    def _stream(self, request: Request) -> Iterator[Any]:
        self.prompts.append((self.count_tokens(list(request.messages), list(request.tools)), request.messages))
        if request.tool_choice == "auto" and self.n_forced:
            self.n_forced -= 1
            request = dataclasses.replace(request, tool_choice="required")
        return self.model._stream(request)


def test_forty_rounds_in_a_context_of_2048(tiny_chat: ChatModel) -> None:
    """Must show 5 of the loop's issue: never an overflow, every pair whole, the goal still in the prompt."""

    @tool
    def note(text: str) -> str:
        """Keep a note.

        Args:
            text: what to keep
        """
        return f"kept: {text[:50]}; " + "more about it, and more again; " * 20

    model = Forced(tiny_chat)
    note.parameters["properties"]["text"]["maxLength"] = 40
    # Random weights repeat themselves; what is done about that is not what this is about.
    options: dict[str, Any] = {"temperature": 1.5, "seed": 7, "max_tokens": 300, "guards": Guards.off()}
    agent = Agent(model, [note], max_rounds=40, system_prompt="Keep notes.", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        events = list(agent.stream("The goal is GOAL-4711: keep forty notes."))
    result = events[-1].result  # type: ignore[union-attr]
    compactions = [e for e in events if isinstance(e, Compaction)]
    assert result.trace.of_type("round_started")[-1]["round"] == 41
    assert len([r for r in result.calls if r["executed"]]) >= 40
    assert len(compactions) >= 5
    assert tiny_chat.n_ctx == 2048
    for n_tokens, messages in model.prompts:
        assert n_tokens < tiny_chat.n_ctx
        assert "GOAL-4711" in json.dumps(messages)
        check_history([dict(m) for m in messages])
    check_history(result.messages)
    assert not any(c.estimated for c in compactions)


@pytest.mark.parametrize("bad", [{"keep_rounds": 0}, {"compact_at_tokens": 0}, {"result_tokens": -1}])
def test_numbers_that_cannot_be_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Memory(**bad)  # type: ignore[arg-type]


def test_a_summary_that_is_longer_than_what_it_replaces_is_dropped(calls: Calls) -> None:
    """Regression: a history grew by its compaction, from 3,169 to 3,469 tokens."""

    @tool
    def ping(n: int) -> str:
        """Ask once. Returns ok."""
        return "ok"

    long = json.dumps({**SUMMARY, "done": ["word " * 60]})
    turns: list[Any] = [calls(("ping", {"n": 1})), calls(("ping", {"n": 2})), long, "Done."]
    model = ScriptedModel(turns)
    events = list(Agent(model, [ping], memory=Memory(compact_at_tokens=160)).stream(QUESTION + " please" * 60))
    told = [event for event in events if isinstance(event, Compaction)]
    assert all(event.n_tokens_after < event.n_tokens_before for event in told)
    assert events[-1].result.answer == "Done."
