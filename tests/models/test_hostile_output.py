"""Whatever a model writes, and whatever text it is, comes to a message that can be written, sent and rendered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laploop.models import DIALECTS, OutputParser, Request, ScriptedModel, parse_output, render_prompt
from laploop.models.template import builtin_template

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "parameters": {"properties": {"place": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "count", "parameters": {"properties": {"n": {"type": "integer"}}}}},
]
PARTS = [
    *["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", " look", " count", "\n", " ", "(", ")"],
    *["<tool_call>", "</tool_call>", "<tools>", "</tools>", "```json\n", "```", "<think>", "</think>", "`", "京", "x"],
    *['{"name": "look", "arguments": ', '{"place": "', '"}', "}}", "{}", '"', "'", "\\", "[", "]", "{", "}", ",", ":"],
    *["\\ud800", "\\udc00", "\\\\ud800", "\ud800", "\udfff", "\x00", "\x1b[2J", "NaN", "9" * 5000, "place=", "null"],
    *['{"action": "look", "action_input": "', '"arguments": "{\\"place\\": \\"\\ud800\\"}"', "\u2028", "\ufdd0"],
]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=14), whole=st.booleans())
@example(parts=["Action:", " look", "\n", "Action Input:", " ", '"', "\\ud800", '"'], whole=True)
@example(parts=["Action:", " look", "\n", "Action Input:", " ", "\ud800"], whole=True)
def test_whatever_is_written_can_be_sent_and_rendered(dialect: str, parts: list[str], whole: bool) -> None:
    """Regression: half a surrogate pair in the one text of a call stood in its arguments as it is, which no encoding
    can write: the next request ended in UnicodeEncodeError."""
    parser = OutputParser(tools=TOOLS, dialect=dialect)
    for piece in ["".join(parts)] if whole else parts:
        parser.feed(piece)
    parser.finish()
    parsed = parser.result()
    json.dumps([parsed.message, parsed.invalid_tool_calls], ensure_ascii=False).encode("utf-8")
    calls = parsed.message.get("tool_calls", [])
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    request = Request.of([{"role": "user", "content": "x"}, parsed.message, *results], {"tools": TOOLS})
    walks = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.values()|list }}"
    for template in (builtin_template(), walks + "{{ c.function.arguments.place }}{% endfor %}{% endfor %}"):
        str(render_prompt(template, request.messages, TOOLS)).encode("utf-8")


@given(st.binary(max_size=60), st.integers(1, 9))
def test_any_bytes_are_a_message(raw: bytes, size: int) -> None:
    for dialect in DIALECTS:
        parser = OutputParser(tools=TOOLS, dialect=dialect)
        for at in range(0, len(raw), size):
            parser.feed(raw[at : at + size])
        parser.finish()
        json.dumps(parser.result().message, ensure_ascii=False).encode("utf-8")


def test_half_a_surrogate_pair_is_no_text() -> None:
    """Regression: a scripted reply that holds one came out as it was; bytes that are no text are U+FFFD."""
    assert parse_output("a\ud800b").message["content"] == "a\ufffdb"
    reply = ScriptedModel(["\udcff"]).create([{"role": "user", "content": "x"}])
    assert reply["choices"][0]["message"]["content"] == "\ufffd"
