"""Whose tokens go into the next batch, and how many: a long prompt must not hold up those who only need a token.

Counts and times; knows no generations, no cache.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Pending tokens that need no division: one that was chosen, with what a grammar put in behind it.
FEW = 32
#: How long those who decode may be held up by a batch that is for prompts as well.
_HOLD_UP_S = 0.5


def share_out(pending: Sequence[int], n_most: int, pace: Pace) -> list[int]:
    """How many of its pending tokens each generation has decoded in the next batch.

    Those with a few take them all. What is left over is for prompts: the shortest comes first, but half is for the one
    that has waited longest, so that neither a short question waits for a long text nor a long text for ever.

    Args:
        pending: tokens that each one waits for, in order of arrival.
        n_most: tokens that a batch holds.
        pace: how many of them may be prompts'.
    """
    taken = [n if n <= FEW else 0 for n in pending]
    room = n_most - sum(taken)
    if room < 0:  # more than a batch holds: in order of arrival
        room = n_most
        for i, n in enumerate(taken):
            taken[i] = min(n, room)
            room -= taken[i]
        return taken
    prompts = [i for i, n in enumerate(pending) if n > FEW]
    room = min(room, pace.most(alone=not any(taken)))
    half = -(-room // 2)
    for i, most in [*((i, half) for i in prompts[:1]), *((i, room) for i in sorted(prompts, key=pending.__getitem__))]:
        more = min(most, room, pending[i] - taken[i])
        taken[i] += more
        room -= more
    return taken


class Pace:
    """How many tokens of prompts make a batch: as many as this machine computes in half a second where others decode,
    in two seconds where none does. A batch cannot be left before its end.

    Larger ones are no quicker on a CPU (docs/log.md); smaller ones than `FEW` cost nearly as much.
    """

    def __init__(self) -> None:
        self._tokens_per_s = 0.0

    def note(self, n_tokens: int, elapsed_s: float) -> None:
        """Note what a batch took."""
        if n_tokens >= FEW:
            self._tokens_per_s = n_tokens / max(elapsed_s, 1e-9)

    def most(self, *, alone: bool) -> int:
        """Tokens of prompts in the next batch."""
        quickest, hold_up_s = (4 * FEW, 4 * _HOLD_UP_S) if alone else (FEW, _HOLD_UP_S)
        return max(quickest, int(self._tokens_per_s * hold_up_s))
