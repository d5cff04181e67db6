"""Drafts from context: what followed the last time that the text stood where it stands now.

A call repeats links, names and numbers of the prompt, an answer repeats sentences of a result. Such a run is proposed,
decoded in one batch with the token before it, and each of its tokens counts only if it is the one that is chosen from
the logits: the text is the same with and without (prompt lookup decoding: Saxena 2023; the verification is that of
Leviathan et al. 2023, arXiv:2211.17192, for proposals without chance). Knows tokens only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Tokens

# Tokens that have to agree before what followed them is worth a try.
_N_KEY = 2
_MOST_PLACES = 32  # looked at, the latest ones
_LONGEST_MATCH = 16
_FIRST_LENGTH = 4
_PAUSE = 2  # tokens without drafts after one of which nothing was right; doubled with each more
_LONGEST_PAUSE = 64
# Decodes with a draft after which it is known whether they pay.
_N_TRIAL = 24


class Drafter:
    """One generation's drafts. Their length follows their luck: it doubles when all of a draft was right.

    Args:
        tokens: the generation's tokens; the list is read as it grows.
        most: longest draft.
    """

    def __init__(self, tokens: Tokens[int], most: int) -> None:
        self._tokens = tokens
        self._most = most
        self._length = min(_FIRST_LENGTH, most)
        self._pause, self._pause_until = _PAUSE, 0
        self._places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)  # last tokens → what follows begins
        self._n_indexed = _N_KEY

    def propose(self) -> list[int]:
        """The tokens that may come next; empty where nothing in the text suggests any."""
        tokens = self._tokens
        if len(tokens) < self._pause_until:
            return []
        self._index()
        places = self._places[tuple(tokens[-_N_KEY:])][:-1]  # the last one is the end itself
        if not places:
            return []
        # Of equals the first: of several links in a result the one at the top is asked for most often.
        place = max(places[-_MOST_PLACES:], key=self._n_agreeing)
        return list(tokens[place : place + self._length])

    def _index(self) -> None:
        tokens = self._tokens
        for end in range(self._n_indexed, len(tokens) + 1):
            self._places[tuple(tokens[end - _N_KEY : end])].append(end)
        self._n_indexed = len(tokens) + 1

    def _n_agreeing(self, at: int) -> int:
        """How many tokens in front of `at` are those at the end of the text."""
        tokens, n = self._tokens, _N_KEY
        while n < _LONGEST_MATCH and n < at and tokens[at - n - 1] == tokens[-n - 1]:
            n += 1
        return n

    def learn(self, n_drafted: int, n_right: int) -> None:
        """Say how many tokens of a draft came true."""
        if not n_right:
            self._length = max(self._length // 2, 1)
            self._pause_until = len(self._tokens) + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return
        self._pause = _PAUSE
        self._length = min(2 * self._length, self._most) if n_right == n_drafted else n_right


class Payoff:
    """Whether drafts pay on this machine: time a token with them against time a token without.

    Where a batch costs as much as its tokens one by one, they cannot; then they end for the engine's life.
    """

    def __init__(self) -> None:
        self._single_s = self._drafted_s = 0.0
        self._n_single = self._n_drafted = self._n_decodes = 0
        self._open: tuple[float, bool] | None = None

    def begin(self, elapsed_s: float, *, drafted: bool) -> None:
        """Note a decode of one token, with or without a draft behind it."""
        self._open = (elapsed_s, drafted)

    def end(self, n_chosen: int) -> None:
        """Say how many tokens the noted decode, if there is one, came to."""
        if not self._open:
            return
        (elapsed_s, drafted), self._open = self._open, None
        if drafted:
            self._drafted_s += elapsed_s
            self._n_drafted += n_chosen
            self._n_decodes += 1
        else:
            self._single_s += elapsed_s
            self._n_single += 1

    @property
    def pays(self) -> bool:
        """True until the opposite was seen."""
        if self._n_decodes < _N_TRIAL or not self._n_single:
            return True
        return self._drafted_s / self._n_drafted < self._single_s / self._n_single
