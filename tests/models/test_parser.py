"""The parser's laws and the cases that broke other parsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.models.parsing.parser import OutputParser, ParsedOutput, parse_output

DATA = Path(__file__).parents[1] / "data"


def cases(area: str) -> list[Any]:
    rows = [json.loads(line) for line in (DATA / f"{area}.jsonl").read_text("utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows]


def join(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """Fold deltas the way an OpenAI client does (call ids left out: they are random)."""
    content, reasoning, calls = "", "", {}
    for delta in deltas:
        content += delta.get("content", "")
        reasoning += delta.get("reasoning_content", "")
        for part in delta.get("tool_calls", []):
            call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
            for key in ("name", "arguments"):
                call[key] += part["function"].get(key, "")
    return {"content": content, "reasoning": reasoning, "calls": [calls[i] for i in sorted(calls)]}


def plain(parsed: ParsedOutput) -> dict[str, Any]:
    message = parsed.message
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [dict(c["function"]) for c in message.get("tool_calls", [])],
    }


def feed_all(pieces: list[Any], finish: str, **options: Any) -> tuple[list[dict[str, Any]], ParsedOutput]:
    parser = OutputParser(**options)
    deltas = [d for piece in pieces for d in parser.feed(piece)] + parser.finish(finish)
    return deltas, parser.result()


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "tools": given.get("tools"),
        "enable_thinking": given.get("thinking", True),
        "prompt_opens_think": given.get("prompt_opens_think", False),
    }


def check(parsed: ParsedOutput, expected: dict[str, Any], raw: str) -> None:
    message, exact = parsed.message, expected.get("exact", [])
    for key in ("content", "reasoning_content"):
        if key in expected:
            want = raw if expected[key] == "@raw" else expected[key] or ""
            got = message.get(key) or ""
            assert (got == want) if key in exact else (got.strip() == want.strip())
    calls = message.get("tool_calls", [])
    for call in calls:
        assert isinstance(call["function"]["arguments"], str)
        json.loads(call["function"]["arguments"])
    for key in ("tool_calls", "executable_calls"):
        if key in expected:
            got_calls = [
                {"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])} for c in calls
            ]
            assert got_calls == expected[key]
    if "arguments_text" in expected:
        assert [c["function"]["arguments"] for c in calls] == expected["arguments_text"]
    if "finish_reason" in expected:
        assert parsed.finish_reason == expected["finish_reason"]
    if expected.get("not_silently_empty"):
        assert message["content"] or calls or parsed.invalid_tool_calls
    if "surfaced_text_contains" in expected:
        surfaced = (message["content"] or "") + "".join(c["raw"] for c in parsed.invalid_tool_calls)
        assert expected["surfaced_text_contains"] in surfaced
    if "one_of" in expected:
        faults = []
        for alternative in expected["one_of"]:
            try:
                check(parsed, alternative, raw)
                break
            except AssertionError as fault:
                faults.append(fault)
        else:
            raise AssertionError(faults)


KNOWN_KEYS = {
    "content", "reasoning_content", "tool_calls", "executable_calls", "arguments_text", "finish_reason", "exact",
    "not_silently_empty", "surfaced_text_contains", "one_of", "arguments_strict_json",
}  # fmt: skip


@pytest.mark.parametrize("case", cases("parse"))
def test_parse_case(case: dict[str, Any]) -> None:
    assert set(case["expected"]) <= KNOWN_KEYS
    given_ = case["input"]
    for raw in given_.get("variants") or [given_["raw"]]:
        options = options_of(given_)
        check(parse_output(raw, finish_reason=given_["finish"], **options), case["expected"], raw)
        for size in (1, 2, 3, 5, 8):
            pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
            deltas, parsed = feed_all(pieces, given_["finish"], **options)
            assert join(deltas) == plain(parsed) == plain(parse_output(raw, finish_reason=given_["finish"], **options))


@pytest.mark.parametrize("case", cases("stream"))
def test_stream_case(case: dict[str, Any]) -> None:
    given_, expected = case["input"], case["expected"]
    pieces = [bytes.fromhex(h) for h in given_["byte_chunks_hex"]] if "byte_chunks_hex" in given_ else given_["chunks"]
    splits: list[list[Any]] = [pieces]
    if "chunks" in given_:
        whole = "".join(pieces)
        for size in given_.get("resplit", []):
            n = {"char": 1, "whole": len(whole)}.get(size, size)
            splits.append([whole[i : i + n] for i in range(0, len(whole), n)])
    for split in splits:
        deltas, parsed = feed_all(split, given_["finish"], **options_of(given_))
        check_deltas(deltas, parsed, expected)
        if "chunks" in given_:
            check(parsed, {k: v for k, v in expected.items() if k in KNOWN_KEYS}, whole)
            alone = parse_output(whole, finish_reason=given_["finish"], **options_of(given_))
            assert join(deltas) == plain(parsed) == plain(alone)


def check_deltas(deltas: list[dict[str, Any]], parsed: ParsedOutput, expected: dict[str, Any]) -> None:
    texts = [d.get("content", "") + d.get("reasoning_content", "") for d in deltas]
    parts = [(i, p) for i, d in enumerate(deltas) for p in d.get("tool_calls", [])]
    for key, want in expected.items():
        match key:
            case "no_delta_contains":
                assert not [t for t in texts for bad in want if bad in t]
            case "content_delta_count":
                assert sum("content" in d for d in deltas) == want
            case "indices":
                assert list(dict.fromkeys(p["index"] for _, p in parts)) == want
            case "ids_distinct":
                ids = [p["id"] for _, p in parts if "id" in p]
                assert len(ids) == len(set(ids)) == len({p["index"] for _, p in parts})
            case "every_tool_delta_has_index":
                assert all("index" in p for _, p in parts)
            case "first_delta_of_call_has" | "name_sent_once":
                for index in {p["index"] for _, p in parts}:
                    mine = [p for _, p in parts if p["index"] == index]
                    assert {"index", "id", "type"} <= set(mine[0])
                    assert [bool(p["function"].get("name")) for p in mine] == [True] + [False] * (len(mine) - 1)
            case "arguments_nonempty":
                assert all(c["function"]["arguments"] for c in parsed.message["tool_calls"])
            case "no_content_delta_after_first_tool_delta":
                first = parts[0][0]
                assert not any("content" in d for d in deltas[first:])
            case "argument_deltas_of_a_call_contiguous":
                order = [p["index"] for _, p in parts]
                assert order == sorted(order)
            case "content_startswith":
                assert parsed.message["content"].startswith(want)
            case "content_one_of":
                assert parsed.message["content"] in want
            case "same_as_nonstream" | "no_exception":
                pass  # the caller compares; an exception would have ended the test
            case _:
                assert key in KNOWN_KEYS, key
                if key in ("content", "reasoning_content", "finish_reason"):
                    check(parsed, {key: want, "exact": expected.get("exact", [])}, "")


TOOLS = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}]
FRAGMENTS = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "<tools>", "</tools>", "```json\n", "```", "\n", " ", "{",
        "}", '{"name": "get_time", "arguments": {}}', '{"name": "f", "arguments": {"a": "</tool_call>"}}', '"', "\\",
        "<", "<tool", "Hello", "你好", "[", "]", '{"name"', ": ", "。",
    ]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(
    fragments=st.lists(FRAGMENTS, max_size=14),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    finish=st.sampled_from(["stop", "length"]),
    thinking=st.booleans(),
    opens=st.booleans(),
    tools=st.sampled_from([None, TOOLS]),
    dialect=st.sampled_from(["qwen3", "qwen2.5", "qwen2.5-coder"]),
)
def test_streamed_equals_plain_at_every_split(
    fragments: list[str], sizes: list[int], finish: str, thinking: bool, opens: bool, tools: Any, dialect: str
) -> None:
    raw = "".join(fragments)
    options: dict[str, Any] = {
        "tools": tools, "enable_thinking": thinking, "dialect": dialect,
        "prompt_opens_think": opens and dialect == "qwen3",
    }  # fmt: skip
    alone = parse_output(raw, finish_reason=finish, **options)
    pieces, i = [], 0
    while i < len(raw):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(raw[i : i + size])
        i += size
    deltas, parsed = feed_all(pieces, finish, **options)
    assert join(deltas) == plain(parsed) == plain(alone)
    assert [dict(c) for c in parsed.invalid_tool_calls] == alone.invalid_tool_calls
    assert parsed.finish_reason == alone.finish_reason
    said = json.dumps([plain(parsed), parsed.invalid_tool_calls], ensure_ascii=False)
    for word in ("Hello", "你好"):
        assert word not in raw or word in said, "text vanished"


def test_several_calls_in_one_block_of_the_coder_models() -> None:
    raw = '<tools>\n{"name": "a", "arguments": {"x": 1}}\n{"name": "b", "arguments": {}}\n</tools>'
    parsed = parse_output(raw, dialect="qwen2.5-coder", enable_thinking=False)
    assert [c["function"]["name"] for c in parsed.message["tool_calls"]] == ["a", "b"]
    assert parsed.finish_reason == "tool_calls"


def test_a_tag_that_is_only_mentioned_is_text() -> None:
    raw = "Write `<tool_call>` first, then the object."
    assert parse_output(raw, enable_thinking=False).message["content"] == raw


def test_json_answer_is_no_call_when_it_names_no_offered_tool() -> None:
    raw = '{"name": "Rome", "arguments": {"people": 3}}'
    parsed = parse_output(raw, tools=TOOLS, enable_thinking=False)
    assert parsed.message["content"] == raw and "tool_calls" not in parsed.message


OFFERED = [{"type": "function", "function": {"name": n}} for n in ("get_time", "get_weather")]
ROME = '{"city": "Rome"}'


@pytest.mark.parametrize("dialect", ["qwen3", "qwen2.5", "qwen2.5-coder", "react"])
@pytest.mark.parametrize(
    "raw",
    [
        f'{{"name": "get_weather", "arguments": {ROME}}}',
        f'\n {{"name": "get_weather", "parameters": {ROME}}} \n',
        f'{{"arguments": {ROME}, "name": "get_weather"}}',
        f'{{"tool": "get_weather", "args": {ROME}}}',
        f'{{"function": "get_weather", "arguments": {ROME}}}',
        f'{{"type": "function", "function": {{"name": "get_weather", "arguments": {ROME}}}}}',
        f'{{"action": "get_weather", "action_input": {ROME}}}',
        f'{{"tool_calls": [{{"id": "1", "function": {{"name": "get_weather", "arguments": {ROME}}}}}]}}',
        f'[{{"name": "get_weather", "arguments": {ROME}}}]',
        f'{{{{"name": "get_weather", "arguments": {ROME}}}}}',
        f'```json\n{{"name": "get_weather", "arguments": {ROME}}}\n```',
        f'```\n[{{"name": "get_weather", "arguments": {ROME}}}]\n```\n',
        f'{{"name": "get_weather", "arguments": {ROME}}}\n```',
    ],
)
def test_a_bare_call_of_an_offered_tool_is_rescued(raw: str, dialect: str) -> None:
    for pieces in ([raw], list(raw)):
        deltas, parsed = feed_all(pieces, "stop", tools=OFFERED, enable_thinking=False, dialect=dialect)
        (call,) = join(deltas)["calls"]
        assert call["name"] == "get_weather" and json.loads(call["arguments"]) == {"city": "Rome"}
        assert not parsed.message["content"] and parsed.finish_reason == "tool_calls"
    unknown = raw.replace("get_weather", "got_weather")
    assert "tool_calls" not in parse_output(unknown, tools=OFFERED, enable_thinking=False, dialect=dialect).message
    nothing_offered = parse_output(raw, enable_thinking=False, dialect=dialect).message
    assert "tool_calls" not in nothing_offered and nothing_offered["content"]


@pytest.mark.parametrize(
    "raw",
    [
        '{"name": "get_time", "description": "what time it is"}',
        '{"name": "get_time", "arguments": {}, "parameters": {"a": 1}}',
        '{"tool": "get_time", "action": "get_weather"}',
        '{"name": "get_time", "arguments": {}} is what I would call.',
        'Like so: {"name": "get_time", "arguments": {}}',
        '{"name": "get_time", "arguments": {}}\n{"name": "unknown", "arguments": {}}',
        '{"name": "get_time", "arguments": "now"}',
        '{"function": {"name": "unknown"}}',
        '["get_time"]',
        "{}",
        "[]",
        "```json\n```",
        '```python\n{"name": "get_time"}\n```',
        "``",
    ],
)
def test_what_only_looks_like_a_bare_call_is_text(raw: str) -> None:
    for pieces in ([raw], list(raw)):
        _, parsed = feed_all(pieces, "stop", tools=OFFERED, enable_thinking=False)
        assert parsed.message["content"] == raw and "tool_calls" not in parsed.message
        assert not parsed.invalid_tool_calls


@pytest.mark.parametrize("mark", [">", "=", "> ", "=>\n", " >"])
def test_a_stray_mark_in_front_of_a_bare_call_is_no_answer(mark: str) -> None:
    """Regression: qwen2.5-coder, kept from its own marks, wrote `>{"name": …}`, and that was shown as the answer."""
    raw = f'{mark}{{"name": "get_weather", "arguments": {ROME}}}'
    for pieces in ([raw], list(raw)):
        deltas, parsed = feed_all(pieces, "stop", tools=OFFERED, enable_thinking=False, dialect="qwen2.5-coder")
        (call,) = join(deltas)["calls"]
        assert call["name"] == "get_weather" and json.loads(call["arguments"]) == {"city": "Rome"}
        assert not parsed.message["content"]
        for text in (raw + " is a call", raw.replace("get_weather", "unknown"), mark, f"{mark}A quote.", f"x {raw}"):
            _, parsed = feed_all([text], "stop", tools=OFFERED, enable_thinking=False, dialect="qwen2.5-coder")
            assert parsed.message["content"] == text and "tool_calls" not in parsed.message
        _, parsed = feed_all(pieces, "stop", tools=OFFERED, enable_thinking=False, dialect="qwen3")
        assert parsed.message["content"] == raw


def test_json_that_is_no_call_is_not_held_back() -> None:
    """Regression: an answer in JSON was held back for up to 65,536 characters when its first key was a name."""
    for head in ('{"city": ', '{"name": "Rome",', "[1, 2, ", '["a",', "```python\n"):
        parser = OutputParser(tools=OFFERED, enable_thinking=False)
        deltas = parser.feed(head)
        assert deltas and head.startswith(deltas[0]["content"])


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("dialect", ["qwen3", "qwen2.5-coder", "react"])
def test_a_bare_call_that_ends_too_soon_is_reported(finish: str, dialect: str) -> None:
    """Regression: half a call of the coder models, which mark it by a fence, was shown as the answer."""
    raw = '```json\n{"name": "get_weather", "arguments": {"city": "Ro'
    parsed = parse_output(raw, tools=OFFERED, enable_thinking=False, dialect=dialect, finish_reason=finish)
    (fault,) = parsed.invalid_tool_calls
    assert fault["name"] == "get_weather" and fault["raw"] == raw and not parsed.message["content"]


def test_a_list_keeps_the_spelling_of_its_arguments() -> None:
    """Regression: arguments in a list were written anew, 1e999 as Infinity, which is no JSON."""
    raw = '<tool_call>\n[{"name": "get_time", "arguments": {"a":  1.50, "b": 1e999, "c": "x\ty"}}]\n</tool_call>'
    (call,) = parse_output(raw, enable_thinking=False).message["tool_calls"]
    assert call["function"]["arguments"] == '{"a":  1.50, "b": 1e999, "c": "x\\ty"}'


def test_of_two_stop_texts_the_first_to_be_complete_counts() -> None:
    """Regression: the one that began first counted, if it came in the same piece."""
    for pieces in (["xab", "y"], ["xaby"], list("xaby")):
        parser = OutputParser(enable_thinking=False, stop=["ab", "xaby"])
        assert join([d for p in pieces for d in parser.feed(p)] + parser.finish())["content"] == "x" and parser.stopped


def test_a_cut_call_is_reported_and_never_runnable() -> None:
    parsed = parse_output(
        '<tool_call>\n{"name": "get_time", "arguments": {"zo', finish_reason="length", enable_thinking=False
    )
    assert parsed.finish_reason == "length" and "tool_calls" not in parsed.message
    (cut,) = parsed.invalid_tool_calls
    assert cut["name"] == "get_time" and "token limit" in cut["error"] and cut["raw"].startswith("<tool_call>")


@pytest.mark.parametrize(
    ("dialect", "begun"),
    [
        ("qwen3", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "'),
        ("qwen2.5-coder", '```json\n{"name": "get_weather", "arguments": {"city": "'),
        ("qwen2.5", '{"name": "get_weather", "arguments": {"city": "'),
        ("react", "Thought: hm\nAction: get_weather\nAction Input: {"),
    ],
)
def test_the_call_that_is_being_written_is_known_by_its_name(dialect: str, begun: str) -> None:
    parser = OutputParser(tools=OFFERED, enable_thinking=False, dialect=dialect)
    for char in begun[: begun.index("get_")]:
        parser.feed(char)
        assert parser.calling is None
    parser.feed(begun[begun.index("get_") :])
    assert parser.calling == "get_weather"
    parser.feed('Rome"}}' if '"city"' in begun else '"city": "Rome"}\n')
    parser.feed({"qwen3": "\n</tool_call>", "qwen2.5-coder": "\n```", "react": "\nThought: "}.get(dialect, "\n"))
    parser.finish()
    assert parser.result().message["tool_calls"] and (dialect == "qwen2.5" or parser.calling is None)


def test_no_call_is_being_written_in_an_answer() -> None:
    parser = OutputParser(tools=OFFERED, enable_thinking=False)
    for char in 'It is {"name": "get_weather"} that I would call.':
        parser.feed(char)
        assert parser.calling is None
