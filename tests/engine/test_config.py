"""Settings check themselves; an error names the setting, what it was and what is allowed."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import Engine, EngineConfig, EngineError, Grammar, SamplingParams
from laploop.engine.config import KV_TYPES
from tiny_model import make_tiny_model


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("n_ctx", -1, "n_ctx"),
        ("n_batch", 0, "n_batch"),
        ("n_ubatch", 0, "n_ubatch"),
        ("n_seq_max", 0, "n_seq_max"),
        ("n_threads", 0, "n_threads"),
        ("n_threads_batch", -2, "n_threads_batch"),
        ("flash_attn", "maybe", "auto, on, off"),
        ("type_k", "q8", "q8_0"),
        ("type_v", "f8", "bf16"),
    ],
)
def test_a_value_out_of_range_is_named(setting: str, value: Any, words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        EngineConfig(**{setting: value})
    assert setting in str(caught.value) and str(value) in str(caught.value)


@pytest.mark.parametrize("type_v", [t for t in KV_TYPES if t not in ("f32", "f16", "bf16")])
def test_a_quantised_v_cache_needs_flash_attention(type_v: str) -> None:
    with pytest.raises(EngineError, match="flash attention"):
        EngineConfig(type_v=type_v, flash_attn="off")
    assert EngineConfig(type_v=type_v).type_v == type_v


def test_more_sequences_than_a_batch_has_room_for_are_refused() -> None:
    """Regression: the last of them would have waited for ever."""
    with pytest.raises(EngineError, match="n_seq_max"):
        EngineConfig(n_seq_max=9, n_batch=8)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repeat_penalty", 0),
    ],
)
def test_sampling_out_of_range_is_named(setting: str, value: float) -> None:
    with pytest.raises(EngineError, match=setting):
        SamplingParams(**{setting: value})


def test_a_temperature_too_small_to_divide_by_is_greedy() -> None:
    """Regression: at 1e-40 the logits became infinite, and what came was chance instead of the likeliest."""
    assert SamplingParams(temperature=1e-40).temperature == 0.0
    assert SamplingParams(temperature=0.01).temperature == 0.01


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**64 - 1, 0])
def test_every_seed_is_one_that_repeats(seed: int) -> None:
    """Regression: -1 and 2**32 - 1 came to llama.cpp as "draw one": two runs with the same seed differed."""
    taken = SamplingParams(seed=seed).seed
    assert taken is not None and 0 <= taken < 2**32 - 1


JUNK = [
    *[-(10**400), -(2**31), -2, -1, 0, 1, 2, 255, 256, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**63, 10**400, 10**5000],
    *[math.nan, math.inf, -math.inf, 1e-45, 0.5, 1.5, 1e300, True, False, "x", b"x", [], {}, object(), None],
]


@pytest.mark.parametrize("kind", [EngineConfig, SamplingParams])
def test_every_value_of_every_setting_is_taken_or_named(kind: Any) -> None:
    """Regression: 2**32 came to llama.cpp as 0 and ended the process; 1.5, "x" and 10**400 were TypeError and
    OverflowError, some of them in the middle of a generation; nan and True were taken."""
    for field in dataclasses.fields(kind):
        for value in JUNK:
            try:
                taken = getattr(kind(**{field.name: value}), field.name)
            except EngineError as error:
                assert field.name in str(error) and len(str(error)) < 300
            else:
                assert field.name == "seed" or taken == value or taken == 0.0


def test_a_batch_of_any_size_serves_its_conversations(tiny_path: Path) -> None:
    """Regression: llama.cpp ends the process where it may keep fewer logits than it has conversations: a batch of
    one token (-b 1), or as many conversations as the batch has tokens."""
    for n_batch, n_seq_max in [(1, 1), (2, 2), (64, 64), (255, 255), (2**31 - 1, 3)]:
        for n_ctx in (1, 300):
            config = EngineConfig(
                n_ctx=n_ctx, n_batch=n_batch, n_ubatch=2**31 - 1, n_seq_max=n_seq_max, n_threads=1, prefix_cache_bytes=0
            )
            with Engine.load(tiny_path, config) as engine:
                replies = [engine.generate([1, 2, 3], SamplingParams(temperature=0), max_tokens=3) for _ in range(3)]
                assert [sum(len(step.tokens) for step in reply) for reply in replies] == [3, 3, 3]


def test_a_context_length_beyond_an_int32_is_one(tmp_path: Path) -> None:
    """Regression: llama.cpp gives the header's number as an int32, so that 2**32 - 1 was taken for a context of -1."""
    path = make_tiny_model(tmp_path / "long.gguf", None, n_ctx=2**32 - 1)
    with Engine.load(path, EngineConfig(n_ctx=256, n_threads=1, prefix_cache_bytes=0)) as engine:
        assert engine.n_ctx == 256
    with pytest.raises(EngineError, match="4294967295 tokens of context"):
        Engine.load(path, EngineConfig(n_ctx=0), memory_bytes=2**40)


def test_no_sampling_that_is_taken_ends_the_process(tiny_engine: Engine) -> None:
    """Regression: single precision turned such numbers into infinity, and a distribution of nothing but nan is an
    assertion of llama.cpp's; more logprobs than tokens were an IndexError of numpy's."""
    rng, prompt = random.Random(1), tiny_engine.tokenize("hello world")
    for _ in range(60):
        params = SamplingParams(
            temperature=rng.choice([0, 1e-6, 1, 1_000_000]),
            repeat_penalty=rng.choice([1e-6, 1, 1_000_000]),
            presence_penalty=rng.choice([-1_000_000, 0, 1_000_000]),
            frequency_penalty=rng.choice([-1_000_000, 0, 1_000_000]),
            penalty_last_n=rng.choice([0, 1, 1_000_000]),
            top_k=rng.choice([0, 1, 2**31 - 1]),
            top_p=rng.choice([1e-300, 1]),
            min_p=rng.choice([0, 1]),
            logit_bias={rng.choice([0, 5, 2**31 - 1]): rng.choice([-1e30, 1e30])},
            n_logprobs=rng.choice([None, 0, 2**31 - 1]),
        )
        grammar = rng.choice([None, Grammar.json_schema({"enum": ["abc", 1]})])
        assert sum(len(step.tokens) for step in tiny_engine.generate(prompt, params, grammar, max_tokens=4)) <= 4
