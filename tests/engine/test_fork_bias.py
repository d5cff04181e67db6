"""A bias that counts at the forks of a grammar, and nowhere inside a text."""

from __future__ import annotations

import pytest
from laploop.engine import Engine, Grammar, SamplingParams


def written(engine: Engine, rules: str, bias: dict[int, float], n: int = 12) -> str:
    prompt = engine.vocabulary.tokenize("Say it.")
    sampling = SamplingParams(temperature=0.0, fork_bias=bias)
    steps = engine.generate(prompt, sampling, Grammar(rules, ()), max_tokens=n)
    return b"".join(step.text for step in steps).decode()


@pytest.mark.parametrize("wanted", ["1", "2"])
def test_it_decides_between_forms(tiny_engine: Engine, wanted: str) -> None:
    (token,) = tiny_engine.vocabulary.tokenize(wanted, add_bos=False)
    assert written(tiny_engine, 'start: "[" ("1" | "2") "]"\n', {token: 100.0}) == f"[{wanted}]"


def test_inside_a_text_it_changes_nothing(tiny_engine: Engine) -> None:
    (token,) = tiny_engine.vocabulary.tokenize("2", add_bos=False)
    rules = "start: TEXT\nTEXT: /[a-z0-9 ]+/\n"
    assert written(tiny_engine, rules, {token: 100.0}) == written(tiny_engine, rules, {})


def test_it_brings_nothing_that_the_grammar_forbids(tiny_engine: Engine) -> None:
    (token,) = tiny_engine.vocabulary.tokenize("3", add_bos=False)
    assert written(tiny_engine, 'start: "[" ("1" | "2") "]"\n', {token: 100.0}) in ("[1]", "[2]")
