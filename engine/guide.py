"""llguidance's view of a vocabulary, made while llama.cpp loads the weights.

For 151,936 tokens it takes 0.3 s, in which no other Python runs; llama.cpp's loading takes as long and needs none.
Knows tokens and bytes; not grammars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock, Thread, current_thread, main_thread
from typing import Any

import llguidance

from .token_table import TokenTable, read_table

Tokenize = Callable[[bytes], list[int]]
# Tokens of a string without quotes and escapes, in three lengths, whose masks are known beforehand: llguidance's own
# choice but for one of white space, which costs 50 ms here and saved no mask any time (docs/log.md).
_SLICES = [r'[^"\\\x00-\x1F\x7F]' + length for length in ("{1,10}", "{1,30}", "+")]


class Guide:
    """Reads the tokens and makes the view of them, in a thread.

    Args:
        read: gives the tokens; called in that thread.
    """

    def __init__(self, read: Callable[[], TokenTable | None]) -> None:
        self._table: TokenTable | None = None
        self._error: Exception | None = None
        self._made: llguidance.LLTokenizer | None = None
        self._tokenizer = _Tokenizer()
        self._reading = Lock()  # held until the tokens are read
        self._reading.acquire()
        self._thread = Thread(target=self._make, args=(read,), name="laploop-guide", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Guide:
        """Of the file with this metadata."""
        return cls(lambda: read_table(metadata))

    def _make(self, read: Callable[[], TokenTable | None]) -> None:
        try:
            try:
                self._table = read()
            finally:
                self._reading.release()
            if self._table:
                self._made = self._tokenizer.made_of(self._table)
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error

    def bind(self, tokenize: Tokenize) -> None:
        """Say how the model tokenizes a text, before anything follows a grammar."""
        self._tokenizer.tokenize = tokenize

    def table(self) -> TokenTable | None:
        """The tokens, once they are read; None where the file does not say them."""
        with self._reading:
            pass
        if self._error:
            raise self._error
        return self._table

    def tokenizer(self) -> llguidance.LLTokenizer:
        """The view, once it is made."""
        self._thread.join()
        if self._error:
            raise self._error
        assert self._made
        return self._made

    def raise_interrupt(self) -> None:
        """Raise the Ctrl-C that came while llguidance was asking for tokens, if one did."""
        if self._tokenizer.interrupted and current_thread() is main_thread():
            self._tokenizer.interrupted = False
            raise KeyboardInterrupt


class _Tokenizer:
    """What llguidance asks. It holds no guide: what llguidance's objects hold, the garbage collector does not see."""

    def __init__(self) -> None:
        self.tokenize: Tokenize | None = None
        self.interrupted = False
        self._sentinel = b""
        # Names that llguidance reads.
        self.eos_token_id = 0
        self.bos_token_id = None
        self.special_token_ids: list[int] = []
        self.tokens: list[bytes] = []

    def made_of(self, table: TokenTable) -> llguidance.LLTokenizer:
        self.tokens, self.eos_token_id = list(table.texts), table.eos
        for token in table.special.values():
            # How llguidance tells a mark: by a byte that no text has.
            self.tokens[token] = b"\xff" + table.texts[token]
        self._sentinel = b"" if table.is_bpe else b"\x01"
        made = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self), slices=_SLICES)
        self.tokens = []
        return made

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text that stands in the middle of another."""
        try:
            return self._tokens_of(text)
        except KeyboardInterrupt:  # out of here it would break the matcher, not the program
            self.interrupted = True
            return self._tokens_of(text)

    def _tokens_of(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes) or not self.tokenize:
            raise TypeError("llguidance gives whole characters")  # its wrapper tries bytes first
        raw = text.encode()
        if self._sentinel:  # SentencePiece puts a space before a text; behind another it does not
            before, both = self.tokenize(self._sentinel), self.tokenize(self._sentinel + raw)
            if both[: len(before)] == before:
                return both[len(before) :]
        return self.tokenize(raw)
