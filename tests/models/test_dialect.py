"""Which family's syntax a template speaks, and that every dialect is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from laploop.models import DIALECTS, parse_output, tool_grammar
from laploop.models.call_writing import WrittenCall, calls_text
from laploop.models.detection import detect_dialect
from laploop.models.dialect import Dialect, get_dialect
from laploop.models.errors import RequestError
from laploop.models.template import builtin_template

QWEN25 = (Path(__file__).parents[1] / "data" / "qwen2.5.jinja").read_text("utf-8")
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}]


@pytest.mark.parametrize(
    ("template", "name", "dialect"),
    [
        (builtin_template(), "anything", "qwen3"),
        (QWEN25, "Qwen2.5 1.5B Instruct", "qwen2.5"),
        (QWEN25, "Qwen2.5 Coder 1.5B", "qwen2.5-coder"),
        (QWEN25, "qwen2.5-CODER-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "SmolLM2", "react"),
        ("{% if tools %}<|tool|>{{ tools | tojson }}{% endif %}", "a family that is not known", "react"),
    ],
)
def test_detection(template: str, name: str, dialect: str) -> None:
    assert detect_dialect(template, name).name == dialect


# As Qwen3-Coder, Qwen3.5 and Nemotron 3 write calls, and as GLM 4 does: the same marks, something else inside.
_LOOP = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>%s</tool_call>{% endfor %}"
_LOOP += "{% endfor %}{% if tools %}<think>{{ tools | tojson }}{% endif %}"
_EACH = "{% for k, v in c.function.arguments.items() %}"
_XML = "<function={{ c.function.name }}>" + _EACH + "<parameter={{ k }}>{{ v }}</parameter>"
_KEYS = "{{ c.function.name }}" + _EACH + "<arg_key>{{ k }}</arg_key>{{ v }}"
_JSON = '{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}'


@pytest.mark.parametrize(
    ("inside", "dialect"),
    [
        (_XML + "{% endfor %}</function>", "qwen3.5"),
        (_KEYS + "{% endfor %}", "react"),
        (_JSON + "}", "qwen3"),
        (_JSON, "react"),
    ],
    ids=["xml", "keys", "json", "damaged json"],
)
def test_the_marks_alone_do_not_tell_a_family(inside: str, dialect: str) -> None:
    """Qwen3-Coder's template was taken for Qwen2.5's, and GLM's for Qwen3's: their calls would have been lost."""
    assert detect_dialect(_LOOP.replace("%s", inside), "a coder").name == dialect


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(RequestError) as caught:
        get_dialect("qwen4")
    assert [name for name in DIALECTS if name not in str(caught.value)] == []


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda d: d.name)
def test_what_the_grammar_lets_pass_the_parser_takes_for_a_call(dialect: Dialect) -> None:
    """Every wrapper of a family, written out, is a reply that its parser reads; its grammar admits some."""
    for wrapper in dialect.wrappers:
        text = calls_text(wrapper, [WrittenCall("f", {"a": "x"}, "abcdef123")])
        assert tool_grammar(TOOLS, "required", dialect=dialect).accepts(text) == wrapper.is_written
        parsed = parse_output(text, tools=TOOLS, dialect=dialect, enable_thinking=False)
        assert [c["function"]["arguments"] for c in parsed.message["tool_calls"]] == ['{"a": "x"}']
        assert parsed.finish_reason == "tool_calls" and not parsed.message["content"]


@pytest.mark.parametrize("dialect", [d for d in DIALECTS.values() if d.think], ids=lambda d: d.name)
def test_the_words_that_cut_thinking_off_close_the_block(dialect: Dialect) -> None:
    assert dialect.think
    text = f"{dialect.think[0]}\nI was just{dialect.think_cut}Answer."
    parsed = parse_output(text, dialect=dialect)
    assert parsed.message["content"] == "Answer." and parsed.message["reasoning_content"].startswith("I was just")
    assert tool_grammar(TOOLS, "auto", dialect=dialect, enable_thinking=True).accepts(text)
