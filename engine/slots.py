"""The KV cache's sequence ids: what each of them holds, and who sits in which.

Knows tokens and cells; not how a token is chosen, nor when a batch is decoded.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from .native import NativeContext
from .prefixes import Prefixes
from .sequence import Sequence

# Tokens of a sequence that are moved at once: as many are in memory twice.
_MOST_MOVED = 256


@dataclass(eq=False)
class Slot:
    """One sequence id of the context and the tokens whose keys and values it holds.

    Args:
        seq_id: the id.
        cached: the tokens.
        cells: a number for each of them; the same one in two slots is one cell that both hold.
        last_used: when it became idle.
        busy: whether a generation sits in it.
    """

    seq_id: int
    cached: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    last_used: float = 0.0
    busy: bool = False

    def shared_with(self, tokens: Tokens[int]) -> int:
        """Length of the common prefix of the cache and `tokens`."""
        return shared_prefix(self.cached, tokens)


def shared_prefix(a: Tokens[object], b: Tokens[object]) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(a), len(b))  # it is at least low, at most high
    if list(a[:high]) == list(b[:high]):
        return high
    while low + 1 < high:  # slices are compared in C
        middle = (low + high) // 2
        if list(a[low:middle]) == list(b[low:middle]):
            low = middle
        else:
            high = middle
    return low


class Slots:
    """All slots of a context.

    Args:
        context: whose cache it is.
        n: how many.
        n_busy: how many of them may be busy at once; the others remember conversations that rest.
        prefixes: saved states that a prompt may begin with.
    """

    def __init__(self, context: NativeContext, n: int, n_busy: int, prefixes: Prefixes | None = None) -> None:
        self._context = context
        self._n_busy = min(n, n_busy)
        self._prefixes = prefixes
        self._all = [Slot(i) for i in range(n)]
        self._aside: set[int] = set()  # cells
        self._numbers = itertools.count()
        #: Whether the tail of a sequence can be dropped. Recurrent models have no cells for single tokens.
        self.can_forget_tails = True

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._all)

    @property
    def has_place(self) -> bool:
        """Whether one more generation may be placed."""
        return sum(slot.busy for slot in self._all) < self._n_busy

    @property
    def can_share(self) -> bool:
        """Whether several slots can hold the same cells."""
        return self._context.can_share

    def place(self, sequence: Sequence) -> None:
        """Put a generation into an idle slot (`has_place` must hold) with as much of its tokens as there is anywhere.

        That is the slot that it continues; else the one used longest ago, which takes over what another slot or a saved
        state begins with.
        """
        tokens = sequence.tokens
        idle = sorted((s for s in self._all if not s.busy), key=lambda s: s.last_used)
        slot = max(idle, key=lambda s: s.shared_with(tokens))
        # One that holds mostly other things is another conversation's, which may go on.
        if self.can_share and slot.shared_with(tokens) < len(slot.cached) / 2:
            slot = min(idle, key=lambda s: len(s.cached) > 0)  # an empty one if there is one
        at_hand = max(s.shared_with(tokens) for s in (self._all if self.can_share else [slot]))
        saved = None
        if self._prefixes and sequence.n_shareable > at_hand:
            saved = self._prefixes.longest(tokens, at_hand)
        if saved:
            slot = idle[0]
        # The last token is decoded again: its logits are not kept.
        self._put_aside(slot, 0 if saved else min(slot.shared_with(tokens), len(tokens) - 1))
        if self._prefixes and saved:
            if self.n_free < len(saved.tokens):
                self.make_room(len(saved.tokens))
            if self._prefixes.load(saved, slot.seq_id, self.n_free):
                self.note(slot, saved.tokens)
                self.forget(slot, saved.n_shared)
        slot.busy, sequence.slot = True, slot
        sequence.count_cached(len(slot.cached))
        if self.can_share:
            self.take_over(sequence)

    def take_over(self, sequence: Sequence) -> None:
        """Let a generation's slot begin as the one that shares most with its tokens, if that is more than it holds."""
        slot = sequence.slot
        assert slot
        source = max(self._all, key=lambda s: s.shared_with(sequence.tokens))
        n = min(source.shared_with(sequence.tokens), len(sequence.tokens) - 1)
        if source is not slot and n > len(slot.cached):
            sequence.n_had = max(sequence.n_had, len(slot.cached))
            self._put_aside(slot, 0)
            self._context.share(source.seq_id, slot.seq_id, n)
            slot.cached[:], slot.cells[:] = source.cached[:n], source.cells[:n]
            sequence.count_cached(n)

    def note(self, slot: Slot, tokens: Iterable[int]) -> None:
        """Note tokens that were put behind what a slot holds."""
        slot.cached += tokens
        slot.cells += itertools.islice(self._numbers, len(slot.cached) - len(slot.cells))

    @property
    def n_free(self) -> int:
        """Free cells."""
        return self._context.n_ctx - len(self._aside.union(*(slot.cells for slot in self._all)))

    def make_room(self, n_tokens: int) -> bool:
        """Free cells, if possible so many; False if there is nothing to free.

        What was put aside goes first, then the idle slots, beginning with the one used longest ago, until a quarter of
        the context is free: what remains has to be moved.
        """
        n_wanted, freed = max(n_tokens, self._context.n_ctx // 4), bool(self._aside)
        for slot in sorted((s for s in self._all if s.cached and not s.busy), key=lambda s: s.last_used):
            n_held = len(set().union(*(s.cells for s in self._all)))
            if freed and self._context.n_ctx - n_held >= n_wanted:
                break
            self._put_aside(slot, 0)
            freed = True
        self._move_together()
        return freed

    def _put_aside(self, slot: Slot, start: int) -> None:
        """Drop a slot's cells, but leave them unused until there is no room, where others hold cells behind them.

        Attention sums over a sequence in the order in which its cells lie. llama.cpp fills the lowest hole first: there
        others would go on in front of their own beginnings, and their logits part in the last bits from those they have
        alone.
        """
        gone = slot.cells[start:]
        if gone and self.can_share and any(other.cached for other in self._all if other is not slot):
            self._context.put_aside(slot.seq_id, start)
            self._aside.update(gone)
        self.forget(slot, start)

    def _move_together(self) -> None:
        """Free what was put aside, and move all other cells down, so that what is free lies behind them all.

        Each piece of a sequence is moved after those before it, into the lowest free cells. So they stay in order: no
        cell in front of a piece's new place is free any more, and what a later piece leaves, it fills itself.
        """
        if not self._aside:
            return
        self._context.free_aside()
        self._aside.clear()
        for start, end, slots in self._pieces():
            if not self._context.move([slot.seq_id for slot in slots], start, end):
                self._context.clear()
                for slot in self._all:  # all is computed again, of its tokens
                    slot.cached.clear()
                    slot.cells.clear()
                return

    def _pieces(self) -> list[tuple[int, int, list[Slot]]]:
        """All cells as (first position, end, the slots that hold them together), by first position."""
        holders: defaultdict[int, list[Slot]] = defaultdict(list)
        for slot in self._all:
            for cell in slot.cells:
                holders[cell].append(slot)
        pieces = []
        for slot in self._all:
            start, n = 0, len(slot.cells)
            while start < n:
                slots, end = holders[slot.cells[start]], start + 1
                while end < min(n, start + _MOST_MOVED) and holders[slot.cells[end]] == slots:
                    end += 1
                if slots[0] is slot:
                    pieces.append((start, end, slots))
                start = end
        return sorted(pieces, key=lambda piece: piece[0])

    def adopt(self, tokens: list[int], state: bytearray) -> bool:
        """Load a state that was saved into the idle slot used longest ago, unless a slot holds all of it already; False
        if there is no room for it, or llama.cpp refused it.

        Args:
            tokens: what it is of.
            state: llama.cpp's bytes.
        """
        if any(slot.shared_with(tokens) == len(tokens) for slot in self._all):
            return True
        idle = sorted((s for s in self._all if not s.busy), key=lambda s: s.last_used)
        if not idle:
            return False
        slot = idle[0]
        self._put_aside(slot, 0)
        if self.n_free < len(tokens):
            self.make_room(len(tokens))
        if self.n_free < len(tokens) or not self._context.restore(slot.seq_id, state, len(tokens)):
            return False
        self.note(slot, tokens)
        slot.last_used = time.monotonic()
        return True

    def forget(self, slot: Slot, start: int) -> None:
        """Drop a slot's cells from position `start` on; all of them where the model cannot drop a part."""
        # Asked for even where nothing should be left to forget: an aborted batch may have left cells behind.
        if not self._context.forget(slot.seq_id, start):
            self._context.forget(slot.seq_id, 0)
            self.can_forget_tails = self.can_forget_tails and start in (0, len(slot.cached))
            start = 0
        del slot.cached[start:], slot.cells[start:]

    def clear(self) -> None:
        """Empty all idle slots."""
        for slot in self._all:
            if not slot.busy:
                self._put_aside(slot, 0)
        self._move_together()

    def release(self, active: Iterable[Sequence]) -> None:
        """Free the slots of all but the active generations; what they hold stays for a prompt that begins so."""
        owners = {id(s.slot) for s in active}
        for slot in self._all:
            if slot.busy and id(slot) not in owners:
                slot.busy, slot.last_used = False, time.monotonic()
