"""One batch for all active generations, again and again: who is active, what goes in, whose room is taken.

`step` and what it calls belong into the thread that decodes; only `join` and `fail` may come from others. Knows tokens
and slots; not how a token is chosen, nor who waits for it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Tokens
from threading import Lock
from typing import NamedTuple

from .drafting import Payoff
from .errors import EngineError
from .native import NativeContext, NoRoomError
from .saver import Saver
from .sequence import Sequence
from .slots import Slots, shared_prefix
from .turns import FEW, Pace, share_out
from .vocabulary import Vocabulary
from .writer import Writer

# Cells that a generation must find free, beyond its tokens, to become active. It may come to need more than there are:
# then the one that came last makes room. Reserving all that each may ever need would leave most of the cache unused.
_HEADROOM = 256


class _Run(NamedTuple):
    """A generation's part of a batch: tokens that are its own, and a draft of those behind them."""

    sequence: Sequence
    tokens: list[int]
    draft: list[int]


class Scheduler:
    """The generations of one context.

    Args:
        context, slots: the cache.
        vocabulary: the model's tokens.
        saver: is told of what ends, and of what is about to be overwritten.
        always_drafts: whether drafts are made even where they were seen not to pay.
    """

    def __init__(
        self, context: NativeContext, slots: Slots, vocabulary: Vocabulary, saver: Saver, *, always_drafts: bool
    ) -> None:
        self._context, self._slots, self._vocabulary, self._saver = context, slots, vocabulary, saver
        self._writer = Writer(context, vocabulary)
        self._always_drafts = always_drafts
        self._payoff, self._pace = Payoff(), Pace()
        self.active: list[Sequence] = []  # in order of arrival
        self.waiting: list[Sequence] = []  # likewise
        self._waiting_lock = Lock()
        self._arrivals = itertools.count()

    def join(self, sequence: Sequence) -> None:
        """Queue a generation."""
        with self._waiting_lock:
            sequence.arrival = next(self._arrivals)
            self.waiting.append(sequence)

    def fail(self, error: BaseException) -> None:
        """End all generations with an error."""
        with self._waiting_lock:
            for sequence in [*self.active, *self.waiting]:
                sequence.error = error

    def step(self) -> int:
        """Decode one batch for all active generations and choose each one's next token; return how many took part."""
        self.reap()
        self._admit()
        while (runs := self._next_batch()) and not self._has_run(runs):
            pass  # there is room now, or fewer generations
        return len(runs)

    def _has_run(self, runs: list[_Run]) -> bool:
        """Decode and choose; False if it could not be, and something has changed so that a next batch may."""
        try:
            if self._decode(runs):
                self._sample(runs)
        except NoRoomError as error:
            if not self._make_room(sum(len(run.tokens) + len(run.draft) for run in runs)):
                self._give_up(runs, error)
            return False
        except EngineError as error:
            self._give_up(runs, error)
            return False
        return True

    # -- who takes part -------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Drop generations that nobody reads any more; a cache stays for the next prompt that begins the same way."""
        with self._waiting_lock:
            for sequence in [s for s in self.waiting if s.abandoned or s.error]:
                self.waiting.remove(sequence)
                sequence.sampler.close()
        for sequence in [s for s in self.active if s.abandoned or s.error]:
            self._retire(sequence)
        self._slots.release(self.active)

    def _admit(self) -> None:
        """Give waiting generations a slot, in order of arrival, as long as there is room.

        One that nobody reads at present goes back to the queue where others wait for its place. Without that, who
        starts a second generation while reading a first one would wait for ever, and a reader's thread that died with
        its generator would keep the place. Nothing is lost: it continues in the next free slot, from its tokens.
        """
        with self._waiting_lock:
            waiting = [s for s in self.waiting if not s.is_behind]
        for sequence in waiting:
            while not (self._slots.has_place and self._has_room_for(sequence)):
                idler = next((s for s in self.active if s.is_behind), None)
                if not idler:
                    return
                self._suspend(idler)
            with self._waiting_lock:
                self.waiting.remove(sequence)
            self._saver.settle()
            self._slots.place(sequence)
            self.active.append(sequence)
            self.active.sort(key=_arrival)

    def _has_room_for(self, sequence: Sequence) -> bool:
        return not self.active or self.n_needed(sequence) <= self._context.n_ctx

    def n_needed(self, *newcomers: Sequence) -> int:
        """Cells that the active generations hold, or need before long; what several begin with counts once."""
        sequences = [*self.active, *newcomers]
        n = sum(len(s.tokens) + min(s.n_left, _HEADROOM) for s in sequences)
        if self._slots.can_share:
            for i, sequence in enumerate(sequences):
                n -= max((shared_prefix(sequence.tokens, other.tokens) for other in sequences[:i]), default=0)
        return n

    def _suspend(self, sequence: Sequence) -> None:
        """Send an active generation back to the queue, to its place by arrival."""
        self.active.remove(sequence)
        assert sequence.slot
        sequence.n_had = max(sequence.n_had, len(sequence.slot.cached))
        sequence.slot = None
        with self._waiting_lock:
            self.waiting.append(sequence)
            self.waiting.sort(key=_arrival)
        self._slots.release(self.active)

    def _make_room(self, n_tokens: int) -> bool:
        """Free cells: those of what has ended; if there are none, those of the generation that came last."""
        self._saver.settle()
        if self._slots.make_room(n_tokens):
            return True
        if len(self.active) < 2:
            return False
        self._suspend(self.active[-1])
        return self._slots.make_room(n_tokens)

    def _retire(self, sequence: Sequence) -> None:
        self.active.remove(sequence)
        sequence.sampler.close()
        self._saver.ended(sequence)

    # -- a batch --------------------------------------------------------------------------------------------------

    def _next_batch(self) -> list[_Run]:
        """Whose turn it is, each with the tokens to decode."""
        ready = [s for s in self.active if not s.is_behind]
        ready = [s for i, s in enumerate(ready) if not self._is_computed_by(ready[:i], s)]
        shares = share_out([s.n_pending for s in ready], self._context.n_batch, self._pace)
        runs = [_Run(s, s.pending[:n], []) for s, n in zip(ready, shares, strict=True) if n]
        budget = self._context.n_batch - sum(shares)
        if len(runs) == 1 and budget:  # several generations fill the batch by themselves
            runs = [runs[0]._replace(draft=self._draft(runs[0].sequence, budget))]
        return runs

    def _is_computed_by(self, earlier: list[Sequence], sequence: Sequence) -> bool:
        """Whether a generation had better wait, since one that came before it is computing what its prompt goes on
        with. What is computed already is taken over here."""
        if sequence.n_pending <= FEW or not self._slots.can_share:
            return False
        self._slots.take_over(sequence)
        n = len(sequence.tokens) - sequence.n_pending + FEW
        return any(o.n_pending > 1 and shared_prefix(o.tokens, sequence.tokens) > n for o in earlier)

    def _draft(self, sequence: Sequence, n_most: int) -> list[int]:
        """What may come behind a generation's tokens, as far as its grammar and budget let it; mostly nothing."""
        pays = self._payoff.pays or self._always_drafts
        if not (sequence.drafter and sequence.n_generated and self._slots.can_forget_tails and pays):
            return []
        # Where a value begins, neither what the grammar put in nor a quotation mark says anything about it.
        if sequence.ends_forced or not self._vocabulary.is_word(sequence.tokens[-1]):
            return []
        draft = sequence.drafter.propose()[: min(n_most, sequence.n_left - 1)]
        end = next((i for i, token in enumerate(draft) if token in self._vocabulary.eog), len(draft))
        return sequence.matcher.allowed_prefix(draft[:end]) if sequence.matcher else draft[:end]

    def _decode(self, runs: list[_Run]) -> bool:
        """Decode a batch; False if it was stopped, and nothing of it counts."""
        started = time.perf_counter()
        batch = []
        for sequence, tokens, draft in runs:
            assert sequence.slot
            n_cached = len(sequence.slot.cached)
            at_end = n_cached + len(tokens) == len(sequence.tokens)
            batch.append((sequence.slot.seq_id, n_cached, tokens + draft, 1 + len(draft) if at_end else 0))
        if not self._context.decode(batch):
            self._undo(runs)
            return False
        elapsed = time.perf_counter() - started
        for sequence, tokens, draft in runs:
            assert sequence.slot
            self._slots.note(sequence.slot, tokens + draft)
            sequence.timings.count(elapsed, generating=sequence.n_generated > 0)
        self._pace.note(sum(len(run.tokens) for run in runs), elapsed)
        if len(runs) == 1 and len(runs[0].tokens) == 1:
            self._payoff.begin(elapsed, drafted=bool(runs[0].draft))
        return True

    def _undo(self, runs: list[_Run]) -> None:
        """What a batch that does not count may have left in the cache."""
        for run in runs:
            assert run.sequence.slot
            self._slots.forget(run.sequence.slot, len(run.sequence.slot.cached))

    def _give_up(self, runs: list[_Run], error: EngineError) -> None:
        self._undo(runs)
        for run in runs:
            run.sequence.error = error
            self._retire(run.sequence)
        self._slots.release(self.active)

    def _sample(self, runs: list[_Run]) -> None:
        at = -1
        for sequence, tokens, draft in runs:
            at += len(tokens)
            if sequence.n_pending <= 0:  # else its prompt goes on in the next batch; a draft stands behind its tokens
                try:
                    n_right = self._advance(sequence, at, draft)
                    self._payoff.end(1 + n_right)
                except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to this generation's reader
                    sequence.error = error
                if sequence.finish_reason or sequence.error:
                    self._retire(sequence)
            at += len(draft)

    def _advance(self, sequence: Sequence, at: int, draft: Tokens[int]) -> int:
        """Choose tokens from the logits of the batch's token `at` and of the draft behind it, as long as the draft is
        what was chosen; return how much of it was."""
        n_before, n_right = len(sequence.tokens), 0
        sequence.timings.n_steps += 1
        while True:
            self._writer.advance(sequence, at + n_right)
            new = sequence.tokens[n_before:]
            n_right = shared_prefix(draft, new)
            if sequence.finish_reason or n_right < len(new):
                break
        if draft:
            assert sequence.slot and sequence.drafter
            self._slots.forget(sequence.slot, n_before + n_right)
            sequence.drafter.learn(len(draft), n_right)
            sequence.timings.n_drafted += len(draft)
            sequence.timings.n_accepted += n_right
        return n_right


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
