"""The tokens of a vocabulary as bytes, from the header of its file.

Knows how the families of tokenizers write a token's bytes down, and which tokens are marks; not what a mark means.
Asking llama.cpp for 150,000 tokens one by one takes over a second; reading them takes 0.05 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

# gguf's tokenizer.ggml.token_type (llama.h, enum llama_token_type).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_BETWEEN = b"\xff"  # stands between names: they are UTF-8, where this byte does not occur


@dataclass(frozen=True)
class TokenTable:
    """The tokens of one vocabulary.

    Args:
        texts: the bytes each token stands for; a mark's name; nothing for unused ones.
        special: text → token of every token that is a mark and not text: control tokens, <unk>, and user-defined ones
            like <think>.
        odd: tokens whose bytes only llama.cpp can say; `texts` has nothing for them.
        eos: a token that ends a generation; there may be others.
        is_bpe: whether it is byte-level BPE, whose tokenizer adds nothing to a text.
    """

    texts: list[bytes]
    special: dict[str, int]
    odd: tuple[int, ...]
    eos: int
    is_bpe: bool


def read_table(metadata: Mapping[str, Any]) -> TokenTable | None:
    """The table of the file with this metadata; None where only llama.cpp can say it."""
    names, eos = metadata.get("tokenizer.ggml.tokens") or [], metadata.get("tokenizer.ggml.eos_token_id")
    family = metadata.get("tokenizer.ggml.model")
    read = {"gpt2": _gpt2_texts, "llama": _sentencepiece_texts}.get(family)  # type: ignore[arg-type]
    if not read or not isinstance(eos, int) or not 0 <= eos < len(names):
        return None
    texts = read(_BETWEEN.join(names))
    if len(texts) != len(names):
        return None  # a name that is no UTF-8
    others = _not_normal(metadata, len(names))
    for token, kind in others.items():
        texts[token] = _text_of(names[token], kind)
    odd = tuple(token for token, text in enumerate(texts) if text is None) if None in texts else ()
    for token in odd:
        texts[token] = b""
    return TokenTable(cast("list[bytes]", texts), _special(names, others), odd, eos, family == "gpt2")


def ask_table(metadata: Mapping[str, Any], n_tokens: int, eos: int, token_bytes: Callable[[int], bytes]) -> TokenTable:
    """The same by llama.cpp's word, for tokenizers that `read_table` does not know.

    Args:
        metadata: the file's.
        n_tokens: size of the vocabulary.
        eos: a token that ends a generation.
        token_bytes: llama.cpp's bytes of a token.
    """
    texts = [token_bytes(token) for token in range(n_tokens)]
    return TokenTable(texts, _special(texts, _not_normal(metadata, n_tokens)), (), eos, False)


def _not_normal(metadata: Mapping[str, Any], n_tokens: int) -> dict[int, int]:
    """token → type of all that are not plain text."""
    kinds: Sequence[int] = metadata.get("tokenizer.ggml.token_type") or ()
    return {token: kind for token, kind in enumerate(kinds) if kind != _NORMAL} if len(kinds) == n_tokens else {}


def _special(names: Sequence[bytes], others: Mapping[int, int]) -> dict[str, int]:
    marks = (
        (names[token].decode("utf-8", "replace"), token, kind)
        for token, kind in others.items()
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    )
    return {
        name: token
        for name, token, kind in marks
        if len(name) > 1 and (kind != _USER_DEFINED or (name[0] == "<" and name[-1] == ">"))
    }


def _text_of(name: bytes, kind: int) -> bytes | None:
    if kind == _UNUSED:
        return b""
    if kind == _BYTE:  # <0x0A>
        try:
            return bytes.fromhex(name[3:5].decode("ascii"))
        except ValueError:
            return None
    return name


def _gpt2_texts(names: bytes) -> list[bytes | None]:
    """GPT-2 writes each byte as a printable character (openai/gpt-2, encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {b: b for b in plain}
    byte_of |= {256 + i: b for i, b in enumerate(b for b in range(256) if b not in byte_of)}
    # One translate over all names. What is not in the table has to stay no byte.
    beyond = {c: 0x100 for c in range(256) if c not in byte_of}
    parts = names.decode("utf-8", "surrogateescape").translate({**byte_of, **beyond}).split("\udcff")
    try:
        return [part.encode("latin-1") for part in parts]
    except UnicodeEncodeError:  # some name is not written so: a mark's, mostly
        return [_as_latin_1(part) for part in parts]


def _as_latin_1(text: str) -> bytes | None:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def _sentencepiece_texts(names: bytes) -> list[bytes | None]:
    return [*names.replace("▁".encode(), b" ").split(_BETWEEN)]
