"""The second article's agent over the text protocol: thoughts, actions and observations, through the same loop, guards,
tools and events as native calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from laploop.agent import (
    Agent,
    CallFinished,
    GuardFired,
    Guards,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    check_history,
)
from laploop.models import DIALECTS, Request, ScriptedModel
from laploop.models.text_protocol import protocol_messages
from laploop.tools import tool
from laploop.tools.builtin.calculator import calculator_tool

FORECAST = {"上海": 28, "北京": 25, "Oslo": 4}


@tool
def get_weather(city: str) -> dict[str, Any]:
    """Weather of one city today.

    Args:
        city: its name
    """
    if city not in FORECAST:
        raise ValueError(f"no station in {city!r}; there are: {', '.join(FORECAST)}")
    return {"city": city, "temperature_c": FORECAST[city]}


@tool
def find_order(customer: str) -> str:
    """The number of a customer's last order.

    Args:
        customer: name
    """
    return f"order 7{len(customer)}"


@tool(needs={"order": "find_order"})
def track(order: str) -> str:
    """Where a parcel is.

    Args:
        order: its number
    """
    return f"{order} is in Lyon"


TOOLS = [get_weather, calculator_tool()]


def act(name: str, thought: str = "", **arguments: Any) -> str:
    head = f"Thought: {thought}\n" if thought else ""
    return f"{head}Action: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}"


def model_of(*turns: str | dict[str, str], **options: Any) -> ScriptedModel:
    return ScriptedModel(turns, dialect="react", **options)


def guards(result: Any) -> list[tuple[str, str]]:
    return [(r["guard"], r["step"]) for r in result.trace.of_type("guard_fired")]


def test_it_looks_up_then_calculates_then_answers() -> None:
    """The article's task: a temperature and a product, each from its tool, one after the other."""
    turns = [
        act("get_weather", "先查上海的气温。", city="上海"),
        act("calculator", "再算乘法。", expression="23 * 17"),
        "Thought: 都有了。\nFinal Answer: 上海 28 度，23 乘以 17 等于 391。",
    ]
    with model_of(*turns) as model:
        events = list(Agent(model, TOOLS).stream("上海现在几度？再帮我算 23 乘以 17。"))
    result = events[-1].result  # type: ignore[union-attr]  # the last one is RunFinished
    assert result.answer == "上海 28 度，23 乘以 17 等于 391。"
    assert (result.stop_reason, result.rounds) == ("answer", 3)
    observed = [e.content for e in events if isinstance(e, CallFinished)]
    assert json.loads(observed[0])["temperature_c"] == 28 and "391" in observed[1]
    thoughts = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    assert thoughts == "先查上海的气温。再算乘法。都有了。"
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == result.answer
    assert [m["role"] for m in result.messages] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    check_history(result.messages)


def test_the_history_is_rendered_as_the_model_wrote_it() -> None:
    """What the third request would show a model: its own lines, and the results behind their label."""
    turns = [
        act("get_weather", "First Oslo.", city="Oslo"),
        act("calculator", expression="4 + 1"),
        "Final Answer: 5",
    ]
    with model_of(*turns) as model:
        Agent(model, TOOLS).run("One degree more than in Oslo?")
    said = protocol_messages(
        model.requests[-1], DIALECTS["react"], "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    assert [m["content"] for m in said if m["role"] == "assistant"] == turns[:2]
    assert [m["content"][:13] for m in said if m["role"] == "user"][1:] == ["Observation: "] * 2


def test_two_actions_of_one_reply_run_together() -> None:
    turns = [f"{act('get_weather', city='上海')}\n{act('get_weather', city='北京')}", "Final Answer: 上海。"]
    with model_of(*turns) as model:
        result = Agent(model, TOOLS).run("上海和北京哪里更热？")
    assert [r["executed"] for r in result.calls] == [True, True]
    assert [m["role"] for m in result.messages[2:]] == ["assistant", "tool", "tool", "assistant"]


def test_a_later_action_takes_its_input_from_an_observation() -> None:
    turns = [
        act("find_order", "I need the number.", customer="Anna"),
        act("track", "Now the parcel.", order="order 74"),
        "Final Answer: It is in Lyon.",
    ]
    with model_of(*turns) as model:
        result = Agent(model, [find_order, track]).run("Where is Anna's parcel?")
    assert [(r["name"], r["content"]) for r in result.calls] == [
        ("find_order", "order 74"), ("track", "order 74 is in Lyon"),
    ]  # fmt: skip
    assert "The order of track comes from the result of find_order" in model.requests[0].messages[0]["content"]


def test_a_result_that_the_model_makes_up_does_not_count() -> None:
    """It writes the observation itself and goes on from there: the run takes its action, and the true result."""
    made_up = act("get_weather", city="Oslo") + "\nObservation: 30\nThought: Warm.\nFinal Answer: 30 degrees."
    with model_of(made_up, "Final Answer: 4 degrees.") as model:
        result = Agent(model, TOOLS).run("How warm is Oslo?")
    assert result.answer == "4 degrees."
    assert not any("30" in (m.get("content") or "") for m in result.messages[2:])


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("Oslo?", "Your reply could not be read: expected 'Action:'"),
        ("上海几度？", "无法读取你的回复：expected 'Action:'"),
    ],
)
def test_a_reply_without_action_and_answer_is_corrected(question: str, sentence: str) -> None:
    stray = "Thought: I should look up the weather."
    with model_of(stray, act("get_weather", city="Oslo"), "Final Answer: 4") as model:
        result = Agent(model, TOOLS).run(question)
    said, correction = model.requests[1].messages[2:4]
    assert said == {"role": "assistant", "content": stray}
    assert correction["role"] == "user" and correction["content"].startswith(sentence)
    assert "'Final Answer:'" in correction["content"] and "JSON" not in correction["content"]
    assert (result.answer, guards(result)) == ("4", [("invalid_calls", "retry")])


