"""The parser's laws, for whatever a model may write, in every dialect and at every split."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from laploop.models import DIALECTS
from laploop.models.parsing.parser import OutputParser, ParsedOutput

DATA = Path(__file__).parents[1] / "data"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [tool("get_time"), tool("get_weather", city={"type": "string"}), tool("add", a={}, b={})]
NAMES = {t["function"]["name"] for t in TOOLS}

# What outputs are made of: marks, their beginnings, what stands between them, and what looks like them.
MARKS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tools>", "</tools>", "```json\n", "```\n", "```", "<", "</",
    "<tool", "`", "\n", "\n\n", " ", "\t", "{", "}", "[", "]", "{{", '"', "'", "\\", ",", ":", ": ", ")", "(", "=",
    '{"name": "get_time", "arguments": {}}', '{"name": "f", "arguments": {"a": "</tool_call>\\n"}}', '{"name"',
    '"tool"',
    '{"tool": "get_weather", "args": {"city": "北京"}}', '{"function": {"name": "get_time", "arguments": "{}"}}',
    ">", '={"name": "get_time"}',
    '{"name": "get_weather", "arguments": {"city": "', '[{"name": "get_time"}]', '{"city": "x\ny"}', "{'city': 'x'}",
    "<function=get_weather>", "<function=", "<parameter=city>\n", "\n</parameter>\n", "</parameter>", "</function>",
    "[TOOL_CALLS]", "get_weather[ARGS]", "[CALL_ID]abcdef123[ARGS]", "<|tool_call>", "<tool_call|>",
    "call:get_weather{", 'city:<|"|>', '<|"|>', "<|python_tag|>", "<|channel>thought\n", "<channel|>", "[THINK]",
    '{"city": "x",}', "Hello", "你好", "京", "😀", "。", "\u3000", "\x00", "STOP",
]  # fmt: skip
LABELS = [
    "Thought:", "Thought: ", "\nThought: ", "\nAction: ", "\nAction Input: ", "\nObservation: ", "\nFinal Answer: ",
    "Action: get_weather\nAction Input: ", "\n**Action:** ", "\n**Action**: ", "**Action Input:**", "\n`Thought:`",
    "\n思考：", "\n行动：", "\n行动输入：", "\n观察：", "\n最终答案：", "\nact", "ion", " input", "\nThought 1: ",
    "\nAction 2:",
    "get_weather", "get_time", "get_weather(", 'get_weather["Paris"]', "get_time()", 'add(a=1, b="x")', "None",
    "Finish[",
    "Final Answer", "\n  Action: ", "\n- Action: ", "\n1. Thought: ", "Paris", "\nT", "\nF", "\nA", "\nObs",
]  # fmt: skip
outputs = st.lists(st.sampled_from(MARKS + LABELS) | st.text(max_size=3), max_size=14).map("".join)


@st.composite
def parsers(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of a parser."""
    dialect = DIALECTS[draw(st.sampled_from(sorted(DIALECTS)))]
    return {
        "dialect": dialect,
        "tools": draw(st.sampled_from([None, TOOLS])),
        "enable_thinking": draw(st.booleans()),
        "prompt_opens_think": bool(dialect.think) and draw(st.booleans()),
        "stop": draw(st.sampled_from([(), ("STOP",), ("lo", "ello 你"), ("\n\n",), ("京", "STOP", "H")])),
    }


