"""The protocol of the loop: what goes to the model, what comes back, and in which order (mission, part A)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from laploop.agent import (
    Agent,
    CallBegun,
    CallFinished,
    ConfigError,
    HistoryError,
    ReasoningDelta,
    RoundFinished,
    RoundLimitError,
    RunFinished,
    Session,
    TextDelta,
    check_history,
)
from laploop.agent.agent import DEFAULT_MAX_TOKENS
from laploop.agent.reply import with_unique_ids
from laploop.models import Model, ModelError, ScriptedModel
from laploop.models.requests.request import Request
from laploop.tools import Tool, tool

Calls = Callable[..., str]


@tool(needs={"url": "get_news"})
def read_url(url: str) -> dict[str, str]:
    """Read a page.

    Args:
        url: its address
    """
    return {"title": "A small model", "text": f"the text of {url}"}


@tool
def get_news(topic: str) -> list[dict[str, str]]:
    """Find news.

    Args:
        topic: what about
    """
    return [{"title": f"{topic} today", "url": "http://127.0.0.1/news/7"}]


@tool
def get_weather(city: str) -> dict[str, Any]:
    """Weather of a city.

    Args:
        city: name of the city
    """
    return {"city": city, "temperature_c": {"北京": 31, "上海": 28}[city]}


TOOLS: list[Tool] = [get_weather, get_news, read_url]


def test_two_calls_in_one_round_then_the_answer(calls: Calls) -> None:
    """The articles' first question: both calls in one reply, results in call order, paired by id."""
    turns = [calls(("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"})), "北京更热。"]
    with ScriptedModel(turns) as model:
        result = Agent(model, TOOLS).run("北京和上海今天哪里更热？")
    roles = [m["role"] for m in result.messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    asked = result.messages[2]["tool_calls"]
    assert [c["type"] for c in asked] == ["function", "function"]
    assert all(isinstance(c["function"]["arguments"], str) for c in asked)
    assert [m["tool_call_id"] for m in result.messages[3:5]] == [c["id"] for c in asked]
    assert [json.loads(m["content"])["temperature_c"] for m in result.messages[3:5]] == [31, 28]
    assert (result.answer, result.stop_reason, result.rounds) == ("北京更热。", "answer", 2)
    assert result.answered


def test_a_later_call_takes_its_argument_from_an_earlier_result(calls: Calls) -> None:
    """The articles' second question: two tool rounds in sequence; the request holds everything that came
    before.
    """
    turns = [
        calls(("get_news", {"topic": "AI"})),
        calls(("read_url", {"url": "http://127.0.0.1/news/7"})),
        "第一条是 A small model。",
    ]
    with ScriptedModel(turns) as model:
        result = Agent(model, TOOLS).run("帮我看看今天 AI 新闻里第一条的正文。")
    assert [r["name"] for r in result.calls] == ["get_news", "read_url"]
    sent = [[m["role"] for m in request.messages] for request in model.requests]
    assert sent[0] == ["system", "user"]
    assert sent[1] == [*sent[0], "assistant", "tool"]
    assert sent[2] == [*sent[1], "assistant", "tool"]
    assert "the text of http://127.0.0.1/news/7" in result.messages[5]["content"]


def test_the_history_only_grows_and_the_tools_stay_the_same(calls: Calls) -> None:
    """Otherwise the cached prefix of the prompt would be thrown away in the middle of a run."""
    turns = [calls(("get_weather", {"city": "北京"}))] * 5 + ["31"]
    model = ScriptedModel(turns)
    Agent(model, TOOLS, max_rounds=50).run("北京多少度？")
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert after.tools == before.tools


def test_the_assistant_message_goes_back_as_the_model_gave_it(calls: Calls) -> None:
    raw = "<think>\nBoth are needed.\n</think>\n\nOne moment.\n" + calls(("get_weather", {"city": "上海"}))
    model = ScriptedModel([raw, "28"], enable_thinking=True)
    events = list(Agent(model, TOOLS).stream("上海多少度？"))
    replies = [e.message for e in events if isinstance(e, RoundFinished)]
    assert model.requests[1].messages[2] == replies[0]
    assert replies[0]["reasoning_content"].strip() == "Both are needed."
    assert replies[0]["content"].strip() == "One moment."


def test_the_deltas_add_up_to_the_messages(calls: Calls) -> None:
    raw = "<think>\nHm.\n</think>\n\nFirst, the weather.\n" + calls(("get_weather", {"city": "上海"}))
    answer = "It is **28** degrees.\n\n- humid"
    model = ScriptedModel([raw, answer], enable_thinking=True, piece=1)
    events = list(Agent(model, TOOLS).stream("Weather in 上海?"))
    for finished in (e for e in events if isinstance(e, RoundFinished)):
        text = "".join(e.text for e in events if isinstance(e, TextDelta) and e.round == finished.round)
        thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta) and e.round == finished.round)
        assert text == (finished.message["content"] or "")
        assert thought == finished.message.get("reasoning_content", "")


