"""Text to tokens and back, and which tokens are control marks.

Knows the vocabulary of one model; not messages, not templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import llguidance

from .native import NativeModel
from .way_out import Alphabet

# gguf's tokenizer.ggml.token_type (llama.h, enum llama_token_type).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


def _byte_of_char() -> dict[int, int]:
    """The inverse of GPT-2's byte-to-character table (openai/gpt-2, encoder.py): code point → byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: b for b in plain}
    return table | {256 + i: b for i, b in enumerate(b for b in range(256) if b not in table)}


class Vocabulary:
    """The tokens of one model.

    Args:
        native: the loaded model.
        metadata: the file's metadata; read instead of asking llama.cpp 150,000 times, which would take over a second.
    """

    def __init__(self, native: NativeModel, metadata: Mapping[str, Any]) -> None:
        self._native = native
        self.n_tokens = native.n_vocab
        self.eos = native.eos
        types = metadata.get("tokenizer.ggml.token_type")
        self._types: Sequence[int] = types if types is not None else [_NORMAL] * self.n_tokens
        names: list[bytes] = metadata.get("tokenizer.ggml.tokens") or []
        self._by_file = metadata.get("tokenizer.ggml.model") == "gpt2" and len(names) == self.n_tokens
        self._names = names
        marks = {
            t: self._mark_text(t) for t, kind in enumerate(self._types) if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        }
        #: text → token of every token that is a mark and not text: control tokens, <unk>, and user-defined ones like
        #: <think>.
        self.special: dict[str, int] = {
            text: t
            for t, text in marks.items()
            if len(text) > 1 and (self._types[t] != _USER_DEFINED or (text[0] == "<" and text[-1] == ">"))
        }
        self.eog = frozenset(t for t in {*self.special.values(), self.eos} if t >= 0 and native.is_eog(t))
        self._lock = Lock()

    def _mark_text(self, token: int) -> str:
        raw = self._names[token] if self._by_file else self._native.token_bytes(token)
        return raw.decode("utf-8", "replace")

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """For each token the bytes it stands for; a special token's name, and nothing for unused ones."""
        if not self._by_file:
            return [self._native.token_bytes(t) for t in range(self.n_tokens)]
        # One translate over all names; the line feed is safe between them, since GPT-2's table maps it elsewhere.
        table: dict[int, int] = {**_byte_of_char(), 10: 0x100}
        texts = b"\n".join(self._names).decode("utf-8", "replace").translate(table).split("\u0100")
        table_of = zip(range(self.n_tokens), texts, self._types, self._names, strict=True)
        return [
            b"" if kind == _UNUSED else self._text_bytes(t, text) if kind == _NORMAL else name
            for t, text, kind, name in table_of
        ]

    def _text_bytes(self, token: int, text: str) -> bytes:
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:  # not written in GPT-2's letters
            return self._native.token_bytes(token)

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
        pieces = [text] if isinstance(text, str) else list(text)
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
        """llguidance's view of the vocabulary; built at the first call (0.2–0.4 s for 151,936 tokens), thread safe."""
        with self._lock:
            guide: llguidance.LLTokenizer = self._guide
            return guide

    @cached_property
    def _guide(self) -> Any:
        marks = set(self.special.values())
        # llguidance tells a special token by a leading 0xff byte, which no text has.
        tokens = [b"\xff" + raw if t in marks else raw for t, raw in enumerate(self.token_bytes)]
        make: Any = llguidance.LLTokenizer  # its type stubs do not know from_llamacpp
        return make.from_llamacpp(
            tokens=tokens,
            vocab_ptr=self._native.vocab,
            tokenize_fptr=self._native.tokenize_function,
            eos_token=sorted(self.eog) or [self.eos],
            slices=None,
        )
