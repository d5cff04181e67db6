"""The repeat guard: sees that a model asks for what it already has. It only judges; the loop acts.

The ladder (mission, row 16): the third identical call in a row is not executed and its result says to stop;
if the model repeats all the same, the tool is taken away for one reply; after that a final answer is forced.
A round that asks only for what was already answered, twice running, counts as the same fault: it catches A,
B, A, B, … too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

N_SAME_IN_A_ROW = 3
N_STALE_ROUNDS = 2


def call_key(name: str, arguments: str) -> str:
    """What makes two calls the same: the name, and the arguments as values, however spelled."""
    try:
        canonical = json.dumps(json.loads(arguments or "{}"), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        canonical = arguments.strip()
    return f"{name} {canonical}"


@dataclass
class RepeatGuard:
    """Judges the rounds of one run, in order. `strikes` counts refused rounds since the last one without a
    refusal.
    """

    strikes: int = 0
    _seen: set[str] = field(default_factory=set)
    _last: str | None = None
    _n_in_a_row: int = 0
    _n_stale_rounds: int = 0

    def judge(self, keys: Sequence[str]) -> list[bool]:
        """One flag per call of a round, in order: True means do not execute it, it is a repetition."""
        is_stale = bool(keys) and all(k in self._seen for k in keys)
        self._n_stale_rounds = self._n_stale_rounds + 1 if is_stale else 0
        flags = [self._is_repeat(k) for k in keys]
        self._seen.update(keys)
        self.strikes = self.strikes + 1 if any(flags) else 0
        return flags

    def _is_repeat(self, key: str) -> bool:
        self._n_in_a_row = self._n_in_a_row + 1 if key == self._last else 1
        self._last = key
        return self._n_in_a_row >= N_SAME_IN_A_ROW or self._n_stale_rounds >= N_STALE_ROUNDS
