"""Settings check themselves; an error names the setting, what it was and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.engine import EngineConfig, EngineError, SamplingParams
from laploop.engine.config import KV_TYPES


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
