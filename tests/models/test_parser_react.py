"""The text protocol: its sections, and the shapes in which models get it wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from laploop.models import DIALECTS, OutputParser, parse_output


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [
    tool("get_weather", city="string"), tool("get_time"), tool("add", a="integer", b="integer"), tool("odd (name)"),
]  # fmt: skip
ROME = ("get_weather", {"city": "Rome"})


def said(raw: str, finish: str = "stop", tools: Any = TOOLS) -> dict[str, Any]:
    """What an output says, the same in one piece and in pieces of one character."""
    found = []
    for pieces in ([raw], list(raw)):
        parser = OutputParser(dialect="react", tools=tools)
        for piece in pieces:
            parser.feed(piece)
        parser.finish(finish)
        result = parser.result()
        message = result.message
        found.append(
            {
                "content": message["content"],
                "thought": message.get("reasoning_content"),
                "calls": [
                    (c["function"]["name"], json.loads(c["function"]["arguments"]))
                    for c in message.get("tool_calls", ())
                ],
                "faults": result.invalid_tool_calls,
                "finish": result.finish_reason,
                "stopped": parser.stopped,
            }
        )
    assert found[0] == found[1]
    return found[0]


def test_a_thought_and_a_call() -> None:
    got = said('Thought: I need\nthe weather.\nAction: get_weather\nAction Input: {"city": "Rome"}\n')
    assert got["thought"] == "I need\nthe weather." and got["calls"] == [ROME] and got["content"] is None
    assert got["finish"] == "tool_calls" and not got["faults"] and not got["stopped"]


def test_a_final_answer() -> None:
    got = said("Thought: done\nFinal Answer: It is 5.\n\n- Action: none needed\nYes.")
    assert got["content"] == "It is 5.\n\n- Action: none needed\nYes." and got["thought"] == "done"
    assert got["finish"] == "stop" and not got["calls"]


def test_several_calls_and_thoughts() -> None:
    got = said("Thought: a\nAction: get_time\nAction Input: {}\nThought: b\nAction: get_time\nAction Input: {}")
    assert got["calls"] == [("get_time", {})] * 2 and got["thought"] == "a\nb"


@pytest.mark.parametrize(
    "text", ["Just text.", "  Two\n\nlines: a\nAnswer: no label here", "Action is needed.", "A", "1. T"]
)
def test_text_without_labels_is_content(text: str) -> None:
    got = said(text)
    assert got["content"] == text and not got["calls"] and not got["faults"]


def test_text_in_front_of_the_first_label_is_content() -> None:
    got = said("Let me look.\n\nThought: x\nAction: get_time\nAction Input: {}")
    assert got["content"] == "Let me look.\n" and got["thought"] == "x" and got["calls"] == [("get_time", {})]


def test_pieces_of_content_do_not_run_into_each_other() -> None:
    """Regression: smollm2 wrote text, a thought and an answer; the answer was glued to the text."""
    assert said("Sure:\nThought: x\nFinal Answer: 4")["content"] == "Sure:\n4"
    assert said("Sure.\nAction: get_time\nAction Input: {} Wait.\nFinal Answer: 4")["content"] == "Sure.\nWait.\n4"


def test_an_observation_ends_the_output() -> None:
    """The model makes up results, and goes on with them; none of that is said or run."""
    raw = 'Thought: x\nAction: get_weather\nAction Input: {"city": "Rome"}\nObservation: 40 degrees\nFinal Answer: 40'
    got = said(raw)
    assert got["calls"] == [ROME] and got["stopped"] and "40" not in json.dumps(got, default=str)
    assert said("Final Answer: 5\nObservation: 6")["content"] == "5"


@pytest.mark.parametrize(
    "raw", ["Thought: I know it.", "Observation: 5\nThought: x", "Thought: x\nAction: None", "Final Answer:"]
)
def test_a_broken_format_is_reported_with_what_was_expected(raw: str) -> None:
    got = said(raw)
    (fault,) = got["faults"]
    assert fault["name"] is None and "'Final Answer:'" in fault["error"] and "'Action:'" in fault["error"]
    assert fault["raw"] and raw.startswith(fault["raw"])


def test_a_thought_that_the_limit_cut_is_no_broken_format() -> None:
    got = said("Thought: I would say that", finish="length")
    assert not got["faults"] and got["finish"] == "length" and got["thought"] == "I would say that"


INPUT = 'Action Input: {"city": "Rome"}'


@pytest.mark.parametrize(
    "raw",
    [
        "action: get_weather\naction input: {}",
        "**Action:** get_weather\n**Action Input:** {}",
        "**Action**: get_weather\n**Action Input**: {}",
        "__Action:__ **get_weather**\n__Action Input:__ {}",
        "`Action:` get_weather\n`Action Input:` {}",
        "### Action: get_weather\n### Action Input: {}",
        "- Action: get_weather\n- Action Input: {}",
        "1. Thought: x\n2. Action: get_weather\n3. Action Input: {}",
        "Thought 1: x\nAction 1: get_weather\nAction Input 1: {}",
        "Action：get_weather\nAction Input：{}",
        "Action_Input: x\nAction: get_weather\nAction_Input: {}",
        "思考：看\n行动：get_weather\n行动输入：{}\n观察：",
        "Action: `get_weather`\nAction Input: {}",
        'Action: "get_weather".\nAction Input: {}',
        "Action: [get_weather]\nAction Input: {}",
        "Action:\nget_weather\nAction Input:\n{}",
        "Action: get_weather\n\nAction Input: ```json\n{}\n```\nObservation:",
        "Action: get_weather\nAction Input: ```\n{}\n```",
        "Action: get_weather\nAction Input: `{}`",
        "Action: get_weather\nAction Input: {}}\nObservation: x",
        "Action: get_weather Action Input: {}",
        "Action: get_weather\n{}",
        "Action: get_weather\n```json\n{}\n```",
        "Action: get_weather({})",
        "Action: get_weather( {} )\nObservation: x",
        "Action: get_weather[{}]",
        "Action: get_weather{}",
        "Action: get_weather()\nAction Input: {}",
        'Action: {"name": "get_weather", "arguments": {}}',
        'Action:\n```json\n{"action": "get_weather", "action_input": {}}\n```',
    ],
)
@pytest.mark.parametrize("spelling", ['{"city": "Rome"}', '{\n  "city": "Rome"\n}'])
def test_a_call_in_another_dress(raw: str, spelling: str) -> None:
    got = said(raw.replace("{}", spelling))
    assert got["calls"] == [ROME]
    assert [f for f in got["faults"] if f["name"]] == []


@pytest.mark.parametrize(
    ("raw", "call"),
    [
        ("Action: get_weather\nAction Input: Rome", ROME),
        ('Action: get_weather\nAction Input: "Rome"', ROME),
        ("Action: get_weather\nAction Input: city: Rome\nObservation:", ROME),
        ('Action: get_weather\nAction Input: "{\\"city\\": \\"Rome\\"}"', ROME),
        ("Action: get_weather\nAction Input: ```\nRome\n```\nObservation:", ROME),
        ("Action 1: get_weather[Rome]\nObservation 1:", ROME),
        ("Action: get_weather('Rome')", ROME),
        ('Action: get_weather(city="Rome")\n', ROME),
        ('Action: add(a=1, b=2)', ("add", {"a": 1, "b": 2})),
        ("Action: get_time()", ("get_time", {})),
        ("Action: get_time", ("get_time", {})),
        ("Action: get_time\nAction Input:", ("get_time", {})),
        ("Action: get_weather\nAction Input: None", ("get_weather", {})),
        ("Action: get_time\nAction Input: \nObservation: 5", ("get_time", {})),
        ("Action: odd (name)\nAction Input: {}", ("odd (name)", {})),
        ("Action: unknown_tool\nAction Input: {}", ("unknown_tool", {})),
        ('Action: get_time\nAction Input: {"x": "a\nObservation: b"}', ("get_time", {"x": "a\nObservation: b"})),
        ('{"name": "get_weather", "parameters": {"city": "Rome"}}', ROME),
    ],
)  # fmt: skip
def test_other_inputs(raw: str, call: Any) -> None:
    got = said(raw)
    assert got["calls"] == [call] and not got["faults"]


@pytest.mark.parametrize(
    ("raw", "name", "words"),
    [
        ("Action: get_weather\nAction Input: {'city': 'Rome'}", "get_weather", "unexpected character"),
        ('Action: get_weather\nAction Input: {"city": "Rome",}', "get_weather", "double quotes"),
        ('Action: get_weather\nAction Input: {"city": "Rome"\nObservation: x', "get_weather", "left open"),
        ('Action: get_weather\nAction Input: {"city": "Ro', "get_weather", "ended inside"),
        ('Action: get_weather\nAction Input: ["Rome"]', "get_weather", "JSON object"),
        ("Action: add\nAction Input: 1 and 2", "add", "JSON object"),
        ("Action: add(1, 2)", "add", "JSON object"),
        ("Action: get_weather(Rome\nObservation:", "get_weather", "')'"),
        ("Action: get_weather\nCity: Rome", "get_weather", "'Action Input:'"),
        ("Action Input: {}", None, "'Action:'"),
        ("Thought: x\nAction: I will ask the weather service", "I will ask the weather service", "name of one tool"),
        ("Action: None\nAction Input: {\"city\": \"Rome\"}", "None", "names no tool"),
        ('Action: {"name": "get_weather", "arguments": 5}', None, "must be an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_reported(raw: str, name: str | None, words: str) -> None:
    """A malformed call is never run and never lost: the tools' own repair is not for what may mean anything."""
    got = said(raw)
    (fault,) = got["faults"]
    assert fault["name"] == name and words in fault["error"] and fault["raw"] in raw
    assert not got["calls"]


