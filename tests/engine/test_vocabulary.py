"""Text to tokens and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine import Engine


@given(st.text())
def test_text_comes_back_as_it_was(tiny_engine: Engine, text: str) -> None:
    assert tiny_engine.detokenize(tiny_engine.tokenize(text)) == text


@given(st.lists(st.text(), max_size=5))
def test_pieces_join_to_the_same_text(tiny_engine: Engine, pieces: list[str]) -> None:
    assert tiny_engine.detokenize(tiny_engine.tokenize(pieces)) == "".join(pieces)


def test_a_mark_is_formed_within_a_piece_and_never_across_two(tiny_engine: Engine) -> None:
    for mark, token in tiny_engine.vocabulary.special.items():
        assert tiny_engine.tokenize(mark) == [token]
        for i in range(1, len(mark)):
            assert token not in tiny_engine.tokenize([mark[:i], mark[i:]])


def test_what_is_special_and_what_ends_a_generation(tiny_engine: Engine) -> None:
    vocabulary = tiny_engine.vocabulary
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</think>"} <= vocabulary.special.keys()
    assert {vocabulary.special["<|im_end|>"], vocabulary.special["<|endoftext|>"]} == set(vocabulary.eog)
    assert vocabulary.name_of(vocabulary.eos) == "<|im_end|>" and vocabulary.name_of(-1) == ""


def test_the_bytes_read_from_the_file_are_those_that_llama_cpp_gives(tiny_engine: Engine) -> None:
    """Reading them from the file's metadata saves a second with 151,936 tokens."""
    vocabulary = tiny_engine.vocabulary
    for token in range(vocabulary.n_tokens):
        assert vocabulary.token_bytes[token] == tiny_engine.model.token_bytes(token), token


def test_a_text_token_outside_the_byte_table_does_not_stop_the_loading(tmp_path: Path) -> None:
    """Regression: a token whose name was plain Chinese instead of GPT-2's byte letters ended in UnicodeEncodeError."""
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path / "odd.gguf", None, odd_tokens=["世界", "naïve 日本"])
    with Engine.load(path) as engine:
        assert engine.vocabulary.token_bytes[-2:] == [
            engine.model.token_bytes(engine.vocabulary.n_tokens - i) for i in (2, 1)
        ]
        assert engine.detokenize(engine.tokenize("hello")) == "hello"


@pytest.mark.parametrize("text", ["\udc80", "a\udc80b"])
def test_a_lone_surrogate_is_replaced(tiny_engine: Engine, text: str) -> None:
    """File names may hold them; no UTF-8 can."""
    assert tiny_engine.detokenize(tiny_engine.tokenize(text)) == text.replace("\udc80", "?")
