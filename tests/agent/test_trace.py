"""The trace: everything that decided a run is in it, and it survives its file."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, Trace, TraceError
from laploop.models import ScriptedModel
from laploop.tools import tool

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@tool
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: first
        b: second
    """
    return a + b


def test_a_run_is_recorded_from_the_question_to_the_answer(calls: Callable[..., str]) -> None:
    raw = "<think>\nAdd them.\n</think>\n\n" + calls(("add", {"a": "2", "b": 3}))
    result = Agent(ScriptedModel([raw, "5"], enable_thinking=True), [add], seed=7).run("2+3?")
    kinds = [r["type"] for r in result.trace]
    assert kinds == [
        "run_started",
        "round_started",
        "round_finished",
        "call_started",
        "call_finished",
        "round_started",
        "round_finished",
        "run_finished",
    ]
    start, end = result.trace.records[0], result.trace.records[-1]
    assert start["question"] == "2+3?"
    assert start["system_prompt"] == result.messages[0]["content"]
    assert start["tools"] == [add.to_openai()]
    assert start["request"] == {"seed": 7, "max_tokens": 2048}
    reply = result.trace.of_type("round_finished")[0]
    assert reply["raw_output"] == raw
    assert reply["message"] == result.messages[2]
    assert reply["usage"]["completion_tokens"] > 0
    call = result.trace.of_type("call_finished")[0]
    assert (call["name"], json.loads(call["arguments"]), call["content"]) == ("add", {"a": "2", "b": 3}, "5")
    assert call["notes"], "the conversion of a string to a number is noted"
    assert call["seconds"] >= 0
    assert (end["answer"], end["stop_reason"], end["usage"]) == ("5", "answer", result.usage)
    times = [r["t_s"] for r in result.trace]
    assert times == sorted(times)


def test_written_and_read_is_the_same(calls: Callable[..., str]) -> None:
    result = Agent(ScriptedModel([calls(("add", {"a": 1, "b": 1})), "二"]), [add]).run("一加一？")
    assert Trace.from_jsonl(result.trace.to_jsonl()) == result.trace


@given(st.lists(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), max_size=4))
def test_any_records_survive(values: list[dict[str, object]]) -> None:
    """Also text with U+2028 and other characters that some tools take for line ends."""
    trace = Trace()
    for value in values:
        trace.add("thing", value=value)
    assert Trace.from_jsonl(trace.to_jsonl()) == trace


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "first line"),
        ('{"type": "run_started"}\n', "first line"),
        ('{"type": "trace", "schema_version": 2}\n', "schema_version 2"),
        ('{"type": "trace", "schema_version": 1}\n{"t": 1}\n', "line 2"),
        ('{"type": "trace", "schema_version": 1}\n\n{oops\n', "line 3"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_line(text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        Trace.from_jsonl(text)


def test_half_a_surrogate_pair_can_be_written() -> None:
    """Regression: the text of the trace could not be encoded."""
    trace = Trace([{"type": "run_started", "t_s": 0.0, "question": "a\udcffb"}])
    assert Trace.from_jsonl(trace.to_jsonl().encode("utf-8").decode("utf-8")) == trace
