"""One generation's place in its grammar: which tokens may come, which must, and how to get out in time.

Knows tokens and bits, not what the text means.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bitmask import apply_bitmask, only_token
from .errors import GrammarError
from .examples import endings as endings_of
from .grammar import Grammar, compile_matcher
from .vocabulary import Vocabulary
from .way_out import Known, find_way_out, forced_tokens

# Searches for the way out that may fail one after another before some are left out, and how many at most.
_MOST_IN_VAIN = 4
_MOST_SKIPPED = 64


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
        self._grammar = grammar
        self._looser = grammar.looser()
        self._tokens: list[int] = []  # consumed
        self._matcher = compile_matcher(vocabulary.guide(), grammar.source(vocabulary.special))
        self._known_ends = self._ends_of(grammar)
        self._n_in_vain = self._n_to_skip = 0  # searches for the way out
        self._words = np.zeros((vocabulary.n_tokens + 31) // 32, dtype=np.int32)  # (n_words,) one bit a token
        self._address = self._words.ctypes.data

    def _ends_of(self, grammar: Grammar) -> Known:
        of_byte = self._vocabulary.alphabet.of_byte
        texts = (endings_of(grammar.rules), [text.encode() for text in grammar.closers])
        return Known(
            *([[of_byte[b] for b in text] for text in found if of_byte.keys() >= set(text)] for found in texts)
        )

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Set the logits of all tokens that may not come next to -inf, in place. logits: (n_vocab,) float32.

        Raises:
            GrammarError: the matcher gave up at a limit of its lexer, and so did those of looser grammars.
        """
        apply_bitmask(self.allowed(), logits)

    def allowed(self) -> NDArray[np.int32]:
        """One bit for each token, (n_words,) int32, valid until the next call; raises as `mask` does."""
        words = self._words
        self._matcher.unsafe_compute_mask_ptr(self._address, words.nbytes)
        if self._is_renewed():  # its mask would allow nothing but the end
            self._matcher.unsafe_compute_mask_ptr(self._address, words.nbytes)
            self._is_renewed()
        end, only = self._vocabulary.grammar_end, only_token(words)
        if words[end // 32] >> end % 32 & 1:
            words |= self._vocabulary.end_bits
        elif only is not None and not self._matcher.validate_tokens([only]):
            # llguidance allows the one token that forced text begins with, which may be a mark: see forced_tokens.
            words[:] = 0
            for token in self.forced()[:1]:
                words.view(np.uint32)[token // 32] = 1 << token % 32
        return words

    def consume(self, tokens: Sequence[int]) -> None:
        """Move on by these tokens.

        Raises:
            GrammarError: a token is not allowed here.
        """
        self._matcher.consume_tokens(list(tokens))
        self._tokens += tokens
        self._is_renewed()

    def forced(self) -> list[int]:
        """The tokens that must come next, if any: those of tokenizing the forced text as a whole."""
        tokens = forced_tokens(self._matcher, self._vocabulary.alphabet)
        return self.forced() if self._is_renewed() else tokens

    def allowed_prefix(self, tokens: Sequence[int]) -> list[int]:
        """As many of the first of these tokens as may come next, one after another."""
        return list(tokens[: self._matcher.validate_tokens(list(tokens))]) if tokens else []

    @property
    def may_end(self) -> bool:
        """Whether the generation may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end can follow."""
        self._is_renewed()  # one that gave up calls itself stopped
        return bool(self._matcher.is_stopped())

    def rollback(self, n_tokens: int) -> None:
        """Take the last tokens back."""
        if n_tokens:
            self._matcher.rollback(n_tokens)
            del self._tokens[-n_tokens:]
            self._is_renewed()

    def way_out(self, *, thorough: bool = False) -> list[int] | None:
        """Tokens that lead from here to a place where the generation may end, see `find_way_out`.

        Where searches found nothing (an array of a billion items), the next are left out, more each time: one costs up
        to half a second, and would come with every token.
        """
        if self._n_to_skip > 0:
            self._n_to_skip -= 1
            return None
        way = find_way_out(self._matcher, self._vocabulary.alphabet, self._known_ends, thorough=thorough)
        self._vocabulary.raise_interrupt()
        self._n_in_vain = 0 if way is not None else self._n_in_vain + 1
        if self._n_in_vain > _MOST_IN_VAIN:
            self._n_to_skip = min(2 ** (self._n_in_vain - _MOST_IN_VAIN), _MOST_SKIPPED)
        return way

    def _is_renewed(self) -> bool:
        """Where the matcher gave up, let one of a looser grammar take over at the same place; whether that was so.

        llguidance's lexer has limits that some patterns reach in the middle of a text, and then nothing may come but
        the end. What a looser grammar lets through is found by the validation of the whole.

        Raises:
            GrammarError: a token that is not allowed was consumed, or no grammar is loose enough.
        """
        self._vocabulary.raise_interrupt()
        if not self._matcher.is_error():
            return False
        why = self._matcher.get_error().strip().splitlines()[0]
        if not self._has_met_limit():
            raise GrammarError(f"the grammar's matcher gave up: {why}")
        for grammar in self._looser:
            matcher = compile_matcher(self._vocabulary.guide(), grammar.source(self._vocabulary.special))
            if _goes_on(matcher, self._tokens):
                self._matcher, self._grammar = matcher, grammar
                self._known_ends = Known(closers=self._known_ends.closers)
                warnings.warn(f"the grammar met a limit, a looser one took over: {why}", stacklevel=3)
                return True
        raise GrammarError(f"the grammar's matcher gave up, and so did those of looser grammars: {why}")

    def _has_met_limit(self) -> bool:
        """Whether a fresh matcher gives up at the same place, before or after the last token, with no fault of ours."""
        fresh = compile_matcher(self._vocabulary.guide(), self._grammar.source(self._vocabulary.special))
        n_good = fresh.try_consume_tokens(self._tokens)
        fresh.compute_bitmask()
        return bool(fresh.is_error()) or n_good == len(self._tokens)


def _goes_on(matcher: Any, tokens: list[int]) -> bool:
    """Whether a matcher takes these tokens and something can follow."""
    if matcher.try_consume_tokens(tokens) < len(tokens):
        return False
    matcher.compute_bitmask()
    return not matcher.is_error()
