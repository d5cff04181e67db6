"""The bits of a mask applied to logits: the quick way gives what the plain way gives, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from laploop.engine.bitmask import apply_bitmask, only_token


def _quieted(bits: int) -> int:
    """No computation gives a signalling NaN; a scalar fmin takes one for more than a NaN."""
    return bits | 0x400000 if bits & 0x7FFFFFFF > 0x7F800000 else bits


# Any bits that a computation may give: infinities, subnormal numbers, NaNs.
ANY_FLOATS = st.integers(0, 2**32 - 1).map(_quieted)


def words_of(allowed: np.ndarray) -> np.ndarray:
    """(n,) bool → (⌈n / 32⌉,) int32."""
    padded = np.zeros(-(-len(allowed) // 32) * 32, dtype=np.uint8)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.int32)


@given(data=st.data(), n_vocab=st.integers(1, 500))
def test_what_is_allowed_stays_and_the_rest_is_minus_infinity(data: st.DataObject, n_vocab: int) -> None:
    bits = data.draw(arrays(np.uint32, n_vocab, elements=ANY_FLOATS))
    allowed = data.draw(arrays(np.bool_, n_vocab))
    logits = bits.view(np.float32).copy()
    apply_bitmask(words_of(allowed), logits)
    assert np.array_equal(logits[allowed], bits.view(np.float32)[allowed], equal_nan=True)
    assert np.all(np.isneginf(logits[~allowed]))


@pytest.mark.parametrize("n_vocab", [49_152, 151_936, 151_935, 128_257, 4096 * 8, 4096 * 8 + 1])
@pytest.mark.parametrize("share", [0.0, 1e-4, 0.5, 0.99, 1.0])
def test_whole_vocabularies(n_vocab: int, share: float) -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(n_vocab).astype(np.float32)
    before[::5], before[::7], before[::11] = np.nan, np.inf, -np.inf
    allowed = rng.random(n_vocab) < share
    after = before.copy()
    apply_bitmask(words_of(allowed), after)
    expected = before.copy()
    expected[~allowed] = -np.inf
    assert np.array_equal(after, expected, equal_nan=True)


@given(tokens=st.sets(st.integers(0, 199), max_size=3))
def test_the_only_token(tokens: set[int]) -> None:
    allowed = np.zeros(200, dtype=np.bool_)
    allowed[list(tokens)] = True
    assert only_token(words_of(allowed)) == (tokens.pop() if len(tokens) == 1 else None)
