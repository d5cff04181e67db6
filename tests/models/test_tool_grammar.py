"""The grammar of a reply: every line of grammar.jsonl, and what each tool_choice admits in each dialect."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import Grammar, GrammarError
from laploop.models import ModelError, tool_grammar
from laploop.models.dialect import get_dialect
from laploop.models.grammar import reply_grammar
from laploop.models.requests.request import Request
from laploop.tools import ToolError, parse_arguments

CASES = {
    c["id"]: c
    for c in map(json.loads, (Path(__file__).parents[1] / "data" / "grammar.jsonl").read_text("utf-8").splitlines())
}
# What C088 builds, written out: a long enum.
LONG_ENUM = {
    "type": "object",
    "properties": {"code": {"enum": [f"item-{i:05d}" for i in range(3000)]}},
    "required": ["code"],
    "additionalProperties": False,
}


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def takes(grammar: Grammar, instance: Any) -> bool:
    """Either spelling will do: json.dumps's own, or the compact one."""
    default = json.dumps(instance, ensure_ascii=False)
    return grammar.accepts(default) or grammar.accepts(json.dumps(instance, ensure_ascii=False, separators=(",", ":")))


SCHEMAS = [c for c in CASES.values() if c["id"] not in ("C070", "C087")]


@pytest.mark.parametrize("case", SCHEMAS, ids=lambda case: case["id"])
def test_schema_case(case: dict[str, Any]) -> None:
    """Arguable in C088 (a very long enum): enforced as it is, since llguidance shares prefixes; a build is quick."""
    schema = case["input"].get("schema", LONG_ENUM)
    expected = case["expected"]
    if case["id"] == "C084":  # what the grammar cannot say (exactly one of two) is left to validation, and it says so
        with pytest.raises(GrammarError, match="oneOf"):
            Grammar.json_schema(schema)
    grammar = Grammar.json_schema(schema, lenient=case["id"] == "C084")
    assert [i for i in expected.get("accept", ()) if not takes(grammar, i)] == []
    assert [i for i in expected.get("reject", ()) if takes(grammar, i)] == []
    assert [t for t in expected.get("accept_text", ()) if not grammar.accepts(t)] == []
    assert [t for t in expected.get("reject_text", ()) if grammar.accepts(t)] == []
    for instance in expected.get("accept", ()):
        if isinstance(instance, dict):
            assert parse_arguments(json.dumps(instance), schema).value == instance
    for instance in expected.get("reject_after_validation", ()):
        with pytest.raises(ToolError):
            parse_arguments(json.dumps(instance), schema)


@pytest.mark.parametrize("case", SCHEMAS, ids=lambda case: case["id"])
def test_schema_case_as_a_tools_arguments(case: dict[str, Any]) -> None:
    """The same through a whole call: normalising a schema loses nothing that its case accepts."""
    tools = [tool("f", case["input"].get("schema", LONG_ENUM))]
    with pytest.warns(UserWarning, match="'f'.*oneOf") if case["id"] == "C084" else nullcontext():
        grammar = tool_grammar(tools, "required")
    assert [
        i for i in case["expected"].get("accept", ()) if isinstance(i, dict) and not grammar.accepts(native("f", i))
    ] == []
    assert [i for i in case["expected"].get("reject", ()) if grammar.accepts(native("f", i))] == []


def native(name: str, arguments: Any) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def test_c070_a_pattern_that_cannot_be_compiled_is_refused_by_name() -> None:
    case = CASES["C070"]
    with pytest.raises(ModelError) as caught:
        tool_grammar([tool("keep", case["input"]["schema"])])
    assert [word for word in [*case["expected"]["error_names"], "keep"] if word not in str(caught.value)] == []


def test_c087_one_odd_schema_disables_no_other() -> None:
    """The line wants a warning that names "odd", for engines that cannot enforce `\\S`. llguidance enforces it, and a
    long maxLength too, so that there is nothing to warn of: the grammar itself refuses what the pattern refuses."""
    case = CASES["C087"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = tool_grammar(case["input"]["tools"], "required")
    calls = case["expected"]["accept_calls"]
    assert [c for c in calls if not grammar.accepts(native(c["name"], c["arguments"]))] == []
    refused = [*case["expected"]["reject_calls"], {"name": "odd", "arguments": {"s": " "}}]
    assert [c for c in refused if grammar.accepts(native(c["name"], c["arguments"]))] == []


def test_a_schema_beyond_the_grammar_warns_once_and_keeps_the_rest() -> None:
    odd = {"type": "object", "properties": {"xs": {"type": "array", "uniqueItems": True}}, "required": ["xs"]}
    tools = [tool("only_here", odd), tool("plain", {"type": "object", "properties": {"a": {"type": "integer"}}})]
    with pytest.warns(UserWarning, match="only_here.*uniqueItems") as caught:
        grammar = tool_grammar(tools, "required")
        tool_grammar(tools, "required")
    assert len(caught) == 1
    assert grammar.accepts(native("only_here", {"xs": [1, 1]})) and not grammar.accepts(native("only_here", {"xs": 1}))
    assert not grammar.accepts(native("plain", {"a": "1"}))


# -- what each choice admits ----------------------------------------------------------------------------------------

TOOLS = [
    tool("alpha", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
    tool("beta", {"type": "object", "properties": {}, "additionalProperties": False}),
]
A, B = native("alpha", {"x": 1}), native("beta", {})
NAMED = {"type": "function", "function": {"name": "beta"}}
ONLY_ALPHA = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("alpha")]}}
MUST_ALPHA = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("alpha")]}}
THOUGHT = "<think>\nhm\n</think>\n\n"