@pytest.mark.parametrize(
    "raw",
    [
        "Action:", "Action: get_wea", "Action: get_weather\nAction Inp", "Action: get_weather\nAction Input: Ro",
        'Action: get_weather\nAction Input: {"city": "Ro', "Action: get_weather(Ro",
    ],
)  # fmt: skip
def test_a_call_that_the_limit_cut_is_not_run(raw: str) -> None:
    got = said(raw, finish="length")
    assert not got["calls"] and "token limit" in got["faults"][0]["error"] and got["finish"] == "length"


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        ("Thought: x\nAction: None\nFinal Answer: 4", "4"),
        ("Thought: x\nAction: N/A\nAction Input: None\nFinal Answer: 4", "4"),
        ("Thought: x\nAction: no tool is needed\nFinal Answer: 4", "4"),
        ("Thought: x\nAction: Final Answer\nAction Input: 4", "4"),
        ("Thought: x\nAction: Finish[4]", "4"),
        ("Thought: x\nAnswer: 4", "4"),
        ("Thought: x\n最终答案：4", "4"),
        ("Final Answer:\n\n4", "4"),
    ],
)
def test_an_action_that_means_an_answer(raw: str, content: str) -> None:
    got = said(raw)
    assert got["content"] == content and not got["calls"] and not got["faults"]