def test_white_space_of_a_tool_round_is_not_shown(calls: Calls) -> None:
    model = ScriptedModel(["\n\n" + calls(("get_weather", {"city": "上海"})), "28"], piece=1)
    events = list(Agent(model, TOOLS).stream("上海?"))
    assert [e.text for e in events if isinstance(e, TextDelta) and e.round == 1] == []


def test_a_question_without_need_of_tools_takes_one_round() -> None:
    with ScriptedModel(["2"]) as model:
        result = Agent(model, TOOLS).run("1+1等于几？")
    assert (result.answer, result.rounds, result.calls) == ("2", 1, [])


def test_bad_arguments_become_a_result_that_the_model_can_mend(calls: Calls) -> None:
    turns = [calls(("get_weather", {"town": "北京"})), calls(("get_weather", {"city": "北京"})), "31"]
    with ScriptedModel(turns) as model:
        result = Agent(model, TOOLS).run("北京?")
    assert [r["is_error"] for r in result.calls] == [True, False]
    assert "city" in result.calls[0]["content"]


def test_a_malformed_call_goes_back_with_the_fault_and_its_place() -> None:
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call>'
    with ScriptedModel([broken, "Sorry."]) as model:
        result = Agent(model, TOOLS).run("What about Rome?")
    said, correction = model.requests[1].messages[2:4]
    assert said["role"] == "assistant"
    assert '{"name": "get_weather", "arguments": {"city": }}' in said["content"]
    assert correction["role"] == "user"
    fault = result.trace.of_type("round_finished")[0]["invalid_tool_calls"][0]["error"]
    assert fault in correction["content"]
    assert result.stop_reason == "answer"


def test_a_malformed_call_beside_a_good_one_does_not_take_it_along(calls: Calls) -> None:
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call>'
    turns = [calls(("get_weather", {"city": "北京"})) + "\n" + broken, "31"]
    with ScriptedModel(turns) as model:
        result = Agent(model, TOOLS).run("北京?")
    assert [m["role"] for m in result.messages[2:]] == ["assistant", "tool", "user", "assistant"]


def test_after_two_malformed_replies_in_a_row_the_answer_is_asked_for() -> None:
    """Corrected once; a second correction would only be repeated."""
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call>'
    with ScriptedModel([broken, broken, "I cannot look it up."]) as model:
        result = Agent(model, TOOLS).run("Rome?")
    assert (result.stop_reason, result.answered) == ("invalid_calls", True)
    assert [r["step"] for r in result.trace.of_type("guard_fired")] == ["retry", "final_answer"]
    assert model.requests[-1].tool_choice == "none"
    check_history(result.messages)


def test_at_the_cap_a_final_answer_is_asked_for(calls: Calls) -> None:
    turns = [calls(("get_news", {"topic": f"t{n}"})) for n in range(3)] + ["So far: three topics."]
    with ScriptedModel(turns) as model:
        result = Agent(model, TOOLS, max_rounds=3).run("News?")
    assert model.requests[-1].tool_choice == "none"
    assert model.requests[-1].messages[-1]["role"] == "user"
    assert (result.answer, result.stop_reason, result.answered) == (
        "So far: three topics.",
        "max_rounds",
        True,
    )


def test_the_line_at_the_cap_is_in_the_language_of_the_question(calls: Calls) -> None:
    turns = [calls(("get_news", {"topic": "AI"})), "好"]
    model = ScriptedModel(turns)
    Agent(model, TOOLS, max_rounds=1).run("有什么新闻？")
    assert "最终回答" in model.requests[-1].messages[-1]["content"]


def test_a_forced_final_reply_without_text_lists_what_the_tools_returned(calls: Calls) -> None:
    """Never a bare "failed": but marked, so that nobody takes it for the model's answer."""
    with ScriptedModel([calls(("get_weather", {"city": "上海"}))] * 2) as model:
        result = Agent(model, TOOLS, max_rounds=1).run("Shanghai?")
    assert not result.answered
    assert '"temperature_c": 28' in result.answer
    assert len(result.calls) == 1
    check_history(result.messages)


