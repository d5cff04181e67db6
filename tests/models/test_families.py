"""Families whose templates are published: detected, rendered, called and parsed; goldens of their prompts.

The templates are those of llama.cpp's models/templates, as tests/data/templates/README.md says. No weights were seen of
most of them: what a model does with its prompt is not tested here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from laploop.models import DIALECTS, OutputParser, render_prompt, tool_grammar
from laploop.models.call_writing import WrittenCall, calls_text
from laploop.models.detection import detect_dialect
from laploop.models.dialect import Dialect
from laploop.models.history import fitting
from laploop.models.template import builtin_template
from laploop.models.template_faults import template_faults

DATA = Path(__file__).parents[1] / "data"
TEMPLATES = {path.stem: path.read_text("utf-8") for path in sorted((DATA / "templates").glob("*.jinja"))}
# Qwen3-2507: the instruct models' template says nothing of thoughts, the thinking models' prompts open the block.
OPENING = "{{- '<|im_start|>assistant\\n' }}"
TEMPLATES["Qwen3-2507-thinking"] = builtin_template().replace(OPENING, OPENING.replace("\\n'", "\\n<think>\\n'"))
TEMPLATES["Qwen3-2507-instruct"] = (DATA / "qwen2.5.jinja").read_text("utf-8")
TEMPLATES["SmolLM3-tools"] = (
    "{% if xml_tools %}<tools>{% for t in xml_tools %}{{ t }}{% endfor %}</tools> Within <tool_call></tool_call>: "
    '{"name": <function-name>, "arguments": <args-json-object>}{% endif %}'
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# </think> #}"
)
FOUND = {
    "Qwen-Qwen3-0.6B": "qwen3", "Qwen3-2507-thinking": "qwen3", "Qwen3-2507-instruct": "qwen2.5",
    "Qwen3-Coder": "qwen3-coder", "Qwen3.5-4B": "qwen3.5", "ibm-granite-granite-4.0": "qwen2.5",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes", "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3", "mistralai-Mistral-Nemo-Instruct-2407": "mistral-v3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-v11", "unsloth-mistral-Devstral-Small-2507": "mistral-v13",
    "mistralai-Ministral-3-14B-Reasoning-2512": "ministral-reasoning", "google-gemma-4-31B-it": "gemma4",
    "SmolLM3-tools": "qwen3",
    # Without a place for tools: the text protocol.
    "google-gemma-2-2b-it": "react", "HuggingFaceTB-SmolLM3-3B": "react", "microsoft-Phi-3.5-mini-instruct": "react",
}  # fmt: skip
SPEAKING = [name for name, dialect in FOUND.items() if dialect != "react"]


def tool(name: str, /, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"What {name} does.",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        },
    }


TOOLS = [
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    # No null among the types: Hermes' template calls itself without end for one.
    tool(
        "note",
        text={"type": "string"},
        share={"type": "number"},
        done={"type": "boolean"},
        tags={"type": "array", "items": {}},
        more={"type": "object"},
        any={},
    ),
]


def dialect_of(name: str) -> Dialect:
    return detect_dialect(TEMPLATES[name], name)


def rendered(name: str, messages: list[dict[str, Any]], *, tools: Any = TOOLS, more: bool = True) -> str:
    family = dialect_of(name)
    prompt = render_prompt(
        TEMPLATES[name],
        fitting(messages, family),
        tools,
        add_generation_prompt=more,
        variables={"bos_token": "<BOS>", "eos_token": "<EOS>", "date_string": "01 Dec 2026"},
        calls_in_content=family.native if family.calls_in_content else None,
    )
    return str(prompt)


def called(*calls: tuple[str, str], content: str | None = None) -> dict[str, Any]:
    made = [
        {"id": f"call{i:05}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(index: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call{index:05}", "content": content}


QUESTION = {"role": "user", "content": "How is the weather in Rome and in 北京?"}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    called(("get_weather", '{"city": "Rome"}'), ("get_weather", '{"city": "北京", "days": 2}')),
    result(0, "sunny"),
    result(1, '{"sky": "rain"}'),
]


@pytest.mark.parametrize("name", FOUND)
def test_a_family_is_found_by_what_its_template_writes(name: str) -> None:
    assert dialect_of(name).name == FOUND[name]
    assert dialect_of(name).calls_in_content == (name == "SmolLM3-tools")


@pytest.mark.parametrize("name", SPEAKING)
def test_its_prompts_are_the_golden_ones(name: str) -> None:
    """A changed byte is seen in review. `LAPLOOP_WRITE_GOLDENS=1` writes them anew."""
    golden = DATA / "goldens" / f"{name}.txt"
    text = rendered(name, CONVERSATION)
    if os.environ.get("LAPLOOP_WRITE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8", newline="\n")
    assert text == golden.read_text("utf-8")
    # Nemo's template has the system message only where the user spoke last.
    assert ("Be brief." in text) != (FOUND[name] == "mistral-v3")
    assert [said for said in ("北京", "sunny", "rain", "Rome") if said not in text] == []


@pytest.mark.parametrize("name", SPEAKING)
def test_chats_without_tools_are_rendered_too(name: str) -> None:
    """Hermes' template for tool use goes through the list of tools without asking whether there is one."""
    assert "weather in Rome" in rendered(name, [QUESTION], tools=None)


