"""How far two ways of generating are the same text, down to the logits: for the benchmarks beside it.

On Q8_0 weights with flash attention over a bf16 cache llama.cpp rounds alike whatever the batch (other caches have one
way for single tokens and another for several); there the same text means the same bits. On K-quants batches of four
tokens and more are rounded unlike single ones. Then the
tokens of one way are put through the other one ("teacher forcing"), and both ways' logits are held against each other
at every place: where the most probable token differs, the gap between the two best must be smaller than the difference
that rounding makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from laploop.engine import Engine
from laploop.engine.native import NativeContext
from numpy.typing import NDArray

EXACT: dict[str, Any] = {"flash_attn": "on", "type_k": "bf16", "type_v": "bf16"}


class Choice(NamedTuple):
    """A place where a token was chosen: the token, and the logits, (n_vocab,) float32, masked where a grammar is."""

    token: int
    logits: NDArray[np.float32]


class Recorder:
    """Stands in front of a generation's sampler and writes down what it chose from what.

    Args:
        sampler: the generation's own.
        n_vocab: tokens of the vocabulary.
        script: tokens to choose whatever the logits say; None lets the sampler choose.
    """

    def __init__(self, sampler: Any, n_vocab: int, script: Sequence[int] | None = None) -> None:
        self._sampler, self._n_vocab = sampler, n_vocab
        self._script = None if script is None else iter(script)
        self.choices: list[Choice] = []
        self.tokens: Sequence[int] = ()  # of the prompt and of what followed it so far

    def sample(self, context: NativeContext, i: int) -> int:
        """Choose from the logits of the batch's token `i`."""
        logits = context.logits(i, self._n_vocab).copy()  # before the sampler, which may change them
        if self._script is None:
            token = int(self._sampler.sample(context, i))
        else:
            token = next(self._script)
            self._sampler.accept(token)
        self.choices.append(Choice(token, logits))
        return token

    def accept(self, token: int) -> None:
        """Pass on a token that was not sampled."""
        self._sampler.accept(token)

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()


@contextmanager
def recorded(engine: Engine, scripts: Iterator[Sequence[int]] | None = None) -> Iterator[list[Recorder]]:
    """Within the block each generation that the engine prepares is recorded, in the order of preparing.

    Args:
        engine: the engine.
        scripts: the tokens that each of them must choose; None lets them choose.
    """
    recorders: list[Recorder] = []
    prepare: Callable[..., Any] = engine.prepare

    def tapped(*args: Any, **kwargs: Any) -> Any:
        sequence = prepare(*args, **kwargs)
        script = None if scripts is None else next(scripts)
        recorder = sequence.sampler = Recorder(sequence.sampler, engine.vocabulary.n_tokens, script)
        recorder.tokens = sequence.tokens
        recorders.append(recorder)
        return sequence

    engine.prepare = tapped  # type: ignore[method-assign]
    try:
        yield recorders
    finally:
        del engine.prepare


class Comparison(NamedTuple):
    """What came of comparing two ways place by place.

    Args:
        n_places: places compared.
        difference: greatest difference of any logit.
        gaps: for each place whose most probable token differs, how far apart the two best were.
    """

    n_places: int
    difference: float
    gaps: tuple[float, ...]

    @property
    def explained(self) -> bool:
        """Whether each gap is smaller than what rounding changes."""
        return all(gap < self.difference for gap in self.gaps)

    def to_json(self) -> dict[str, Any]:
        """For a benchmark's JSON line."""
        return {
            "places": self.n_places,
            "max_logit_difference": self.difference,
            "flips": len(self.gaps),
            "max_gap_of_flips": max(self.gaps, default=0.0),
            "explained": self.explained,
        }


def compare(one: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> Comparison:
    """Compare two ways' logits, the same places in the same order."""
    difference, gaps = 0.0, []
    for a, b in zip(one, other, strict=True):
        seen = np.isfinite(a) & np.isfinite(b)
        difference = max(difference, float(np.abs(a[seen] - b[seen]).max()))
        if a.argmax() != b.argmax():
            second, first = np.sort(a[seen])[-2:]
            gaps.append(float(first - second))
    return Comparison(len(one), difference, tuple(gaps))


def together(comparisons: Sequence[Comparison]) -> Comparison:
    """Several comparisons as one."""
    return Comparison(
        sum(c.n_places for c in comparisons),
        max((c.difference for c in comparisons), default=0.0),
        tuple(gap for c in comparisons for gap in c.gaps),
    )
