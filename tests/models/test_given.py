"""What is given in the wrong place is named at once, by the package's own errors."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from laploop.engine import EngineError
from laploop.models import (
    ChatModel,
    ModelError,
    OutputParser,
    ScriptedModel,
    async_openai_client,
    openai_client,
    parse_output,
    render_prompt,
    schema_report,
    tool_grammar,
)
from laploop.models.errors import RequestError
from laploop.models.template import builtin_template

USER = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ("abc", r"turns is 'abc'; expected a list of raw replies, such as \['abc'\]"),
        (b"abc", "turns is b'abc'"),
        ({"raw": "abc"}, "turns is {'raw': 'abc'}"),
        (5, "turns is 5"),
        (None, "turns is None"),
        ([5], r"turns\[0\] is 5; expected a raw text, or"),
        (["a", {"raw": 5}], r"turns\[1\] is {'raw': 5}"),
        ([{"finish": "stop"}], r"turns\[0\]"),
        ([{"raw": "a", "finish": "tool_calls"}], r"turns\[0\].*\"stop\" or \"length\""),
        ([{"raw": "a", "reason": "stop"}], r"turns\[0\]"),
    ],
)
def test_a_script_is_a_list_of_turns(turns: Any, words: str) -> None:
    """Regression: a text was taken for a script of its letters; the rest ended in AttributeError and KeyError when the
    turn came."""
    with pytest.raises(ModelError, match=words):
        ScriptedModel(turns)


def test_a_script_has_a_dialect_and_pieces() -> None:
    for dialect in ("klingon", 5):
        with pytest.raises(RequestError, match=r"unknown dialect .*known: qwen3"):
            ScriptedModel(["a"], dialect=dialect)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="unknown dialect"):
            OutputParser(dialect=dialect)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="piece must be a whole number"):
        ScriptedModel(["a"], piece=0)


def test_a_prompt_is_rendered_of_a_request(tiny_chat: ChatModel) -> None:
    """Regression: AttributeError."""
    for request in (USER, "hi", None):
        with pytest.raises(RequestError, match=r"render takes a Request, such as Request.of\(messages"):
            tiny_chat.render(request)  # type: ignore[arg-type]


def test_a_client_is_for_a_loaded_model() -> None:
    """Regression: a name was taken, and every request answered by AttributeError."""
    with pytest.raises(ModelError, match=r'model is \'qwen\'; expected a loaded one, such as ChatModel.load\("qwen"\)'):
        openai_client("qwen")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="model is None"):
        async_openai_client(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["self", "cls", "request", "options", "messages ", "", "kwargs"])
def test_a_field_is_never_an_argument_of_pythons(name: str) -> None:
    """Regression: "self" in a request's body was a TypeError of the method that it was passed to."""
    with pytest.raises(RequestError, match="unsupported request field"):
        ScriptedModel(["a"]).create(USER, **{name: 1})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="unsupported request field"):
        ScriptedModel(["a"]).stream(USER, **{name: 1})  # type: ignore[arg-type]
    body = json.dumps({"model": "scripted", "messages": USER, name: 1}).encode()
    from laploop.models.openai_api.endpoint import answer

    found = answer(ScriptedModel(["a"]), "POST", "/chat/completions", body)
    assert found.status == 400 and b"unsupported request field" in b"".join(found.parts)


CALLS: list[Any] = [5, [5], [{"function": {"name": "f", "arguments": 5}}], [{"function": {"name": 5}}]]
JUNK: list[Any] = [
    None,
    0,
    1,
    True,
    "",
    "x",
    b"x",
    "\ud800",
    [],
    {},
    [1],
    [{}],
    {1: 2},
    {"type": 5},
    object(),
    10**5000,
]
JUNK += [[{"role": "user", "content": 5}], [{"role": 5, "content": "x"}], [{"content": "x"}], float("nan"), ...]
JUNK += [[{"role": "assistant", "tool_calls": calls}] for calls in CALLS]


@pytest.mark.parametrize("value", JUNK, ids=lambda value: repr(value)[:20] if value != 10**5000 else "long")
def test_the_parts_take_what_they_are_made_for_or_say_so(value: Any) -> None:
    """Regression: TypeError, AttributeError and KeyError from somewhere inside."""
    template = builtin_template()
    for attempt in (
        lambda: render_prompt(value, USER),
        lambda: render_prompt(template, value),
        lambda: render_prompt(template, USER, value),
        lambda: render_prompt(template, USER, variables=value),
        lambda: render_prompt(template, USER, marks=value),
        lambda: parse_output(value),
        lambda: parse_output("x", tools=value),
        lambda: parse_output("x", dialect=value),
        lambda: OutputParser(stop=value).feed("x"),
        lambda: OutputParser().feed(value),
        lambda: tool_grammar(value),
        lambda: tool_grammar([], value),
        lambda: schema_report(value),
    ):
        with contextlib.suppress(ModelError, EngineError):
            attempt()