def test_an_input_that_is_no_json_is_corrected_and_never_run() -> None:
    broken = 'Thought: Look.\nAction: get_weather\nAction Input: {"city": "Oslo"'
    with model_of(broken, act("get_weather", city="Oslo"), "Final Answer: 4") as model:
        result = Agent(model, TOOLS).run("Oslo?")
    said, correction = model.requests[1].messages[2:4]
    assert said["content"].endswith(broken.partition("\n")[2])
    assert correction["content"].startswith("Your tool call could not be read: ")
    assert [r["name"] for r in result.calls] == ["get_weather"] and result.answer == "4"
    shown = protocol_messages(
        Request.of(model.requests[1].messages, {"tools": [t.to_openai() for t in TOOLS]}), DIALECTS["react"], "x"
    )
    assert not any("Final Answer: Action" in m["content"] for m in shown)


@pytest.mark.parametrize(
    "raw",
    [
        '**Thought:** Look.\n**Action:** get_weather\n**Action Input:** {"city": "Oslo"}',
        'thought: Look.\naction: get_weather\naction input: {"city": "Oslo"}',
        'Action: get_weather\nAction Input: ```json\n{"city": "Oslo"}\n```',
        'Action: get_weather({"city": "Oslo"})',
        "思考：查一下。\n行动：get_weather\n行动输入：{\"city\": \"Oslo\"}",
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
    ],
)  # fmt: skip
def test_shapes_that_models_give_an_action(raw: str) -> None:
    with model_of(raw, "Final Answer: 4") as model:
        result = Agent(model, TOOLS).run("Oslo?")
    assert [(r["name"], r["executed"], r["is_error"]) for r in result.calls] == [("get_weather", True, False)]


def test_arguments_that_do_not_fit_become_an_observation() -> None:
    turns = [act("get_weather", town="Oslo"), act("get_weather", city="Atlantis"), act("get_weather", city="Oslo")]
    with model_of(*turns, "Final Answer: 4") as model:
        result = Agent(model, TOOLS).run("Oslo?")
    assert [r["is_error"] for r in result.calls] == [True, True, False]
    assert "city" in result.calls[0]["content"] and "there are: 上海" in result.calls[1]["content"]


def test_an_unknown_tool_is_named_with_those_there_are() -> None:
    with model_of(act("weather", city="Oslo"), "Final Answer: I do not know.") as model:
        result = Agent(model, TOOLS).run("Oslo?")
    assert 'there is no tool "weather"' in result.calls[0]["content"]
    assert "get_weather, calculator" in result.calls[0]["content"] and not result.calls[0]["executed"]
    assert ("unknown_tool", "refused") in guards(result)


def test_an_action_that_repeats_is_stopped() -> None:
    same = act("get_weather", "Again.", city="Oslo")
    with model_of(same, same, same, "Final Answer: 4") as model:
        result = Agent(model, TOOLS, guards=Guards(same_result=None)).run("Oslo?")
    assert [r["executed"] for r in result.calls] == [True, True, False]
    assert "Do not call it again" in result.calls[2]["content"]
    assert ("repeat", "refused") in guards(result) and result.answer == "4"


def test_at_the_cap_the_answer_comes_from_what_was_observed() -> None:
    turns = [act("calculator", expression=f"{n} + 1") for n in range(3)]
    with model_of(*turns, "Final Answer: 1, 2 and 3.") as model:
        result = Agent(model, TOOLS, max_rounds=3).run("Count.")
    assert model.requests[-1].tool_choice == "none"
    assert (result.answer, result.stop_reason) == ("1, 2 and 3.", "max_rounds")


def test_a_question_that_needs_no_tool_takes_one_round() -> None:
    for turn in ("Thought: A greeting.\nFinal Answer: Hello.", "Final Answer: Hello.", "Hello."):
        with model_of(turn) as model:
            result = Agent(model, TOOLS).run("Hi!")
        assert (result.answer, result.rounds, result.calls) == ("Hello.", 1, [])


def test_a_reply_that_was_cut_runs_nothing() -> None:
    with model_of({"raw": 'Action: get_weather\nAction Input: {"city": "Os', "finish": "length"}) as model:
        result = Agent(model, TOOLS).run("Oslo?")
    assert (result.stop_reason, result.calls) == ("length", [])


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_deltas_add_up_to_the_messages(piece: int) -> None:
    turns = [act("get_weather", "First\nOslo.", city="Oslo"), "Thought: Done.\nFinal Answer: **4**\n\n- cold"]
    with model_of(*turns, piece=piece) as model:
        events = list(Agent(model, TOOLS).stream("Oslo?"))
    for finished in (e for e in events if isinstance(e, RoundFinished)):
        text = "".join(e.text for e in events if isinstance(e, TextDelta) and e.round == finished.round)
        thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta) and e.round == finished.round)
        assert (text or None) == finished.message["content"]
        assert thought == finished.message["reasoning_content"]
    assert not any(isinstance(e, GuardFired) for e in events)
