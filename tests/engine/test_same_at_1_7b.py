"""The laws of `test_engine_laws.py` at the size people use: a synthetic Qwen3-1.7B in Q8_0 (1.8 GB, written anew).

Slow: `scripts/test -m slow tests/engine/test_same_at_1_7b.py`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from laploop.engine import Engine, EngineConfig, Grammar, SamplingParams
from laploop.models.files.synthetic import write_synthetic

pytestmark = pytest.mark.slow
BITS = Grammar('start: "(" BIT "," BIT "," BIT "," BIT ")"\nBIT: /[01]/\n')


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "qwen3-1.7b-q8_0.gguf"
    write_synthetic(path, "qwen3-1.7b:q8_0")
    return path


def texts(path: Path, **changes: Any) -> tuple[list[list[int]], int]:
    """Greedy and seeded, free and constrained texts after prompts that repeat themselves; and how many drafted tokens
    came true. A bias makes the random model repeat its prompt now and then."""
    rng = random.Random(1)
    words = [rng.randrange(300, 150_000) for _ in range(12)]
    out, n_accepted = [], 0
    with Engine.load(path, EngineConfig(**{"n_ctx": 512, **EXACT, **changes})) as engine:
        bias = {**dict.fromkeys(engine.vocabulary.eog, -1e9), **dict.fromkeys(words, 6.0)}
        for temperature in (0.0, 0.8):
            sampling = SamplingParams(temperature=temperature, top_k=20, seed=5, logit_bias=bias)
            for grammar in (None, BITS):
                sequence = engine.prepare([*words * 3, *words[:3]], sampling, grammar, 24)
                out.append([t for step in engine.read(sequence) for t in step.tokens])
                n_accepted += sequence.timings.n_accepted
    return out, n_accepted


def test_drafts_and_jump_forward_change_no_token(path: Path) -> None:
    """But for chance with a seed: a forced token takes no draw, where without jump-forward it took one."""
    plain, _ = texts(path, draft_max=0)
    drafted, n_accepted = texts(path, draft_max=15)
    single, _ = texts(path, draft_max=0, jump_forward=False)
    assert drafted == plain and n_accepted
    assert single[:3] == plain[:3]


def test_the_size_of_batches_changes_no_token(path: Path) -> None:
    assert texts(path, draft_max=0, n_batch=8) == texts(path, draft_max=0, n_ubatch=32)