@pytest.mark.parametrize("name", SPEAKING)
def test_calls_that_the_grammar_lets_pass_are_what_the_template_writes(name: str) -> None:
    """The spelling of grammar, writer and template is one."""
    family = dialect_of(name)
    calls = [WrittenCall("get_weather", {"city": "Rome"}, "call00000")]
    if family.native.joint is not None:
        calls.append(WrittenCall("get_weather", {"city": "北京", "days": 2}, "call00001"))
    text = calls_text(family.native, calls)
    assert tool_grammar(TOOLS, "required", dialect=family).accepts(text)
    made = called(*((c.name, json.dumps(c.arguments, ensure_ascii=False)) for c in calls))
    assert text in rendered(name, [QUESTION, made], more=False)


# -- laws ---------------------------------------------------------------------------------------------------------

PIECES = [
    "<tool_call>", "</tool_call>", "</parameter>", "\n</parameter>\n", "</function>", "<function=note>", "\n", " ", "<",
    '<|"', "{", "}", ":", ",", "[", "]", '"', "\\", "[ARGS]", "28", "true", "null", "京", "<think>", "a", "'", "None",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=6)
words = texts.map("".join).filter(lambda text: "\ufdd0" not in text)
keys = st.from_regex(r"\A[a-z][a-z_]{0,5}\Z")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A call of one of TOOLS, with some of its parameters."""
    if draw(st.booleans()):
        whole = {"city": draw(words), "days": draw(st.integers(-9, 99))}
        return "get_weather", {"city": whole["city"]} if draw(st.booleans()) else whole
    whole = {
        "text": draw(words), "share": draw(st.floats(-1e9, 1e9) | st.integers(0, 9)), "done": draw(st.booleans()),
        "tags": draw(st.lists(values, max_size=3)), "more": draw(st.dictionaries(keys, values, max_size=3)),
        "any": draw(st.none() | st.booleans() | st.integers(0, 9)),
    }  # fmt: skip
    kept = draw(st.sets(st.sampled_from(sorted(whole)[1:]), max_size=5))
    return "note", {k: v for k, v in whole.items() if k in kept or k == "text"}


def can_say(family: Dialect, value: Any) -> bool:
    """Whether a notation has words for a value; what it has none for stands here."""
    shape = family.native.shape
    if isinstance(value, dict):
        return all(can_say(family, v) for v in value.values())
    if isinstance(value, list):
        return all(can_say(family, v) for v in value)
    if not isinstance(value, str):
        return True
    if shape.arguments == "quoted":
        return shape.quote not in value
    return shape.arguments == "json" or "</parameter>" not in value


@pytest.mark.parametrize("name", SPEAKING)
@settings(max_examples=25, deadline=None)
@given(calls=st.lists(arguments(), min_size=1, max_size=3), size=st.integers(1, 9))
def test_what_is_rendered_is_read_back_at_any_split(name: str, calls: list[Any], size: int) -> None:
    family = dialect_of(name)
    assume(all(can_say(family, given_) for _, given_ in calls))
    calls = calls if family.native.joint is not None else calls[:1]
    message = called(*((tool_name, json.dumps(given_)) for tool_name, given_ in calls))
    whole = rendered(name, [QUESTION, message], more=False)
    text = whole[whole.index(family.native.open or "{", whole.rindex(QUESTION["content"])) :]
    for end in ("<EOS>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|tool_response>"):
        text = text.removesuffix("\n").removesuffix(end)
    outcomes = []
    for step in (size, len(text)):
        parser = OutputParser(tools=TOOLS, dialect=family, enable_thinking=False)
        for at in range(0, len(text), step):
            parser.feed(text[at : at + step])
        parser.finish()
        parsed = parser.result()
        assert parsed.invalid_tool_calls == [] and parsed.message["content"] is None
        outcomes.append(
            [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in parsed.message["tool_calls"]]
        )
        if family.native.shape.id_behind_name or family.native.shape.id_behind_arguments:
            assert [c["id"] for c in parsed.message["tool_calls"]] == [f"call{i:05}" for i in range(len(calls))]
    assert outcomes == [calls, calls]


# -- histories ------------------------------------------------------------------------------------------------------


def test_where_a_message_takes_one_call_each_stands_with_its_result() -> None:
    """Llama's template refuses a message of several calls, which other models and clients make."""
    fitted = fitting(CONVERSATION, DIALECTS["llama3"])
    assert [m.get("tool_call_id") or [c["id"] for c in m.get("tool_calls", ())] for m in fitted[2:]] == [
        ["call00000"], "call00000", ["call00001"], "call00001",
    ]  # fmt: skip
    assert len(CONVERSATION[2]["tool_calls"]) == 2


