"""What is given in the wrong place is named at once, by the package's own errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from laploop.models import ChatModel, ModelError, OutputParser, ScriptedModel, async_openai_client, openai_client
from laploop.models.errors import RequestError

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