@pytest.mark.parametrize(
    ("choice", "parallel", "accepted", "refused"),
    [
        ("auto", True, ["", "hello", A, f"{A}\n{B}", f"look: {A}"], [f"{A}{B}", f"{A} and so on"]),
        ("auto", False, ["hello", A], [f"{A}\n{B}"]),
        ("none", True, ["hello"], [""]),  # that text holds no mark is the vocabulary's business: test_matcher.py
        ("required", True, [A, f"{A}\n{A}\n{B}"], ["", "hello", f"look: {A}"]),
        ("required", False, [A, B], ["hello", f"{A}\n{B}"]),
        (NAMED, True, [B, f"{B}\n{B}"], [A, "hello", ""]),
        (NAMED, False, [B], [f"{B}\n{B}"]),
        (ONLY_ALPHA, True, ["hello", A], [B]),
        (MUST_ALPHA, True, [A], [B, "hello"]),
    ],
)
def test_tool_choice(choice: Any, parallel: bool, accepted: list[str], refused: list[str]) -> None:
    grammar = tool_grammar(TOOLS, choice, parallel)
    assert [t for t in accepted if not grammar.accepts(t)] == []
    assert [t for t in refused if grammar.accepts(t)] == []


@pytest.mark.parametrize("choice", ["auto", "required", NAMED])
def test_thoughts_are_free_and_the_call_behind_them_is_not(choice: Any) -> None:
    grammar = tool_grammar(TOOLS, choice, enable_thinking=True)
    assert grammar.accepts(THOUGHT + B) and grammar.accepts("<think></think>" + B) and grammar.accepts(B)
    assert grammar.accepts('<think>\n{"name": "京 \\ \n</think>\n\n' + B)
    assert not grammar.accepts("<think>\nhm\n" + B)
    assert not grammar.accepts(THOUGHT + native("beta", {"y": 1}))


def test_a_prompt_that_opened_the_thoughts_has_them_closed() -> None:
    request = Request.of([{"role": "user", "content": "x"}], {"tools": TOOLS, "tool_choice": "required"})
    grammar = reply_grammar(request, get_dialect("qwen3"), "open")
    assert grammar.accepts("hm</think>\n\n" + A) and not grammar.accepts(A)


