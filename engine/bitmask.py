"""Which tokens may come, as one bit each, applied to the logits of all.

Knows bits and numbers; not where they come from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# For each byte of a mask eight numbers: fmin(x, NaN) is x, whatever x is, and fmin(x, -inf) is -inf.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BOUNDS = np.where(_BITS == 1, np.float32(np.nan), np.float32(-np.inf))  # (256, 8) float32
# Bytes of a mask at a time: their bounds (128 KiB) stay in the processor's cache. Unpacking the bits of 151,936 tokens
# and assigning by them took 60 to 600 µs, most where half of the tokens are allowed; this takes 35 µs for any mask.
_N_AT_ONCE = 4096


def apply_bitmask(words: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
    """Set the logits of the tokens whose bit is 0 to -inf, in place.

    Args:
        words: (⌈n_vocab / 32⌉,) int32, the first token's bit the lowest of the first word.
        logits: (n_vocab,) float32; what is allowed stays as it is, NaN included.
    """
    mask = words.view(np.uint8)
    bounds = np.empty((min(_N_AT_ONCE, len(mask)), 8), dtype=np.float32)
    flat = bounds.reshape(-1)
    for start in range(0, len(mask), _N_AT_ONCE):
        some = mask[start : start + _N_AT_ONCE]
        np.take(_BOUNDS, some, axis=0, out=bounds[: len(some)], mode="clip")  # "raise" would copy `out`
        part = logits[start * 8 : (start + _N_AT_ONCE) * 8]
        np.fmin(part, flat[: len(part)], out=part)


def only_token(words: NDArray[np.int32]) -> int | None:
    """The one token that is allowed; None if there are none or several."""
    if np.count_nonzero(words) != 1:
        return None
    at = int(words.argmax()) if words.max() > 0 else int(words.argmin())  # the highest bit makes a negative number
    bits = int(words[at]) & 0xFFFFFFFF
    return 32 * at + bits.bit_length() - 1 if bits & (bits - 1) == 0 else None
