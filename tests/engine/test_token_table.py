"""A vocabulary read from the file's header is the one that llama.cpp has."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from laploop.engine import Engine, EngineConfig, Grammar
from laploop.engine.gguf import read_gguf
from laploop.engine.matcher import Matcher
from laploop.engine.token_table import ask_table, read_table
from laploop.engine.vocabulary import Vocabulary

CALL = {
    "type": "object",
    "properties": {"city": {"const": "the city 京"}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path_factory.mktemp("model") / "sp.gguf", None, sentencepiece=True)
    with Engine.load(path, EngineConfig(n_ctx=256, n_threads=1)) as engine:
        yield engine


def test_both_families_are_read_as_llama_cpp_reads_them(tiny_engine: Engine, sentencepiece: Engine) -> None:
    for engine in (tiny_engine, sentencepiece):
        table = read_table(engine.metadata)
        assert table and not table.odd
        asked = ask_table(engine.metadata, engine.vocabulary.n_tokens, table.eos, engine.model.token_bytes)
        assert table.texts == asked.texts and table.special == asked.special


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ("tokenizer.ggml.model", "rwkv"),
        ("tokenizer.ggml.tokens", [b"\xff", b"a"]),
        ("tokenizer.ggml.tokens", []),
        ("tokenizer.ggml.eos_token_id", 10**6),
        ("tokenizer.ggml.eos_token_id", None),
    ],
)
def test_what_the_header_does_not_say_is_asked(tiny_engine: Engine, changed: str, value: object) -> None:
    odd = {**tiny_engine.metadata, changed: value}
    assert read_table(odd) is None
    vocabulary = Vocabulary(tiny_engine.model, odd)
    assert vocabulary.token_bytes == tiny_engine.vocabulary.token_bytes
    assert Matcher(Grammar.json_schema(CALL), vocabulary).way_out()


def test_a_name_with_a_line_feed_stays_one_name(tiny_engine: Engine) -> None:
    """Regression: names were joined by line feeds to be read at once, and a mark may hold one."""
    names = [*tiny_engine.metadata["tokenizer.ggml.tokens"], b"<a\nb>", "<｜世界｜>".encode()]
    kinds = [*tiny_engine.metadata["tokenizer.ggml.token_type"], 4, 3]
    table = read_table({**tiny_engine.metadata, "tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": kinds})
    assert table and table.texts == [*tiny_engine.vocabulary.token_bytes, *names[-2:]]
    assert table.special["<a\nb>"] == len(names) - 2 and table.special["<｜世界｜>"] == len(names) - 1


def test_sentencepiece_puts_no_space_into_forced_text(sentencepiece: Engine) -> None:
    """Its tokenizer puts a space before a text; behind another text there is none."""
    place, tokens = Matcher(Grammar.json_schema(CALL), sentencepiece.vocabulary), list[int]()
    while forced := place.forced():
        place.consume(forced)
        tokens += forced
    assert sentencepiece.vocabulary.bytes_of(tokens).decode() == '{"city": "the city 京"}'
    whole = sentencepiece.vocabulary.tokenize('{"city": "the city 京"}', add_bos=False)
    assert place.must_end and sentencepiece.detokenize(whole[:1]) == " " and tokens == whole[1:]


def test_every_end_is_allowed_where_one_is_and_none_elsewhere(tiny_engine: Engine) -> None:
    vocabulary, place = tiny_engine.vocabulary, Matcher(Grammar('start: "a" | "ab"\n'), tiny_engine.vocabulary)
    ends = sorted(vocabulary.eog)
    assert len(ends) > 1
    for text in ("", "a", "b"):
        if text:
            place.consume(vocabulary.tokenize(text))
        logits = np.zeros(vocabulary.n_tokens, dtype=np.float32)
        place.mask(logits)
        assert np.isfinite(logits[ends]).tolist() == [bool(text)] * len(ends)


def test_ctrl_c_inside_llguidance_is_ctrl_c_and_breaks_nothing(tiny_engine: Engine) -> None:
    """llguidance asks Python for tokens; an exception there would break the matcher instead of ending the program."""
    vocabulary = Vocabulary(tiny_engine.model, read_gguf(tiny_engine.path).metadata)
    place, interrupts = Matcher(Grammar.json_schema(CALL), vocabulary), [KeyboardInterrupt()]

    def tokenize(text: bytes) -> list[int]:
        if interrupts:
            raise interrupts.pop()
        return tiny_engine.model.tokenize(text)

    vocabulary._guide.bind(tokenize)
    with pytest.raises(KeyboardInterrupt):
        place.way_out()
    assert not interrupts
    assert vocabulary.bytes_of(place.way_out() or []).decode() == '{"city": "the city 京"}'


def test_an_engine_that_nobody_closed_is_freed(tiny_path: Path) -> None:
    """llguidance's objects hide what they hold from the garbage collector: a cycle through one would never be freed."""
    engine = Engine.load(tiny_path, EngineConfig(n_ctx=256, n_threads=1))
    Matcher(Grammar.json_schema(CALL), engine.vocabulary).forced()
    gone = weakref.ref(engine.model)
    del engine
    gc.collect()
    assert gone() is None
