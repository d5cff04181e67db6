"""What is given in the wrong place is named at once, by the package's own errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from laploop.engine import Engine, EngineConfig, EngineError, Grammar, GrammarError, SamplingParams


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("hi",), "tokens is 'hi'; expected a list of tokens, such as engine.tokenize"),
        ((b"hi",), "tokens is b'hi'"),
        ((5,), "tokens is 5"),
        ((None,), "tokens is None"),
        (({1: 2},), "tokens is {1: 2}"),
        (([1.5],), "holds a float; expected whole numbers from 0 to"),
        (([True],), "holds a bool"),
        ((["a"],), "holds a str"),
        (([1, -1],), "-1 is no token of this model"),
        (([2**40],), "1099511627776 is no token"),
        (([10**5000],), "a value of type int that cannot be shown is no token"),
        (([1], 5), r"sampling is 5; expected SamplingParams\(…\), or None"),
        (([1], {}), "sampling is {}"),
        (([1], None, "start: /a/"), r"grammar is 'start: /a/'; expected Grammar"),
        (([1], None, None, 0), "max_tokens must be a whole number ≥ 1, or None for no limit; got 0"),
        (([1], None, None, -1), "max_tokens must be"),
        (([1], None, None, "5"), "max_tokens must be"),
        (([1], None, None, 1.5), "max_tokens must be"),
    ],
)
def test_a_generation_that_cannot_be_asked_for(tiny_engine: Engine, given: tuple[Any, ...], words: str) -> None:
    """Regression: a text was an error of numpy's in the thread that decodes, a token that is none one of llama.cpp's,
    max_tokens=0 meant no limit, and -1 was a text of nothing."""
    with pytest.raises(EngineError, match=words):
        tiny_engine.generate(*given)


def test_no_limit_that_is_too_large(tiny_engine: Engine) -> None:
    steps = tiny_engine.generate([1], SamplingParams(temperature=0), Grammar("start: /abc/\n"), max_tokens=10**400)
    assert b"".join(step.text for step in steps) == b"abc"


def test_texts_and_tokens_are_told_apart(tiny_engine: Engine) -> None:
    """Regression: these were TypeError and IndexError; -1 was the text of the last token."""
    for text in (5, None, ["a", 5], [b"a"]):
        with pytest.raises(EngineError, match="a text to tokenize is"):
            tiny_engine.tokenize(text)  # type: ignore[arg-type]
    for tokens in ("hi", [-1], [10**9], [1.0]):
        with pytest.raises(EngineError, match="token"):
            tiny_engine.detokenize(tokens)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="tokens is 5"):
        tiny_engine.detokenize(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [5, None, b"x.gguf", "a\0b", ["x.gguf"]])
def test_what_is_no_path_is_not_loaded(path: Any) -> None:
    """Regression: TypeError, and ValueError for a path with a null character."""
    with pytest.raises(EngineError, match=r"path is .*expected the path of a GGUF file"):
        Engine.load(path)


def test_a_model_is_loaded_by_a_configuration(tiny_path: Path) -> None:
    for config in (5, {"n_ctx": 512}, "n_ctx=512", EngineConfig):
        with pytest.raises(EngineError, match=r"config is .*expected EngineConfig"):
            Engine.load(tiny_path, config)  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [5, None, b"start: /a/", {"type": "object"}, 'start: "\ud800"'])
def test_what_is_no_grammar(rules: Any) -> None:
    """Regression: TypeError and UnicodeEncodeError where it was compiled, which is in the middle of a request."""
    with pytest.raises(GrammarError, match=r"rules is|half a surrogate pair"):
        Grammar(rules)
    with pytest.raises(GrammarError, match="marks is '<a>'; expected a tuple"):
        Grammar("start: /a/\n", "<a>")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema", [5, None, "string", [], {"enum": {1}}, {"const": "\ud800"}, {"const": float("nan")}, {"a": object()}]
)
def test_what_is_no_schema(schema: Any) -> None:
    """Regression: TypeError and UnicodeEncodeError."""
    with pytest.raises(GrammarError):
        Grammar.json_schema(schema)


def test_only_texts_match() -> None:
    grammar = Grammar("start: /.*/\n")
    assert grammar.accepts("a") and not grammar.accepts("\ud800")
    with pytest.raises(GrammarError, match="text is 5"):
        grammar.accepts(5)  # type: ignore[arg-type]
