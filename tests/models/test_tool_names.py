"""Whatever name a request may give a tool, a call of it is read back as a call of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laploop.models import DIALECTS, parse_output, tool_grammar
from laploop.models.call_writing import WrittenCall, calls_text
from laploop.models.errors import RequestError

ODD = ["none", "Final Answer", "Finish", "Observation:", "Thought: x", "Action Input:", "<tool_call>", "</tool_call>"]
ODD += [
    "```",
    "look(x)",
    "look[1]",
    '{"a": 1}',
    "[]",
    "'",
    '"',
    "\\",
    "\\u0041",
    "**bold**",
    "1. look",
    "-",
    "查天气",
    "a b",
]
names = st.one_of(
    st.sampled_from(ODD),
    st.lists(st.sampled_from([*ODD, " ", ":", ".", ",", "(", "{", "`", "*", "x"]), min_size=1, max_size=3).map("".join),
    st.text(min_size=1, max_size=12),
)


def written(dialect: str, name: str) -> str:
    family = DIALECTS[dialect]
    if family.labels:
        return f"{family.labels.action} {name}\n{family.labels.action_input} {{}}"
    return calls_text(family.native, [WrittenCall(name, {}, "abcdef123")])


@pytest.mark.parametrize("dialect", DIALECTS)
@given(name=names)
@example(name="a\x00b")
@example(name="a\u200bb")
@example(name="x" * 256)
@example(name="x Action Input:")
@example(name="look Action Input: {}")
def test_a_call_is_read_back_or_the_name_is_refused(dialect: str, name: str) -> None:
    """Regression: a name that is not printable made a call that the parser refused, so that a required call ended in
    "stop" without one."""
    tools = [{"type": "function", "function": {"name": name}}, {"type": "function", "function": {"name": "other"}}]
    try:
        grammar = tool_grammar(tools, {"type": "function", "function": {"name": name}}, dialect=dialect)
    except RequestError as error:
        # Where the name is no JSON text, it cannot hold what may follow it.
        unspeakable = not DIALECTS[dialect].labels and not DIALECTS[dialect].native.shape.is_json
        told = "letters, digits" in str(error) and unspeakable and not re.fullmatch(r"[\w-]{1,256}", name)
        assert told or not name.strip() or not name.isprintable() or name == "other"
        return
    if DIALECTS[dialect].labels and name != name.strip():
        return  # refused where the prompt is made
    raw = written(dialect, name)
    assert grammar.accepts(raw)
    parsed = parse_output(raw, tools=tools, dialect=dialect)
    assert [call["function"]["name"] for call in parsed.message.get("tool_calls", [])] == [name], parsed
    assert parsed.finish_reason == "tool_calls"
