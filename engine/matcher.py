"""One generation's place in its grammar: which tokens may come, which must, and how to get out in time.

Knows tokens and bits, not what the text means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .grammar import Grammar, compile_matcher
from .vocabulary import Vocabulary

# When a generation has to end, single-byte tokens are tried in this order: closers first, then the shortest values.
_CLOSERS = b'}]"0' + bytes(c for c in range(256) if c not in b'}]"0{[,\\') + b"{[,\\"
# JSON has this character only inside strings, where the first thing to close is the string.
_ONLY_IN_STRINGS = ord("~")
_LONGEST_WAY_OUT = 512  # tokens


class Matcher:
    """Follows a grammar token by token.

    Args:
        grammar: what may be generated.
        vocabulary: the model's tokens.

    Raises:
        GrammarError: the grammar does not compile.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._matcher = compile_matcher(vocabulary.guide(), grammar.source(vocabulary.special))
        n_words = (vocabulary.n_tokens + 31) // 32
        self._bits = np.zeros(n_words, dtype=np.int32)  # (n_words,) one bit a token
        of_byte = _token_of_byte(vocabulary)
        self._in_string_test = of_byte.get(_ONLY_IN_STRINGS, 0), of_byte.get(ord('"'), 0)
        marks = [t for t in vocabulary.special.values() if t not in vocabulary.eog]
        self._single = [of_byte[b] for b in _CLOSERS if b in of_byte] + marks

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Set the logits of all tokens that may not come next to -inf, in place. logits: (n_vocab,) float32.

        Raises:
            GrammarError: the matcher gave up (a limit of its lexer); its mask must not be used.
        """
        logits[~self._allowed()] = -np.inf

    def _allowed(self) -> NDArray[np.bool_]:
        """(n_vocab,) bool."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little", count=self._vocabulary.n_tokens)
        return bits.view(np.bool_)

    def consume(self, tokens: Sequence[int]) -> None:
        """Move on by these tokens.

        Raises:
            GrammarError: a token is not allowed here.
        """
        self._matcher.consume_tokens(list(tokens))
        self._check()

    def forced(self) -> list[int]:
        """The tokens that must come next, if any: those of tokenizing the forced text as a whole."""
        return list(self._matcher.compute_ff_tokens())

    @property
    def may_end(self) -> bool:
        """Whether the generation may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end can follow."""
        return bool(self._matcher.is_stopped())

    def rollback(self, n_tokens: int) -> None:
        """Take the last tokens back."""
        self._matcher.rollback(n_tokens)
        self._check()

    def way_out(self, n_most: int = _LONGEST_WAY_OUT) -> list[int] | None:
        """A short sequence of tokens to a place where the generation may end; None if none of n_most tokens is found.

        Greedy: close what can be closed, take what is forced, else the shortest value. Not always the shortest way, but
        one that exists.
        """
        scout = self._matcher.deep_copy()
        path: list[int] = []
        while not scout.is_accepting():
            step = list(scout.compute_ff_tokens()) or self._closing_token(scout)
            if not step or len(path) + len(step) > n_most or not scout.consume_tokens(step):
                return None
            path += step
        return path

    def _closing_token(self, scout: object) -> list[int]:
        only_in_strings, quote = self._in_string_test
        if only_in_strings and scout.validate_tokens([only_in_strings]) and scout.validate_tokens([quote]):  # type: ignore[attr-defined]
            return [quote]
        for token in self._single:
            if scout.validate_tokens([token]):  # type: ignore[attr-defined]  # llguidance is untyped here
                return [token]
        return []

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"the grammar's matcher gave up: {self._matcher.get_error().strip().splitlines()[0]}")


def _token_of_byte(vocabulary: Vocabulary) -> dict[int, int]:
    """The token of each single byte that has one."""
    of_byte: dict[int, int] = {}
    for token, raw in enumerate(vocabulary.token_bytes):
        if len(raw) == 1:
            of_byte.setdefault(raw[0], token)
            if len(of_byte) == 256:
                break
    return of_byte