def folded(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client of OpenAI's makes of deltas; ids are left out, they are random."""
    texts = {"content": "", "reasoning_content": ""}
    calls: dict[int, dict[str, str]] = {}
    for delta in deltas:
        assert len(delta) == 1
        for key in texts:
            texts[key] += delta.get(key, "")
        for part in delta.get("tool_calls", ()):
            call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
            for key in call:
                call[key] += part["function"].get(key, "")
    return {**texts, "calls": [calls[i] for i in sorted(calls)]}


def plain(parsed: ParsedOutput) -> dict[str, Any]:
    """What a whole message says, in the form of `folded`."""
    message = parsed.message
    return {
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "calls": [call["function"] for call in message.get("tool_calls", ())],
    }


def streamed(pieces: Iterator[Any] | list[Any], finish: str, **settings_: Any) -> tuple[Any, ...]:
    """Deltas and message of an output in pieces."""
    parser = OutputParser(**settings_)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish(finish)
    return folded(deltas), parser.result(), parser.stopped


def outcome(pieces: list[Any], finish: str, **settings_: Any) -> Any:
    """All that must not depend on the split."""
    joined, parsed, stopped = streamed(pieces, finish, **settings_)
    assert joined == plain(parsed)
    return joined, parsed.finish_reason, parsed.invalid_tool_calls, stopped


def check_message(parsed: ParsedOutput) -> None:
    """What holds for every message."""
    message = parsed.message
    for call in message.get("tool_calls", ()):
        assert isinstance(json.loads(call["function"]["arguments"], parse_constant=pytest.fail), dict)
        assert call["function"]["name"]
    for fault in parsed.invalid_tool_calls:
        assert set(fault) == {"name", "arguments", "error", "raw"} and fault["error"] and fault["raw"]
    assert message["content"] is not None or message.get("tool_calls")


@settings(max_examples=700, deadline=None)
@given(outputs, parsers(), st.sampled_from(["stop", "length"]), st.lists(st.integers(1, 9), min_size=1, max_size=5))
@example("**Action:** get_time\n", {"dialect": "react", "tools": TOOLS}, "stop", [1])
@example("xlo 你", {"dialect": "qwen2.5", "stop": ("lo", "xlo 你好")}, "stop", [1])
def test_streamed_is_plain_at_any_sizes(raw: str, options: dict[str, Any], finish: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    while at < len(raw):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(raw[at : at + size])
        at += size
    alone = outcome([raw], finish, **options)
    assert outcome(pieces, finish, **options) == alone
    assert outcome(list(raw), finish, **options) == alone
    assert outcome([bytes([b]) for b in raw.encode("utf-8", "replace")], finish, **options) == outcome(
        [raw.encode("utf-8", "replace")], finish, **options
    )


def case_outputs() -> list[Any]:
    """Every raw text of the cases, and some of each dialect."""
    found = []
    for area in ("parse", "stream"):
        for line in (DATA / f"{area}.jsonl").read_text("utf-8").splitlines():
            case = json.loads(line)
            given_ = case["input"]
            raws = given_.get("variants") or [given_.get("raw") or "".join(given_.get("chunks", ()))]
            found += [pytest.param(raw, given_, id=f"{case['id']}-{i}") for i, raw in enumerate(raws) if raw]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("raw", "given_"), case_outputs())
def test_streamed_is_plain_at_every_split_of_a_case(raw: str, given_: dict[str, Any], dialect: str) -> None:
    options: dict[str, Any] = {"tools": given_.get("tools"), "dialect": dialect}
    options["enable_thinking"] = given_.get("thinking", True)
    options["prompt_opens_think"] = given_.get("prompt_opens_think", False) and DIALECTS[dialect].think is not None
    alone = outcome([raw], given_["finish"], **options)
    for at in range(1, len(raw)):
        assert outcome([raw[:at], raw[at:]], given_["finish"], **options) == alone
    data = raw.encode()
    for at in range(1, len(data)):
        assert outcome([data[:at], data[at:]], given_["finish"], **options) == alone


@settings(max_examples=400, deadline=None)
@given(outputs, parsers(), st.sampled_from(["stop", "length"]))
def test_a_call_is_strict_json_and_a_fault_is_told(raw: str, options: dict[str, Any], finish: str) -> None:
    _, parsed, stopped = streamed([raw], finish, **options)
    check_message(parsed)
    if finish == "length" and not stopped:
        assert parsed.finish_reason == "length"


@settings(max_examples=400, deadline=None)
@given(outputs, parsers(), st.sampled_from(["stop", "length"]))
def test_nothing_vanishes(raw: str, options: dict[str, Any], finish: str) -> None:
    """Words stand in the message, or in the raw text of a call that cannot be run; but for what follows a stop text, or
    the label of an observation, which is not the model's to write."""
    _, parsed, stopped = streamed([raw], finish, **options)
    said = json.dumps([plain(parsed), parsed.invalid_tool_calls], ensure_ascii=False)
    for word in ("Hello", "你好"):
        assert stopped or raw.count(word) <= said.count(word)


WORDS = st.lists(st.sampled_from(["alpha", "beta", "京", "\n", " ", "<", "`", '{"a": 1}', "Action:"]), max_size=8).map(
    "".join
)


@settings(max_examples=200, deadline=None)
@given(WORDS, WORDS, st.sampled_from(["qwen3", "react"]), st.integers(1, 7), st.booleans())
def test_reasoning_never_reappears_in_content(thought: str, answer: str, name: str, size: int, call: bool) -> None:
    family = DIALECTS[name]
    # Such a line is a call in the text protocol, also behind the label of an answer.
    assume(name != "react" or not any(line.lstrip().startswith("Action:") for line in answer.split("\n")))
    secret = "Zq" + thought.replace("\n", " ") + "qZ"
    if family.think:
        raw = f"{family.think[0]}\n{secret}\n{family.think[1]}\n\n{answer}"
        raw += '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>' if call else ""
    else:
        raw = f"Thought: {secret}\n" + ("Action: get_time\nAction Input: {}" if call else f"Final Answer: {answer}")
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    joined, parsed, _ = streamed(pieces, "stop", dialect=name, tools=TOOLS)
    assert joined["reasoning_content"] == secret
    assert "Zq" not in joined["content"] and "qZ" not in joined["content"]
    assert bool(parsed.message.get("tool_calls")) == call


@given(outputs, parsers())
def test_an_unknown_name_is_never_called_without_marks(raw: str, options: dict[str, Any]) -> None:
    """Where no mark says so, only the name of an offered tool makes a call."""
    text = (
        raw.replace("<", "").replace("get_", "got_").replace("add", "odd").replace("Act", "Fact").replace("act", "fact")
    )
    text = text.replace("行动", "").replace("动作", "")
    if any(w.whole_answer for w in options["dialect"].wrappers) and text.lstrip().startswith("```"):
        return
    _, parsed, _ = streamed([text], "stop", **{**options, "dialect": options["dialect"]})
    assert "tool_calls" not in parsed.message


# -- cost -------------------------------------------------------------------------------------------------------------

LONG = {
    "content": ("qwen3", "", "Some words of text. ", ""),
    "content with many marks": ("qwen2.5-coder", "x", " <tool_call> `<tools>` < ``` ", ""),
    "thoughts": ("qwen3", "<think>\n", "Let me think,\n\n", "</think>ok"),
    "unopened thoughts": ("qwen3", "", "Let me think,\n\n", ""),
    "a long argument": ("qwen3", '<tool_call>\n{"name": "f", "arguments": {"a": "', "text \\n", '"}}\n</tool_call>'),
    "many members": ("qwen2.5", '<tool_call>\n{"name": "f", "arguments": {"a": [0', ", 1.5", "]}}\n</tool_call>"),
    "many calls": ("qwen3", "", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n', ""),
    "broken calls": ("qwen3", "", "<tool_call>\nget_time()\n</tool_call>\n", ""),
    "a bare call": ("qwen2.5", '{"name": "get_weather", "arguments": {"city": "', "京都 ", '"}}'),
    "stray marks": ("qwen2.5-coder", "", "> =", "x"),
    "white space": ("qwen3", "", " \n", "x"),
    "white space behind a mark": ("qwen2.5", "x <tool_call>", " \n", "{"),
    "white space in a call": ("qwen2.5", "<tool_call>", " \n", "{"),
    "protocol: thought": ("react", "Thought: ", "so\nT A F \n", "\nFinal Answer: x"),
    "protocol: answer": ("react", "Final Answer: ", "Act: 1\nObs ", ""),
    "protocol: actions": ("react", "Thought: x", '\nAction: add\nAction Input: {"a": 1}', ""),
    "protocol: a long input": ("react", "Action: add\nAction Input: {", '"k": [1],\n', '"k": 1}'),
    "protocol: a plain input": ("react", "Action: get_weather\nAction Input: ", "a\nb ", ""),
    "protocol: white space": ("react", "Action: get_weather\nAction Input: {}", " \n)", ""),
    "protocol: white space at the start": ("react", "", " \n", "x"),
}


def work(raw: str, **options: Any) -> tuple[int, int]:
    """Calls of functions while a text is parsed in pieces of four characters, and the most that was left unread."""
    parser = OutputParser(**options)
    n_calls = most_left = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for at in range(0, len(raw), 4):
            parser.feed(raw[at : at + 4])
            most_left = max(most_left, len(parser.unread))
        parser.finish("stop")
    finally:
        sys.setprofile(before)
    return n_calls, most_left


@pytest.mark.parametrize("name", LONG)
def test_a_piece_costs_the_same_however_long_the_text_before_it(name: str) -> None:
    """Work is counted, not timed: calls of functions grow as the text does, and what is left to be read again with the
    next piece is bounded."""
    dialect, begin, middle, end = LONG[name]
    options: dict[str, Any] = {"dialect": dialect, "tools": TOOLS, "enable_thinking": "thought" in name}
    n_short, _ = work(begin + middle * 200 + end, **options)
    n_long, most_left = work(begin + middle * 2000 + end, **options)
    assert n_long <= 10.5 * n_short
    assert most_left < 256