def test_a_stand_in_answer_holds_no_word_that_was_meant_for_the_model(calls: Calls) -> None:
    """Regression: it listed the loop's refusals, errors of tools, and the same result several times."""
    weather, unknown = calls(("get_weather", {"city": "上海"})), calls(("get_weathr", {"city": "上海"}))
    with ScriptedModel([weather, weather, unknown, calls(("get_weather", {"city": "Rome"})), ""]) as model:
        result = Agent(model, TOOLS, max_rounds=4).run("Shanghai?")
    assert not result.answered
    _, *lines = result.answer.splitlines()
    assert len(lines) == 1 and '"temperature_c": 28' in lines[0]
    with ScriptedModel([unknown, ""]) as model:
        nothing = Agent(model, TOOLS, max_rounds=1).run("Shanghai?")
    assert nothing.answer == "There is no final answer, and no tool returned anything."


def test_on_limit_raise_carries_the_run_so_far(calls: Calls) -> None:
    model = ScriptedModel([calls(("get_weather", {"city": "上海"}))])
    with pytest.raises(RoundLimitError) as caught:
        Agent(model, TOOLS, max_rounds=1, on_limit="raise").run("Shanghai?")
    partial = caught.value.result
    assert partial.stop_reason == "max_rounds"
    assert [m["role"] for m in partial.messages] == ["system", "user", "assistant", "tool"]


def test_only_what_was_set_is_sent(calls: Calls) -> None:
    """But for the end that every reply has: without one, a small model wrote lists for minutes."""
    model = ScriptedModel(["a", "b"])
    Agent(model, [get_weather]).run("?")
    Agent(model, [get_weather], temperature=0, max_tokens=64, parallel_tool_calls=False, seed=3).run("?")
    first, second = model.requests
    assert (first.temperature, first.max_tokens, first.parallel_tool_calls, first.seed) == (
        None,
        DEFAULT_MAX_TOKENS,
        True,
        None,
    )
    assert (second.temperature, second.max_tokens, second.parallel_tool_calls, second.seed) == (
        0,
        64,
        False,
        3,
    )


