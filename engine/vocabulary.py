"""Text to tokens and back, and which tokens are control marks.

Knows the vocabulary of one model; not messages, not templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from .given import check_texts, check_tokens
from .guide import Guide
from .native import NativeModel
from .token_table import ask_table
from .way_out import Alphabet


class Vocabulary:
    """The tokens of one model.

    Args:
        native: the loaded model.
        metadata: the file's metadata.
        guide: what was made of the metadata while the model loaded.
    """

    def __init__(self, native: NativeModel, metadata: Mapping[str, Any], guide: Guide | None = None) -> None:
        self._native = native
        self.n_tokens = native.n_vocab
        self.eos = native.eos
        guide = guide or Guide.of(metadata)
        table = guide.table()
        if table is None or len(table.texts) != self.n_tokens:
            guide = Guide(partial(ask_table, metadata, self.n_tokens, self.eos, native.token_bytes))
            table = guide.table()
            assert table
        guide.bind(native.tokenize)
        self._guide = guide
        #: For each token the bytes it stands for; a special token's name, and nothing for unused ones.
        self.token_bytes = list(table.texts)
        for token in table.odd:
            self.token_bytes[token] = native.token_bytes(token)
        #: text → token of every token that is a mark and not text: control tokens, <unk>, and user-defined ones like
        #: <think>.
        self.special = table.special
        self.eog = frozenset(t for t in {*self.special.values(), self.eos} if t >= 0 and native.is_eog(t))
        #: The one end of a generation that grammars know; where it may come, any may.
        self.grammar_end = table.eos

    @cached_property
    def end_bits(self) -> NDArray[np.int32]:
        """All tokens that end a generation, one bit for each token: (⌈n_tokens / 32⌉,) int32."""
        words = np.zeros((self.n_tokens + 31) // 32, dtype=np.uint32)
        for token in self.eog:
            words[token // 32] |= np.uint32(1 << token % 32)
        return words.view(np.int32)

    def is_word(self, token: int) -> bool:
        """Whether it holds a letter, a digit or a character beyond ASCII, and is no mark."""
        return any(b >= 128 or chr(b).isalnum() for b in self.bytes_of([token]))

    def name_of(self, token: int) -> str:
        """The text of one token; empty for none (a negative number)."""
        return self.detokenize([token]) if 0 <= token < self.n_tokens else ""

    def tokenize(self, text: str | Iterable[str], *, add_bos: bool = True) -> list[int]:
        """Tokens of a prompt.

        Special marks in the text become their tokens. A mark is never formed across two pieces: text that must not be
        read as a mark is passed cut inside it (see `laploop.models.Prompt`).

        Args:
            text: a text, or its pieces.
            add_bos: put the model's beginning-of-sequence token first, where the model has the habit and the text does
                not start with it.
        """
        pieces = list(text) if isinstance(text, Iterable) and not isinstance(text, str) else [text]
        check_texts(pieces)
        tokens: list[int] = []
        for piece in pieces:
            tokens += self._native.tokenize(piece.encode("utf-8", "replace"), parse_special=True)
        bos = self._native.bos
        if add_bos and self._native.add_bos and bos >= 0 and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        return tokens

    def bytes_of(self, tokens: Iterable[int]) -> bytes:
        """The bytes of some tokens."""
        table = self.token_bytes
        return b"".join(table[t] for t in tokens)

    def detokenize(self, tokens: Iterable[int]) -> str:
        """The text of some tokens; bytes that are no UTF-8 become U+FFFD."""
        tokens = list(tokens) if isinstance(tokens, Iterable) and not isinstance(tokens, str | bytes) else tokens
        check_tokens(tokens, self.n_tokens)
        return self.bytes_of(tokens).decode("utf-8", "replace")

    @cached_property
    def special_pattern(self) -> re.Pattern[str]:
        """Matches any special mark in a text, the longest first."""
        marks = sorted(self.special, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, marks)) if marks else r"(?!)")

    @cached_property
    def alphabet(self) -> Alphabet:
        """The tokens that a way out of a grammar is made of."""
        return Alphabet(self)

    def guide(self) -> llguidance.LLTokenizer:
        """llguidance's view of the vocabulary; waits until it is made. Thread safe."""
        return self._guide.tokenizer()

    def raise_interrupt(self) -> None:
        """See `Guide.raise_interrupt`."""
        self._guide.raise_interrupt()