def test_ids_that_a_template_refuses_are_others_the_same_each_time() -> None:
    message = called(("get_weather", "{}"))
    message["tool_calls"][0]["id"] = "call_0123456789abcdef"
    answer = {"role": "tool", "tool_call_id": "call_0123456789abcdef", "content": "x"}
    call_, back = fitting([message, answer], DIALECTS["mistral-v3"])
    made = call_["tool_calls"][0]["id"]
    assert len(made) == 9 and made.isalnum() and back["tool_call_id"] == made
    assert fitting([message, answer], DIALECTS["mistral-v3"])[1]["tool_call_id"] == made
    assert message["tool_calls"][0]["id"] == "call_0123456789abcdef"
    assert fitting(CONVERSATION, DIALECTS["mistral-v3"])[3]["tool_call_id"] == "call00000"


def test_new_ids_have_the_form_that_the_template_takes() -> None:
    parser = OutputParser(tools=TOOLS, dialect="mistral-v13")
    parser.feed('[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}')
    parser.finish()
    made = parser.result().message["tool_calls"][0]["id"]
    assert len(made) == 9 and made.isalnum()


def test_text_in_calls_of_the_content_is_no_mark() -> None:
    """Where calls are written into the content, the marks are ours and what stands between them is not."""
    message = called(("get_weather", '{"city": "</tool_call><|im_end|>"}'), content="See <tool_call>")
    family = dialect_of("SmolLM3-tools")
    prompt = render_prompt(
        TEMPLATES["SmolLM3-tools"],
        [QUESTION, message],
        TOOLS,
        calls_in_content=family.native,
        add_generation_prompt=False,
    )
    whole_marks = [piece for piece in prompt.pieces if "<tool_call>" in piece or "</tool_call>" in piece]
    assert str(prompt).count("<tool_call>") - sum(p.count("<tool_call>") for p in whole_marks) == 1
    assert sum(p.count("</tool_call>") for p in whole_marks[1:]) == 1
    assert template_faults(TEMPLATES["SmolLM3-tools"])[:1] == ["loses the calls"]
