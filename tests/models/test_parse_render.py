"""parse(render(message)) is the message, in every dialect, for whatever a message may hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from laploop.models import DIALECTS, OutputParser, render_prompt
from laploop.models.dialect import Dialect
from laploop.models.parsing.labels import label_reader
from laploop.models.template import builtin_template
from laploop.models.text_protocol import assistant_text

TEMPLATES = {
    "qwen3": builtin_template(),
    "qwen2.5": (Path(__file__).parents[1] / "data" / "qwen2.5.jinja").read_text("utf-8"),
}
TEMPLATES["qwen2.5-coder"] = TEMPLATES["qwen2.5"]
USER = {"role": "user", "content": "Go on."}
NAMES = ["get_time", "f", "read-file_2", "N" * 64]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES]

PIECES = [
    "<tool_call>", "</tool_call>", "<tools>", "<think>", "</think>", "```json\n", "```", "<|im_end|>", "<", "\n",
    "\n\n", " ",
    '{"name": "get_time", "arguments": {}}', '{"a"', "Thought:", "Action: f", "Action Input: {}", "Observation: 1",
    "行动：",
    "Final Answer: ", "**Action:** f", "\\", '"', "{{ x }}", "{% if %}", "京", "😀", "\u2028", "\r\n", "a: b", "1. ",
]  # fmt: skip
# A noncharacter that templates.py uses inside a prompt is the one character that no text may bring along.
texts = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=8).map("".join).filter(lambda t: "\ufdd0" not in t)
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
spellings = st.sampled_from(
    [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": 2}, {"sort_keys": True}]
)
arguments = st.builds(
    lambda value, how: json.dumps(value, **how), st.dictionaries(texts, values, max_size=4), spellings
)
# What json.dumps would never write, but models do.
odd_arguments = st.sampled_from(
    ['{"x": 1e400}', '{"x":1.50, "y" : -0}', "{ }", '{"x": 123456789012345678901234567890}']
)
calls = st.lists(st.tuples(st.sampled_from(NAMES), arguments | odd_arguments), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """An assistant message."""
    made = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": text}}
        for i, (name, text) in enumerate(draw(calls))
    ]
    content = draw(texts)
    assume(content.strip() or not content)  # white space alone is no content in any family
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if made else "")}
    if thought := draw(st.just("") | texts):
        message["reasoning_content"] = thought
    return {**message, "tool_calls": made} if made else message


def can_say(message: dict[str, Any], family: Dialect) -> bool:
    """Whether a family has words for a message; what it has none for stands here."""
    content, thought = message["content"] or "", message.get("reasoning_content", "")
    # Line feeds around a thought belong to its marks.
    if thought != thought.strip("\n"):
        return False
    # A bare call of an offered tool is taken for one.
    if content.lstrip()[:1] in ("{", "[", "`") and any(name in content for name in NAMES):
        return False
    if family.labels:
        # A line that begins with a label is that section; a thought alone is no reply.
        reader = label_reader(family.labels, family.variants)
        lines = [line.lstrip() for line in f"{content}\n{thought}".split("\n")]
        spoken = bool(content or message.get("tool_calls"))
        return spoken and not content.startswith("\n") and not any(map(reader.begins, lines))
    if family.think:
        # The block ends with its first closing tag, also where a message of another program keeps it in its content.
        if "</think>" in thought or (not thought and "</think>" in content) or content.startswith("\n"):
            return False
    elif thought:
        return False
    # A mark of a call opens one where a line begins, and where JSON follows.
    opens = "|".join(re.escape(w.open) for w in family.wrappers if not w.whole_answer)
    return not re.search(rf"(?:\A|\n)\s*(?:{opens})|(?:{opens})\s*[{{\[]", content)


def rendered(message: dict[str, Any], family: Dialect) -> str:
    """What a model of the family would have written to say this message."""
    if family.labels:
        return assistant_text(message, family.labels, family.variants)
    template = TEMPLATES[family.name]
    prompt = str(render_prompt(template, [USER], TOOLS))
    whole = str(render_prompt(template, [USER, message], TOOLS, add_generation_prompt=False))
    assert whole.startswith(prompt) and whole.endswith("<|im_end|>\n")
    return whole[len(prompt) : -len("<|im_end|>\n")]


def parsed(text: str, family: Dialect, size: int) -> tuple[dict[str, Any], list[Any]]:
    """The message in a text that comes in pieces, with ids as in `messages`."""
    n_calls = iter(range(len(text)))
    parser = OutputParser(tools=TOOLS, dialect=family, new_call_id=lambda: f"call_{next(n_calls)}")
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    parser.finish("stop")
    result = parser.result()
    return result.message, result.invalid_tool_calls


def call(*given_: str) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{i}", "type": "function", "function": {"name": "f", "arguments": a}} for i, a in enumerate(given_)
    ]


# Other families: test_families.py.
@pytest.mark.parametrize("name", [*TEMPLATES, "react"])
@settings(max_examples=250, deadline=None)
@given(messages(), st.integers(1, 12))
@example({"role": "assistant", "content": None, "tool_calls": call('{"a": "</tool_call>\\nAction: f"}', "{}")}, 3)
@example({"role": "assistant", "content": "Use `<tool_call>` here \n\n", "tool_calls": call("{}")}, 1)
@example(
    {"role": "assistant", "content": "x", "reasoning_content": "a\n\nb <tool_call>\n{}", "tool_calls": call("{}")}, 2
)
@example({"role": "assistant", "content": " two\n spaces ", "reasoning_content": " a "}, 2)
def test_what_is_rendered_is_read_back(name: str, message: dict[str, Any], size: int) -> None:
    family = DIALECTS[name]
    assume(can_say(message, family))
    text = rendered(message, family)
    assert parsed(text, family, size) == (message, [])
    assert parsed(text, family, len(text) or 1) == (message, [])
