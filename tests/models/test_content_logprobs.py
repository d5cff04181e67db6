"""The tokens of the content, and only they, come with their probabilities, however the reply is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models import OutputParser, ScriptedModel, accumulate
from laploop.models.content_logprobs import ContentLogprobs, token_logprob

USER = [{"role": "user", "content": "x"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "an answer"}}\n</tool_call>'
WORDS = st.lists(
    st.sampled_from(["a", "an", "answer", "<", "END", "EN", "\n", " ", "京", "é", "😀", "{", "tool"]), max_size=9
)


def reply(raw: str, piece: int, **options: Any) -> dict[str, Any]:
    model = ScriptedModel([raw], enable_thinking="<think>" in raw, piece=piece)
    return accumulate(model.stream(USER, logprobs=True, **options))["choices"][0]  # type: ignore[no-any-return]


def spelled(choice: dict[str, Any]) -> str:
    tokens = (choice["logprobs"] or {"content": []})["content"]
    return b"".join(bytes(t["bytes"]) for t in tokens).decode()


@given(WORDS.map("".join), WORDS.map("".join), st.booleans())
def test_tokens_of_one_character_spell_the_content(thought: str, text: str, stops: bool) -> None:
    raw = f"<think>\n{thought}\n</think>\n\n{text}" if thought else text
    choice = reply(raw, 1, stop="END" if stops else None)
    assert spelled(choice) == choice["message"]["content"]


@given(WORDS, WORDS, st.booleans())
def test_tokens_of_any_length_hold_the_content_and_come_once(thought: list[str], text: list[str], stops: bool) -> None:
    """A mark is a token by itself, as in every vocabulary that has it."""
    parser = OutputParser(stop=["END"] if stops else ())
    content = ContentLogprobs(True)
    pairs: list[Any] = []
    tokens = ["<think>", "\n", *thought, "\n", "</think>", "\n\n", *text]
    for token in tokens:
        content.add([token_logprob(token.encode(), 0.0)])
        pairs += content.of(parser.feed(token), parser.in_reasoning)
    pairs += content.of(parser.finish(), False)
    given_out = [t["token"] for _, logprobs in pairs if logprobs for t in logprobs["content"]]
    said = parser.result().message["content"]
    at = "".join(given_out).find(said)
    assert at == (len(given_out[0]) - len(given_out[0].lstrip("\n")) if said else 0)
    assert "\0".join(given_out) in "\0".join(tokens), "each once, and none left out between"
    assert not said or len("".join(given_out)) - at - len(said) < len(given_out[-1]), "none beyond the content"


@pytest.mark.parametrize("piece", [1, 3, 8])
def test_text_before_a_call_counts_and_the_call_does_not(piece: int) -> None:
    choice = reply("an answer:\n" + CALL, piece, tools=TOOLS)
    assert choice["message"]["content"] == "an answer:"
    assert "an answer:" in spelled(choice) and "tool_call" not in spelled(choice)
    assert reply(CALL, piece, tools=TOOLS)["logprobs"] is None


def test_the_shape_is_openais() -> None:
    choice = reply("Hi 京", 4, top_logprobs=1)
    named = {"token": "Hi 京", "logprob": 0.0, "bytes": [72, 105, 32, 228, 186, 172]}
    assert choice["logprobs"] == {"content": [{**named, "top_logprobs": [named]}], "refusal": None}
    chunks = list(ScriptedModel(["Hi"]).stream(USER, logprobs=True))
    assert [bool(c["choices"][0]["logprobs"]) for c in chunks] == [False, True, False]
    assert ScriptedModel(["Hi"]).create(USER)["choices"][0]["logprobs"] is None


def test_a_character_of_several_tokens_keeps_them_all() -> None:
    content = ContentLogprobs(True)
    parts = [token_logprob(bytes([b]), -1.0) for b in "京!".encode()]
    content.add(parts[:1])
    content.add(parts[1:])
    delta = {"content": "京!"}
    assert content.of([delta], False) == [(delta, {"content": parts, "refusal": None})]
    assert [t["token"] for t in parts] == ["\ufffd"] * 3 + ["!"]


def test_what_cannot_come_is_written_as_openai_does() -> None:
    """JSON has no infinity."""
    assert token_logprob(b"x", float("-inf"), [(b"y", float("-inf"))]) == {
        "token": "x",
        "logprob": -9999.0,
        "bytes": [120],
        "top_logprobs": [{"token": "y", "logprob": -9999.0, "bytes": [121]}],
    }
