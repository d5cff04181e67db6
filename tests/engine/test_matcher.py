"""A grammar followed over a real vocabulary: masks, forced tokens, and the way out."""

from __future__ import annotations

import gc
import json
import mmap
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laploop.engine import Engine, Grammar, GrammarError
from laploop.engine.matcher import Matcher

TEXT = "start: TEXT?\nTEXT: /(.|\\n)+/\n"


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


SCHEMAS = {
    "nested": obj(a=obj(b={"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2})),
    "email": obj(mail=string(format="email"), after=string()),
    "uri": obj(link=string(format="uri")),
    "pattern": obj(code=string(pattern="^[A-Z]+z$")),
    "counted": obj(text=string(minLength=30, maxLength=40)),
    "multiple": obj(n={"type": "integer", "multipleOf": 7, "minimum": 1}),
    "enum": obj(e={"enum": ["ä", "日本語", 1.5, None]}),
    "tree": {
        "$defs": {"n": obj(v={"type": "integer"}, c={"type": "array", "items": {"$ref": "#/$defs/n"}})},
        **obj(root={"$ref": "#/$defs/n"}),
    },
    "ending": obj(file=string(pattern=r"\.(png|jpe?g)$"), after={"type": "integer", "minimum": 1900}),
    "parts": obj(mail=string(pattern=r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$"), version=string(pattern=r"^v\d+\.\d+\.\d+$")),
    "keys": obj(map={"type": "object", "patternProperties": {"_id$": {"type": "null"}}, "additionalProperties": False}),
    "prime": obj(n={"type": "integer", "multipleOf": 997}, x={"type": "number", "multipleOf": 0.125}),
    "uuid": obj(id=string(format="uuid"), ip=string(format="ipv6")),
}


def matcher(engine: Engine, schema: dict[str, Any]) -> Matcher:
    return Matcher(Grammar.json_schema(schema), engine.vocabulary)


def allowed(matcher: Matcher, n_vocab: int) -> np.ndarray[Any, Any]:
    logits = np.zeros(n_vocab, dtype=np.float32)
    matcher.mask(logits)
    return np.flatnonzero(np.isfinite(logits))


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_from_everywhere_the_way_out_leads_to_a_whole_value(tiny_engine: Engine, name: str, seed: int) -> None:
    """Walk some random allowed tokens, take the way out: the text is complete. Regressions: in e-mail addresses, URIs,
    patterns and multiples the greedy way went in circles; in arrays with minItems it stopped."""
    rng, vocabulary = random.Random(seed), tiny_engine.vocabulary
    grammar = Grammar.json_schema(SCHEMAS[name])
    place, tokens = Matcher(grammar, vocabulary), list[int]()
    for _ in range(rng.randrange(25)):
        choice = rng.choice(allowed(place, vocabulary.n_tokens).tolist())
        if choice in vocabulary.eog:
            break
        place.consume([choice])
        tokens.append(choice)
    way = place.way_out()
    assert way is not None
    place.consume(way)
    assert place.may_end
    assert grammar.accepts(vocabulary.bytes_of([*tokens, *way]).decode("utf-8"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_way_out_is_short(tiny_engine: Engine, name: str) -> None:
    place = matcher(tiny_engine, SCHEMAS[name])
    quick, thorough = place.way_out(), place.way_out(thorough=True)
    assert quick is not None and thorough is not None and len(thorough) <= len(quick) <= 100
    json.loads(tiny_engine.detokenize(thorough))


def test_where_the_end_is_allowed_the_way_out_is_empty(tiny_engine: Engine) -> None:
    assert Matcher(Grammar(TEXT), tiny_engine.vocabulary).way_out() == []


def test_free_text_is_left_by_its_mark(tiny_engine: Engine) -> None:
    """Regression: every byte may stand in a thought, so that the greedy way never closed one."""
    grammar = Grammar('start: mark_0 THOUGHT? mark_1 "x"\nTHOUGHT: /(.|\\n)+/\n', ("<think>", "</think>"))
    place = Matcher(grammar, tiny_engine.vocabulary)
    place.consume(tiny_engine.tokenize('<think>\n{"a": "~'))
    assert tiny_engine.detokenize(place.way_out() or []) == "</think>x"


def test_a_character_begun_is_ended_first(tiny_engine: Engine) -> None:
    place = matcher(tiny_engine, obj(a=string()))
    tokens = [
        *tiny_engine.tokenize('{"a": "'),
        *(tiny_engine.vocabulary.alphabet.of_byte[b] for b in "京".encode()[:2]),
    ]
    place.consume(tokens)
    way = place.way_out()
    assert way is not None
    json.loads(tiny_engine.vocabulary.bytes_of([*tokens, *way]).decode("utf-8"))


@pytest.mark.parametrize("begun", ["京".encode()[:1], "京".encode()[:2], "😀".encode()[:2]])
def test_a_line_is_left_behind_a_character_begun(tiny_engine: Engine, begun: bytes) -> None:
    """Regression: the places inside a character look alike, so that the search stopped at the second one, and a line of
    free text was filled up instead of ended."""
    vocabulary = tiny_engine.vocabulary
    place = Matcher(Grammar('start: LINE "x"\nLINE: /[^\\n]+\\n/\n'), vocabulary)
    tokens = [*tiny_engine.tokenize("a"), *(vocabulary.alphabet.of_byte[b] for b in begun)]
    place.consume(tokens)
    way = place.way_out()
    assert way is not None
    assert len(vocabulary.bytes_of([*tokens, *way]).decode("utf-8")) == 4  # a, the character, the line feed, x


def test_no_mark_is_allowed_in_text_nor_in_a_value(tiny_engine: Engine) -> None:
    vocabulary = tiny_engine.vocabulary
    marks = set(vocabulary.special.values()) - vocabulary.eog
    free = Matcher(Grammar(TEXT), vocabulary)
    inside = matcher(tiny_engine, obj(a=string()))
    inside.consume(tiny_engine.tokenize('{"a": "x'))
    for place in (free, inside):
        assert not marks & set(allowed(place, vocabulary.n_tokens).tolist())


def test_the_end_is_allowed_only_where_the_value_is_whole(tiny_engine: Engine) -> None:
    vocabulary, place = tiny_engine.vocabulary, matcher(tiny_engine, obj(a={"type": "integer"}))
    assert not vocabulary.eog & set(allowed(place, vocabulary.n_tokens).tolist()) and not place.may_end
    place.consume(tiny_engine.tokenize('{"a": 1}'))
    assert set(allowed(place, vocabulary.n_tokens).tolist()) == set(vocabulary.eog)
    assert place.may_end and place.must_end


def test_forced_tokens_are_the_only_allowed_text(tiny_engine: Engine) -> None:
    place = matcher(tiny_engine, obj(temperature={"const": 21}))
    forced = place.forced()
    assert tiny_engine.detokenize(forced) == '{"temperature": 21}'
    place.consume(forced)
    assert place.must_end


@pytest.mark.parametrize("text", ["</tool_call>", "a<think>b", "<|im_end|><tool_call>", "<tool_call><tool_call>"])
@pytest.mark.parametrize("jump", [True, False])
def test_text_of_a_mark_can_be_forced_inside_a_string(tiny_engine: Engine, text: str, jump: bool) -> None:
    """Regression: llama.cpp's tokenizer made the mark of it, which llguidance forced and then refused: the matcher gave
    up in the middle of the call."""
    vocabulary, place, tokens = tiny_engine.vocabulary, matcher(tiny_engine, obj(a={"const": text})), list[int]()
    assert vocabulary.bytes_of(place.way_out() or []).decode() == json.dumps({"a": text})
    while not place.must_end:
        new = (place.forced() if jump else []) or allowed(place, vocabulary.n_tokens).tolist()[:1]
        place.consume(new)
        tokens += new
    assert vocabulary.bytes_of(tokens).decode() == json.dumps({"a": text})
    assert not set(vocabulary.special.values()) & set(tokens)


def test_rollback_takes_tokens_back(tiny_engine: Engine) -> None:
    vocabulary, place = tiny_engine.vocabulary, matcher(tiny_engine, obj(a={"type": "integer"}))
    place.consume(tiny_engine.tokenize('{"a": '))
    before = allowed(place, vocabulary.n_tokens).tolist()
    place.consume(tiny_engine.tokenize("12"))
    place.rollback(len(tiny_engine.tokenize("12")))
    assert allowed(place, vocabulary.n_tokens).tolist() == before


def test_a_token_that_is_not_allowed_is_an_error(tiny_engine: Engine) -> None:
    with pytest.raises(GrammarError, match="gave up"):
        matcher(tiny_engine, obj(a={"type": "integer"})).consume(tiny_engine.tokenize("[1]"))


@pytest.mark.parametrize(
    "endless",
    [
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"type": "object", "minProperties": 10**9},
    ],
    ids=lambda schema: schema["type"],
)
def test_a_way_out_that_is_too_far_is_not_searched_at_every_token(tiny_engine: Engine, endless: dict[str, Any]) -> None:
    """Regression: half a second a token near the end of the budget; a reply took minutes. Counted, not timed: a
    matcher that searches allows what a copy without searches allows, and most answers come at once."""
    place = matcher(tiny_engine, obj(a=endless))
    n_searches = 0
    for _ in range(300):
        n_before = place._n_to_skip
        assert place.way_out() is None
        n_searches += n_before == 0
    assert n_searches < 20


WORDS = string(pattern=r"^(?:\S+\s+){0,999}\S+$", maxLength=20_000)


def test_where_a_matcher_gives_up_a_looser_grammar_takes_over_at_the_same_place(tiny_engine: Engine) -> None:
    """Regression: llguidance's lexer reaches a limit in the middle of this text, and its mask then allows only the end:
    the call looked as if it were cut off, and later ended the request. The length is given up, the pattern is not."""
    vocabulary, place = tiny_engine.vocabulary, matcher(tiny_engine, obj(a=WORDS, b={"type": "integer"}))
    tokens = tiny_engine.tokenize('{"a": "' + "word " * 60 + "end")
    logits = np.zeros(vocabulary.n_tokens, dtype=np.float32)
    with pytest.warns(UserWarning, match="a looser one took over") as caught:
        for token in tokens:
            logits[:] = 0
            place.mask(logits)
            assert np.isfinite(logits[token])
            place.consume([token])
    assert len(caught) == 1
    assert not place.must_end and not vocabulary.eog & set(allowed(place, vocabulary.n_tokens).tolist())
    place.rollback(1)
    place.consume(tokens[-1:])
    way = place.way_out()
    assert way is not None
    place.consume(way)
    assert place.must_end and json.loads(vocabulary.bytes_of([*tokens, *way]))["b"]


def test_a_token_that_was_never_allowed_loosens_nothing(tiny_engine: Engine) -> None:
    place = matcher(tiny_engine, obj(a=WORDS))
    with pytest.raises(GrammarError, match="gave up"):
        place.consume(tiny_engine.tokenize('{"a": 1'))


@pytest.mark.parametrize("n_keys", [500, 2000])
def test_many_optional_keys_are_no_limit(tiny_engine: Engine, n_keys: int) -> None:
    """Regression: from 500 on every reply ended in "the matcher gave up": a row of the parser was too long."""
    schema = {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(n_keys)}}
    place = matcher(tiny_engine, schema)
    place.consume(tiny_engine.tokenize(f'{{"k{n_keys - 1}": '))
    assert len(allowed(place, tiny_engine.vocabulary.n_tokens)) > 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the process's size from /proc")
def test_a_thousand_matchers_leave_no_memory_behind(tiny_engine: Engine) -> None:
    def use(n: int) -> int:
        logits = np.zeros(tiny_engine.vocabulary.n_tokens, dtype=np.float32)
        for i in range(n):
            place = matcher(tiny_engine, SCHEMAS["uuid" if i % 2 else "tree"])
            place.mask(logits)
            place.consume(place.way_out() or [])
        gc.collect()
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE

    before = use(100)
    assert use(1000) - before < 20 * 2**20
