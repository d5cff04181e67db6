"""Texts that end an answer, looked for in a text that comes in pieces.

Each character is read once, however many the texts are, however long, and however the pieces are cut (Aho and
Corasick). Knows nothing else of an answer.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache


class StopTexts:
    """Lets a text through up to the first stop text that is complete; of those that are complete at once, the longest.

    Args:
        texts: none of them empty.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._automaton = _automaton(texts)
        self._state = 0
        self._held: deque[str] = deque()  # what may be the beginning of a stop text
        self._n_held = 0
        self.found = False

    def feed(self, piece: str) -> str:
        """Take the next piece; return what is certain to be no part of a stop text."""
        automaton, state = self._automaton, self._state
        for at, char in enumerate(piece, 1):
            state = automaton.next(state, char)
            if n_stop := automaton.n_complete[state]:
                self.found = True
                return self._release(self._n_held + at - n_stop, piece)
        self._state = state
        return self._release(self._n_held + len(piece) - automaton.n_begun[state], piece)

    def rest(self) -> str:
        """What was held back, because no more will come."""
        return self._release(self._n_held)

    def _release(self, n: int, piece: str = "") -> str:
        """Add a piece, and let the first `n` characters go."""
        self._held.append(piece)
        self._n_held += len(piece) - n
        gone = []
        while n:
            first = self._held.popleft()
            if len(first) > n:
                self._held.appendleft(first[n:])
            gone.append(first[:n])
            n -= len(gone[-1])
        return "".join(gone)


class _Automaton:
    """A state is a beginning of some of the texts, the longest with which the text so far ends; 0 is the empty one.

    `n_begun` are its characters, `n_complete` those of the longest whole text at its end, 0 for none.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._longer: dict[tuple[int, str], int] = {}
        self._shorter = [0]  # the next shorter beginning that the state's end is
        self.n_begun, self.n_complete = [0], [0]
        ends = [self._add(text) for text in texts]
        for text, end in zip(texts, ends, strict=True):
            self.n_complete[end] = len(text)
        for (state, char), longer in sorted(self._longer.items(), key=lambda item: self.n_begun[item[1]]):
            shorter = self.next(self._shorter[state], char) if state else 0
            self._shorter[longer] = shorter
            self.n_complete[longer] = self.n_complete[longer] or self.n_complete[shorter]

    def _add(self, text: str) -> int:
        state = 0
        for n, char in enumerate(text, 1):
            longer = self._longer.setdefault((state, char), len(self.n_begun))
            if longer == len(self.n_begun):
                self.n_begun.append(n)
                self.n_complete.append(0)
                self._shorter.append(0)
            state = longer
        return state

    def next(self, state: int, char: str) -> int:
        """The state behind one more character."""
        while (longer := self._longer.get((state, char))) is None:
            if not state:
                return 0
            state = self._shorter[state]
        return longer


_automaton = lru_cache(maxsize=2)(_Automaton)  # the choices of a reply have the same