def test_a_forced_call_is_forced_once(calls: Calls) -> None:
    """With "required" in every round no answer could ever follow."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        with ScriptedModel([calls(("get_weather", {"city": "上海"})), "28"]) as model:
            result = Agent(model, TOOLS, tool_choice=choice).run("上海?")
        assert [r.tool_choice for r in model.requests] == [choice, "auto"]
        assert result.answer == "28"


def test_a_call_that_tool_choice_forbids_is_not_executed(calls: Calls) -> None:
    with ScriptedModel([calls(("get_weather", {"city": "上海"})), "No."]) as model:
        result = Agent(model, TOOLS, tool_choice="none").run("上海?")
    assert [(r["executed"], r["is_error"]) for r in result.calls] == [(False, True)]


def test_without_tools_neither_tools_nor_tool_choice_are_sent() -> None:
    model = ScriptedModel(["Hello."])
    result = Agent(model).run("Hi")
    assert model.requests[0].tools == ()
    assert [m["role"] for m in result.messages] == ["user", "assistant"]


def test_usage_is_the_sum_of_the_rounds(calls: Calls) -> None:
    model = ScriptedModel([calls(("get_weather", {"city": "上海"})), "28"])
    result = Agent(model, TOOLS).run("上海?")
    rounds = [r["usage"] for r in result.trace.of_type("round_finished")]
    assert len(rounds) == 2
    assert result.usage["total_tokens"] == sum(u["total_tokens"] for u in rounds)
    assert result.usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_session_is_remembered_and_the_prompt_stays_the_same(calls: Calls) -> None:
    """The second question is English; the system prompt keeps the first one's language, and with it the
    prefix.
    """
    session = Session()
    model = ScriptedModel([calls(("get_weather", {"city": "上海"})), "28 度", "Beijing."])
    agent = Agent(model, TOOLS)
    agent.run("上海今天多少度？", session=session)
    agent.run("And which city is the capital?", session=session)
    assert model.requests[2].messages[:5] == (
        *model.requests[1].messages,
        {"role": "assistant", "content": "28 度"},
    )
    assert [m["role"] for m in session.messages][-2:] == ["user", "assistant"]
    assert "system" not in {m["role"] for m in session.messages}


def test_a_run_that_raises_leaves_the_session_as_it_was() -> None:
    session = Session([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    before = [dict(m) for m in session.messages]
    with pytest.raises(ModelError):
        Agent(ScriptedModel([]), TOOLS).run("c", session=session)
    assert session.messages == before


def test_messages_with_a_system_message_keep_it() -> None:
    model = ScriptedModel(["ok"])
    Agent(model, TOOLS).run([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert [m["content"] for m in model.requests[0].messages] == ["Be brief.", "Hi"]


def test_ids_that_a_server_left_out_or_gave_twice_are_mended() -> None:
    """Some servers send the empty id for every call; results could not be paired."""
    sent = [{"id": i, "function": {"name": "f"}} for i in ("", "", "a", "a", "b")]
    message = {"role": "assistant", "tool_calls": sent}
    mended = with_unique_ids(message, used={"b"})
    ids = [c["id"] for c in mended["tool_calls"]]
    assert len(set(ids)) == 5
    assert ids[2] == "a"
    assert "b" not in ids
    assert all(ids)
    sound = {"role": "assistant", "tool_calls": [{"id": "c"}]}
    assert with_unique_ids(sound, used={"b"}) is sound


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_rounds": 0}, "max_rounds"),
        ({"on_limit": "stop"}, "answer"),
        ({"tool_choice": "always"}, "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "get_wether"}}}, "get_weather"),
        ({"tool_choice": {"type": "function"}}, "function"),
    ],
)
def test_a_bad_setting_is_refused_when_the_agent_is_built(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedModel([]), TOOLS, **settings)


@pytest.mark.parametrize(
    "question",
    [
        "  ",
        [],
        [{"role": "wizard", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c9", "content": "y"}],
        [
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {}}]},
            {"role": "user"},
        ],
    ],
)
def test_a_history_that_breaks_the_protocol_is_refused_before_the_model_is_asked(question: Any) -> None:
    model = ScriptedModel(["never"])
    with pytest.raises(HistoryError):
        Agent(model, TOOLS).stream(question)
    assert model.requests == []


def test_the_last_event_carries_the_result_and_it_is_json(calls: Calls) -> None:
    model = ScriptedModel([calls(("get_weather", {"city": "上海"})), "28"])
    events = list(Agent(model, TOOLS).stream("上海?"))
    assert isinstance(events[-1], RunFinished)
    assert json.loads(json.dumps(events[-1].result.to_dict(), ensure_ascii=False))["answer"] == "28"
    assert [e.name for e in events if isinstance(e, CallFinished)] == ["get_weather"]


def test_a_schema_that_cannot_be_used_is_refused_with_its_place() -> None:
    """A Tool checks its schema when it is made; what was done to it since is noticed here."""

    @tool
    def find(text: str) -> str:
        """Find.

        Args:
            text: what
        """
        return text

    find.parameters["properties"]["text"]["pattern"] = "("
    with pytest.raises(ConfigError, match=r'tool find: "pattern" at /properties/text'):
        Agent(ScriptedModel([]), [get_weather, find])


def test_a_keyword_that_sampling_cannot_enforce_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    array = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"ids": array}, "required": ["ids"]}
    Agent(ScriptedModel([]), [Tool("pick", "Pick.", schema, lambda ids: ids)])
    assert [r.getMessage() for r in caplog.records] == ["tool pick: checked only after generation: uniqueItems"]


def test_a_call_is_told_when_it_is_begun_and_when_it_runs(calls: Calls) -> None:
    model = ScriptedModel([calls(("get_news", {"topic": "AI"}), ("get_weather", {"city": "北京"})), "ok"], piece=3)
    events = list(Agent(model, TOOLS).stream("?"))
    kinds = [(type(e).__name__, getattr(e, "name", "")) for e in events]
    begun = [("CallBegun", "get_news"), ("CallBegun", "get_weather")]
    assert kinds[1:4] == [*begun, ("RoundFinished", "")], "once each, and no second time with the whole call"
    assert "call_begun" not in {record["type"] for record in events[-1].result.trace.records}


def test_a_server_shows_a_begun_call_by_its_name() -> None:
    class Server(Model):
        """Sends a call in pieces, as servers do."""

        name = "server"

        def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
            last = request.messages[-1]["role"] == "tool"
            call = {"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": ""}}
            rest = {"index": 0, "function": {"arguments": '{"city": "北京"}'}}
            for delta in [{"content": "31"}] if last else [{"tool_calls": [call]}, {"tool_calls": [rest]}]:
                yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if last else "tool_calls"}]}

    events = list(Agent(Server(), TOOLS).stream("?"))
    assert [e.name for e in events if isinstance(e, CallBegun)] == ["get_weather"]