@pytest.mark.parametrize(
    "text",
    [
        '<tools>\n{"name": "alpha", "arguments": {"x": 1}}\n{"name": "beta", "arguments": {}}\n</tools>',
        A,
        "Plain words.",
        "Words with {braces} and ```fences```.",
    ],
)
def test_the_coder_models_write_calls_in_two_ways(text: str) -> None:
    assert tool_grammar(TOOLS, "auto", dialect="qwen2.5-coder").accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "beta", "arguments": {}}\n```',
        '{"name": "alpha"}',
        "<answer>",
        "[1]",
        "`x`",
        "```python\nx\n```",
        "\n{",
        " <",
    ],
)
def test_the_coder_models_begin_no_text_like_a_call(text: str) -> None:
    assert not tool_grammar(TOOLS, "auto", dialect="qwen2.5-coder").accepts(text)


def test_names_are_data() -> None:
    odd = tool('a"b\\c 日本 {}', {"type": "object", "properties": {}, "additionalProperties": False})
    grammar = tool_grammar([odd, tool("x-y"), tool("x_y")], "required")
    assert grammar.accepts(native('a"b\\c 日本 {}', {})) and grammar.accepts(native("x_y", {"z": [1]}))


def test_no_tools_leaves_text_alone() -> None:
    assert tool_grammar([], "auto").accepts("hello")


def test_a_tool_that_lists_its_parameters_takes_no_others() -> None:
    grammar = tool_grammar([tool("f", {"type": "object", "properties": {"a": {"type": "integer"}}})], "required")
    assert grammar.accepts(native("f", {})) and not grammar.accepts(native("f", {"b": 1}))


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_response_format(kind: str) -> None:
    """Regression: `nullable` and foreign `x-guidance` were left in a response_format's schema."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "nullable": True}},
        "required": ["a"],
        "x-guidance": {"lenient": True, "whitespace_flexible": True},
    }
    form = {"type": kind} if kind == "json_object" else {"type": kind, "json_schema": {"name": "n", "schema": schema}}
    request = Request.of([{"role": "user", "content": "x"}], {"response_format": form})
    grammar = reply_grammar(request, get_dialect("qwen3"), "allowed")
    assert grammar.accepts('{"a": null}') and grammar.accepts(THOUGHT + '{"a": 1}')
    assert not grammar.accepts("hello") and not grammar.accepts("[1]") and not grammar.accepts('{ "a":  1}')
    assert grammar.accepts('{"b": 1}') == (kind == "json_object")


@pytest.mark.parametrize("dialect", ["qwen3", "qwen2.5", "qwen2.5-coder"])
def test_a_response_format_beside_tools_leaves_the_choice_between_a_call_and_json(dialect: str) -> None:
    """Regression: the grammar named a rule for text that it did not have, so that every such request failed."""
    options: dict[str, Any] = {"tools": [tool("f")], "response_format": {"type": "json_object"}}
    family = get_dialect(dialect)
    grammar = reply_grammar(Request.of([{"role": "user", "content": "x"}], options), family, "none")
    wrapper = family.wrappers[0]
    call = f'{wrapper.open}\n{{"name": "f", "arguments": {{}}}}\n{wrapper.close}'
    assert grammar.accepts(call) and grammar.accepts('{"b": 1}')
    assert not grammar.accepts("hello") and not grammar.accepts("hello " + call)


@pytest.mark.parametrize("dialect", ["qwen3", "qwen2.5-coder"])
def test_a_reply_has_an_end_however_often_a_call_is_repeated(dialect: str) -> None:
    """Regression: qwen2.5-coder-0.5b wrote the same call into one fence for a minute, up to the token limit."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    grammar = tool_grammar(tools, "required", dialect=dialect)
    call = '{"name": "f", "arguments": {}}'
    if dialect == "qwen3":
        texts = ["\n".join([f"<tool_call>\n{call}\n</tool_call>"] * n) for n in (1, 16, 17)]
    else:
        texts = [f"<tools>\n{chr(10).join([call] * n)}\n</tools>" for n in (1, 16, 17)]
    assert [grammar.accepts(text) for text in texts] == [True, True, False]


# -- response_format, as OpenAI's users know it ------------------------------------------------------------------------

INNER = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
OUTER = {"type": "object", "properties": {"a": INNER, "c": {"type": "array", "items": INNER}}, "required": ["a"]}


def answer_grammar(schema: dict[str, Any], **more: Any) -> Grammar:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}
    request = Request.of([{"role": "user", "content": "x"}], {"response_format": form})
    return reply_grammar(request, get_dialect("qwen3"), "none")


def test_an_answer_has_no_keys_that_its_schema_does_not_list() -> None:
    """Regression: objects stayed open, where OpenAI's `strict` wants them closed and a tool's arguments are."""
    plain, strict = answer_grammar(OUTER), answer_grammar(OUTER, strict=True)
    for grammar in (plain, strict):
        assert grammar.accepts('{"a": {"b": 1}, "c": [{"b": 2}]}') and not grammar.accepts('{"a": {"b": 1}, "x": 1}')
    for text in ('{"a": {"b": 1, "x": 1}}', '{"a": {"b": 1}, "c": [{"b": 2, "x": 1}]}'):
        assert plain.accepts(text) and not strict.accepts(text)
    assert answer_grammar({**OUTER, "additionalProperties": True}, strict=True).accepts('{"a": {"b": 1}, "x": 1}')


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [INNER, {"type": "object", "properties": {"d": {"type": "integer"}}}]},
        {"properties": {"d": {}}, "anyOf": [INNER, {"properties": {"e": {}}}]},
        {"$defs": {"i": INNER}, "properties": {"d": {}}, "$ref": "#/properties/a/$defs/i"},
    ],
)
def test_what_is_composed_is_not_closed_in_parts(schema: dict[str, Any]) -> None:
    """Each part lists some of the keys; closed one by one nothing would meet them all."""
    grammar = answer_grammar({"type": "object", "properties": {"a": schema}}, strict=True)
    assert any(map(grammar.accepts, ('{"a": {"b": 1, "d": 2}}', '{"a": {"d": 2, "b": 1}}')))


def test_a_strict_tool_is_closed_throughout() -> None:
    for strict in (None, False, True):
        function = {"name": "f", "parameters": OUTER, "strict": strict}
        grammar = tool_grammar([{"type": "function", "function": function}], "required")
        assert grammar.accepts(native("f", {"a": {"b": 1}}))
        assert grammar.accepts(native("f", {"a": {"b": 1, "x": 1}})) == (strict is not True)


def test_a_schema_that_is_null_is_any_object() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": None}}
    request = Request.of([{"role": "user", "content": "x"}], {"response_format": form})
    assert reply_grammar(request, get_dialect("qwen3"), "none").accepts('{"x": 1}')
