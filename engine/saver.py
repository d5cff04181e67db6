"""Saves the beginning of a prompt after its answer, off the user's path; see `prefixes`.

The copy is made in the thread that decodes, between two steps, and at the last moment before the cells are another
prompt's. Knows when, not where to.
"""

from __future__ import annotations

import contextlib

from .native import NativeContext
from .prefixes import Prefixes, StateCopy
from .sequence import Sequence
from .stepper import ClosedError, Stepper


class Saver:
    """Saves for one context. `ended` and `settle` belong into the thread that decodes.

    Args:
        context: what is copied from.
        prefixes: where to; None saves nothing.
        stepper: the thread that decodes.
    """

    def __init__(self, context: NativeContext, prefixes: Prefixes | None, stepper: Stepper) -> None:
        self._context, self._prefixes, self._stepper = context, prefixes, stepper
        self._copy: StateCopy | None = None  # still to be made

    def ended(self, sequence: Sequence) -> None:
        """Save what a generation that is over allows to be shared, if it is not saved yet."""
        slot, n = sequence.slot, sequence.n_shareable
        if self._prefixes and slot and 0 < n <= len(slot.cached):
            tokens = slot.cached[:n]
            if self._prefixes.wants(tokens):
                self.settle()
                copy = self._copy = StateCopy(self._context, slot, tokens)
                self._prefixes.save(tokens, lambda: self._made(copy))

    def settle(self) -> None:
        """Make the copy that is still to be made: its cells are about to become another's."""
        if self._copy:
            self._copy.make()
            self._copy = None

    def _made(self, copy: StateCopy) -> bytearray | None:
        """The copy's state; waits for the step under way."""
        with contextlib.suppress(ClosedError):  # then it was made, or it will not be
            self._stepper.run(copy.make)
        return copy.state

    def finish(self) -> None:
        """Wait for a save under way."""
        if self._prefixes:
            self._prefixes.finish()
