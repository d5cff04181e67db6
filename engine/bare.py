"""A test as llama-bench runs it: random tokens through a bare context, timed without tokenization and sampling.

Knows one test and one context; not which tests are run, how often, or how they are told. The method is that of
llama.cpp's tools/llama-bench/llama-bench.cpp (`test_prompt`, `test_gen`, and the loop over repetitions).
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .config import EngineConfig
from .hardware import n_threads
from .native import BareContext, NativeModel


@dataclass(frozen=True, slots=True)
class BareTest:
    """What is timed: `n_prompt` tokens at once, then `n_gen` one by one, behind `n_depth` that are there already."""

    n_prompt: int
    n_gen: int
    n_depth: int = 0

    def __str__(self) -> str:
        """llama-bench's name of the test, such as "pp512 @ d1024"."""
        parts = [f"pp{self.n_prompt}"] * bool(self.n_prompt) + [f"tg{self.n_gen}"] * bool(self.n_gen)
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def n_tokens(self) -> int:
        """Tokens that are timed."""
        return self.n_prompt + self.n_gen

    @property
    def n_ctx(self) -> int:
        """The context that it needs."""
        return self.n_tokens + self.n_depth


class BareRun:
    """A test on a context of its own. `close` it."""

    def __init__(self, model: NativeModel, test: BareTest, config: EngineConfig, *, seed: int = 0) -> None:
        self.test, self.config = test, config
        self._model = model
        self._random = np.random.default_rng(seed)
        self._context = BareContext(model, config, n_ctx=test.n_ctx, threads=config.n_threads or n_threads())

    def close(self) -> None:
        """Free the context."""
        self._context.close()

    def warm_up(self) -> None:
        """What llama-bench does before the first repetition: the whole prompt, and one token."""
        self._prompt(self._tokens(self.test.n_prompt))
        self._generate(self._tokens(min(1, self.test.n_gen)))

    def sample(self, depths: MutableMapping[tuple[int, str, str, str], bytearray]) -> int:
        """Run once from an empty sequence; returns the nanoseconds it took.

        Args:
            depths: states at a depth, which other tests of this model may share: computed once, restored afterwards.
        """
        test = self.test
        self._context.clear()
        if test.n_depth:
            self._fill(depths)
        prompt, generated = self._tokens(test.n_prompt), self._tokens(test.n_gen)
        begin_ns = time.perf_counter_ns()
        self._prompt(prompt)
        self._generate(generated)
        return time.perf_counter_ns() - begin_ns

    def _fill(self, depths: MutableMapping[tuple[int, str, str, str], bytearray]) -> None:
        config = self.config
        key = (self.test.n_depth, config.type_k, config.type_v, config.flash_attn)
        if key in depths and self._context.restore(depths[key]):
            return
        self._context.clear()
        self._prompt(self._tokens(self.test.n_depth))
        depths[key] = self._context.state()

    def _prompt(self, tokens: NDArray[np.int32]) -> None:
        for at in range(0, len(tokens), self.config.n_batch):
            self._context.decode(tokens[at : at + self.config.n_batch])

    def _generate(self, tokens: NDArray[np.int32]) -> None:
        for at in range(len(tokens)):
            self._context.decode(tokens[at : at + 1])

    def _tokens(self, n: int) -> NDArray[np.int32]:
        """(n,) int32. Any will do: what is computed does not depend on them."""
        tokens = self._random.integers(0, self._model.n_vocab, n, np.int32)
        if n and self._model.add_bos:
            tokens[0] = self._model.bos
        return tokens
