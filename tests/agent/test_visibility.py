"""Which tools a model sees: chosen before the first prompt, or masked without changing it. Agents as others' tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import (
    Agent,
    Approvals,
    Bm25Selector,
    CallStarted,
    ConfigError,
    Decision,
    RoundView,
    RunResult,
    Session,
    check_history,
)
from laploop.agent.visibility import bm25_scores, with_needed, words_of
from laploop.models import ScriptedModel
from laploop.tools import Tool, tool

Calls = Callable[..., str]
SCHEMA = {"type": "object", "properties": {}}


def make(name: str, description: str, **settings: Any) -> Tool:
    return Tool(name, description, settings.pop("schema", SCHEMA), lambda **_: name, **settings)


WEB = [make("get_news", "News about a topic.", group="web"), make("read_page", "Read a web page.", group="web")]
FILES = [make("read_file", "Read a text file.", group="files"), make("list_files", "List a folder.", group="files")]
CLOCK = make("get_time", "The time of day.")
TOOLS = [*WEB, *FILES, CLOCK]


def permitted(choice: Any) -> list[str]:
    return [t["function"]["name"] for t in choice["allowed_tools"]["tools"]]


# --- masked


def test_a_subset_masks_and_leaves_the_prompt_as_it_is(calls: Calls) -> None:
    """The same tools in the same order: the cached prefix stays valid from run to run."""
    model = ScriptedModel(["a", calls(("read_file", {})), "b", "c"])
    agent = Agent(model, TOOLS, visible=["web", "get_time"])
    agent.run("?")
    result = agent.run("?", visible=["list_files"])
    agent.run("?", visible=None)
    assert permitted(model.requests[0].tool_choice) == ["get_news", "read_page", "get_time"]
    assert permitted(model.requests[1].tool_choice) == ["list_files"]
    assert model.requests[3].tool_choice == "auto"
    assert {len(r.tools) for r in model.requests} == {5}
    assert [m["content"] for r in model.requests for m in r.messages[:1]] == [
        model.requests[0].messages[0]["content"]
    ] * 4
    assert not result.calls[0]["executed"]


def test_a_callable_chooses_before_each_round(calls: Calls) -> None:
    views: list[RoundView] = []

    def choose(view: RoundView) -> list[str]:
        views.append(view)
        return ["web"] if view.round == 1 else ["files"]

    model = ScriptedModel([calls(("get_news", {})), "done"])
    Agent(model, TOOLS, visible=choose).run("?")
    assert [permitted(r.tool_choice) for r in model.requests] == [
        ["get_news", "read_page"],
        ["read_file", "list_files"],
    ]
    assert views[0].names == [t.name for t in TOOLS]


def test_required_stays_required_in_a_subset(calls: Calls) -> None:
    model = ScriptedModel([calls(("get_time", {})), "done"])
    Agent(model, TOOLS, tool_choice="required", visible=["get_time"]).run("?")
    assert model.requests[0].tool_choice["allowed_tools"]["mode"] == "required"  # type: ignore[index]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'wbe'.*get_time.*groups: files, web"):
        Agent(ScriptedModel([]), TOOLS, visible=["wbe"])
    with pytest.raises(ConfigError, match="wbe"):
        Agent(ScriptedModel([]), TOOLS).run("?", visible=["wbe"])


# --- chosen


MANY = [*(make(f"tool_{n}", f"Does the thing number {n}.") for n in range(30)), *TOOLS]


def test_of_many_tools_those_that_go_with_the_question_are_in_the_prompt() -> None:
    model = ScriptedModel(["a", "b"])
    agent = Agent(model, MANY)
    agent.run("Please list the files in this folder")
    names = model.requests[0].tool_names
    assert len(names) == 16
    assert {"list_files", "read_file"} <= set(names)
    assert names == [t.name for t in MANY if t.name in names], "in their order"
    Agent(model, MANY, selector=None).run("?")
    assert len(model.requests[1].tools) == 35


def test_few_tools_are_left_alone() -> None:
    model = ScriptedModel(["a"])
    Agent(model, MANY[:16]).run("nothing that fits")
    assert len(model.requests[0].tools) == 16


def test_what_the_history_has_called_and_what_is_needed_comes_along(calls: Calls) -> None:
    url = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    page = make("open_link", "Open a link.", schema=url, needs={"url": "tool_29"})
    session = Session()
    selector = Bm25Selector(2)
    first = ScriptedModel([calls(("get_time", {})), "noon"])
    Agent(first, [*MANY, page], selector=selector).run("what time of day is it", session)
    second = ScriptedModel(["a"])
    Agent(second, [*MANY, page], selector=selector).run("open the link", session)
    assert {"open_link", "tool_29", "get_time"} <= set(second.requests[0].tool_names)


def test_the_words_of_a_text() -> None:
    assert words_of("get_weather getNews URLs") == ["get", "weather", "get", "new", "url"]
    assert words_of("查询天气") == ["查询", "询天", "天气"]
    assert words_of("3 days") == ["3", "day"]


def test_chinese_questions_find_chinese_descriptions() -> None:
    texts = ["查询一个城市的天气", "搜索新闻", "计算一个算式"]
    scores = bm25_scores("北京今天天气怎么样？", texts)
    assert max(range(3), key=lambda n: scores[n]) == 0


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=8))
def test_scores_are_finite_and_a_text_without_a_common_word_has_none(query: str, texts: list[str]) -> None:
    scores = bm25_scores(query, texts)
    assert len(scores) == len(texts)
    for score, text in zip(scores, texts, strict=True):
        assert (score > 0) == bool(set(words_of(query)) & set(words_of(text)))


@given(st.dictionaries(st.integers(0, 6), st.integers(0, 6), max_size=7), st.sets(st.integers(0, 6), max_size=3))
def test_needs_are_followed_to_their_end(needs: dict[int, int], start: set[int]) -> None:
    """Circles included."""
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    tools = [make(f"t{n}", "x", schema=schema, needs={"x": f"t{needs[n]}"} if n in needs else {}) for n in range(7)]
    names = {tool.name for tool in with_needed({f"t{n}" for n in start}, tools)}
    assert {f"t{n}" for n in start} <= names
    assert all(f"t{needs[n]}" in names for n in needs if f"t{n}" in names)


# --- an agent as a tool


def inner(turns: list[Any], tools: list[Tool], **settings: Any) -> Tool:
    return Agent(ScriptedModel(turns), tools, **settings).as_tool("expert", "Knows files. Returns an answer.")


def test_an_agent_answers_as_anothers_tool(calls: Calls) -> None:
    expert = inner([calls(("list_files", {})), "Two files."], FILES)
    outer = ScriptedModel([calls(("expert", {"question": "how many files?"})), "There are two."])
    result = Agent(outer, [expert]).run("Files?")
    assert result.messages[3]["content"] == "Two files."
    assert result.answer == "There are two."
    assert result.calls[0]["notes"] == ["expert: 2 rounds, stop_reason answer"]
    assert len(result.messages) == 5, "its own history stays its own"


def test_without_an_answer_it_is_an_error(calls: Calls) -> None:
    expert = inner(["", ""], FILES)
    result = expert.invoke({"question": "?"})
    assert result.is_error and "empty" in result.content


def test_it_declares_what_it_does_unasked() -> None:
    save = make("save", "Save.", effects=frozenset({"write"}))
    assert inner([], [save, *WEB]).effects == {"read"}
    assert inner([], [save], approvals=Approvals({"write": "auto"})).effects == {"write"}


def test_its_own_approvals_hold(calls: Calls) -> None:
    asked = []

    def ask(request: Any) -> Decision:
        asked.append(request.name)
        return Decision(False)

    save = make("save", "Save.", effects=frozenset({"write"}))
    expert = inner([calls(("save", {})), "Not saved."], [save], approvals=Approvals(ask=ask))
    outer = ScriptedModel([calls(("expert", {"question": "save"})), "No."])
    Agent(outer, [expert]).run("?")
    assert asked == ["save"]


def test_cancelling_the_outer_run_ends_the_inner_one(calls: Calls) -> None:
    ended, waiting = threading.Event(), threading.Event()

    @tool(timeout_s=None)
    def wait() -> str:
        """Wait."""
        waiting.set()
        threading.Event().wait(30)
        return ""

    class Watched(Agent):
        def run(self, *args: Any, **options: Any) -> RunResult:
            result = super().run(*args, **options)
            if result.stop_reason == "cancelled":
                ended.set()
            return result

    expert = Watched(ScriptedModel([calls(("wait", {}))]), [wait]).as_tool("expert", "Waits.")
    agent = Agent(ScriptedModel([calls(("expert", {"question": "wait"}))]), [expert])
    for event in agent.stream("?"):
        if isinstance(event, CallStarted):
            waiting.wait(20)
            agent.cancel()
    assert ended.wait(20)


def test_a_history_with_an_agent_in_it_is_valid(calls: Calls) -> None:
    turns = [calls(("expert", {"question": "a"}), ("get_time", {})), "done"]
    result = Agent(ScriptedModel(turns), [inner(["fine"], FILES), CLOCK]).run("?")
    check_history(result.messages)
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["fine", "get_time"]