def test_an_answer_may_speak_of_actions() -> None:
    """Only our own spelling ends an answer, and an action in it only where it names a tool, or has an input."""
    text = "Do this:\nAction: press the button\n**Thought:** none\nAnswer: yes"
    assert said(f"Final Answer: {text}")["content"] == text
    assert said("Final Answer: ok\nAction: get_time\n")["calls"] == [("get_time", {})]
    assert said("Sure.\nAction: nothing_known\nAction Input: {}")["calls"] == [("nothing_known", {})]


def test_stop_texts_end_the_answer_but_no_thought_and_no_call() -> None:
    parser = OutputParser(dialect="react", tools=TOOLS, stop=["END"])
    parser.feed('Thought: END\nAction: get_weather\nAction Input: {"city": "END"}\nFinal Answer: a EN')
    assert not parser.stopped
    parser.feed("D b")
    parser.finish()
    message = parser.result().message
    assert parser.stopped and message["content"] == "a " and message["reasoning_content"] == "END"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"city": "END"}'


def test_it_is_reasoning_while_the_thought_lasts() -> None:
    parser = OutputParser(dialect="react")
    seen, answering = [], []
    for piece in ("Thou", "ght: a", "b", "\nFinal", " Answer:", " c"):
        parser.feed(piece)
        seen.append(parser.in_reasoning)
        answering.append(parser.answering)
    assert seen == [False, True, True, True, False, False] and parser.may_think
    assert answering == [False, False, False, False, True, True]


def test_a_bare_call_is_rescued_only_for_offered_tools() -> None:
    raw = '{"name": "get_time", "arguments": {}}'
    assert said(raw)["calls"] == [("get_time", {})]
    assert said(raw, tools=None)["content"] == raw


def test_labels_in_other_words_are_data() -> None:
    labels, variants = DIALECTS["react"].labels, DIALECTS["react"].variants
    assert labels and "思考" in variants.thought
    assert parse_output("观察结果：x", dialect="react").invalid_tool_calls
