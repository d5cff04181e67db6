"""The KV cache's sequence ids: what each of them holds, and who sits in which.

Knows tokens and cells; not how a token is chosen, nor when a batch is decoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from .native import NativeContext
from .prefixes import Prefixes
from .sequence import Sequence


@dataclass(eq=False)
class Slot:
    """One sequence id of the context and the tokens whose keys and values it holds."""

    seq_id: int
    cached: list[int] = field(default_factory=list)
    last_used: float = 0.0
    busy: bool = False

    def shared_with(self, tokens: Tokens[int]) -> int:
        """Length of the common prefix of the cache and `tokens`."""
        return shared_prefix(self.cached, tokens)


def shared_prefix(a: Tokens[object], b: Tokens[object]) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    if list(a[:n]) == list(b[:n]):
        return n
    return next(i for i in range(n) if a[i] != b[i])


class Slots:
    """All slots of a context.

    Args:
        context: whose cache it is.
        n: how many.
        prefixes: saved states that a prompt may begin with.
    """

    def __init__(self, context: NativeContext, n: int, prefixes: Prefixes | None = None) -> None:
        self._context = context
        self._prefixes = prefixes
        self._all = [Slot(i) for i in range(n)]
        #: Whether the tail of a sequence can be dropped. Recurrent models have no cells for single tokens.
        self.can_forget_tails = True

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._all)

    @property
    def any_idle(self) -> bool:
        """Whether a generation could be placed."""
        return any(not slot.busy for slot in self._all)

    def place(self, sequence: Sequence, n_reserved: int) -> None:
        """Take the idle slot that shares the longest prefix; of equals the one used longest ago. Where a saved state
        shares more, it is loaded into the one used longest ago.

        Args:
            sequence: the generation; `any_idle` must hold.
            n_reserved: cells that the other active generations may come to need.
        """
        idle = [slot for slot in self._all if not slot.busy]
        slot = max(idle, key=lambda s: (s.shared_with(sequence.tokens), -s.last_used))
        # The last token is decoded again: its logits are not kept.
        keep = min(slot.shared_with(sequence.tokens), len(sequence.tokens) - 1)
        saved = None
        if self._prefixes and sequence.n_shareable > keep:
            saved = self._prefixes.longest(sequence.tokens, keep)
        if saved:
            slot, keep = min(idle, key=lambda s: s.last_used), 0
        self.forget(slot, keep)
        free = self._context.n_ctx - n_reserved - max(sequence.n_reserved, len(saved.tokens) if saved else 0)
        for other in sorted((s for s in idle if s is not slot), key=lambda s: s.last_used):
            held = sum(len(s.cached) for s in idle if s is not slot)
            if held > free:
                self.forget(other, 0)
        if self._prefixes and saved and self._prefixes.load(saved, slot.seq_id):
            slot.cached[:] = saved.tokens
            self.forget(slot, saved.n_shared)
        slot.busy, sequence.slot = True, slot
        if not sequence.n_generated:
            sequence.timings.n_cached = len(slot.cached)

    def adopt(self, tokens: list[int], state: bytearray, n_reserved: int) -> bool:
        """Load a state that was saved into the idle slot used longest ago, unless a slot holds all of it already; False
        if there is no room for it, or llama.cpp refused it.

        Args:
            tokens: what it is of.
            state: llama.cpp's bytes.
            n_reserved: cells that the active generations may come to need.
        """
        if any(slot.shared_with(tokens) == len(tokens) for slot in self._all):
            return True
        idle = sorted((s for s in self._all if not s.busy), key=lambda s: s.last_used)
        free = self._context.n_ctx - n_reserved - len(tokens)
        if not idle or free < 0:
            return False
        slot = idle[0]
        for other in idle:
            if other is slot or sum(len(s.cached) for s in idle) > free:
                self.forget(other, 0)
        if not self._context.restore(slot.seq_id, state, len(tokens)):
            return False
        slot.cached[:], slot.last_used = tokens, time.monotonic()
        return True

    def forget(self, slot: Slot, start: int) -> None:
        """Drop a slot's cells from position `start` on; all of them where the model cannot drop a part."""
        # Asked for even where nothing should be left to forget: an aborted batch may have left cells behind.
        if not self._context.forget(slot.seq_id, start):
            self._context.forget(slot.seq_id, 0)
            self.can_forget_tails = self.can_forget_tails and start in (0, len(slot.cached))
            start = 0
        del slot.cached[start:]

    def release(self, active: Iterable[Sequence]) -> None:
        """Free the slots of all but the active generations; what they hold stays for a prompt that begins so."""
        owners = {id(s.slot) for s in active}
        for slot in self._all:
            if slot.busy and id(slot) not in owners:
                slot.busy, slot.last_used = False, time.monotonic()
