"""What an engine and its generations are given, held against what they take. It loads nothing and generates nothing.

A person who mixes two things up (a text for tokens, a number for a file) reads what to write; Python's own error would
come later, from the thread that decodes for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .config import EngineConfig, SamplingParams
from .errors import EngineError
from .grammar import Grammar
from .values import Range, shown

_AT_LEAST_ONE = Range(1, whole=True)


def check_load(path: Any, config: Any) -> None:
    """Raise EngineError unless a model can be asked for so."""
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise EngineError(f"path is {shown(path)}; expected the path of a GGUF file, as a text or a pathlib.Path")
    _check_kind("config", config, EngineConfig)


def check_tokens(tokens: Any, n_vocab: int) -> None:
    """Raise EngineError unless these are tokens of a model that has so many; none at all pass."""
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Sequence):
        raise EngineError(f"tokens is {shown(tokens)}; expected a list of tokens, such as engine.tokenize(text) gives")
    for kind in set(map(type, tokens)):
        if kind is bool or not issubclass(kind, int):
            raise EngineError(f"tokens holds a {kind.__name__}; expected whole numbers from 0 to {n_vocab - 1}")
    if tokens and not (min(tokens) >= 0 and max(tokens) < n_vocab):
        wrong = next(t for t in tokens if not 0 <= t < n_vocab)
        raise EngineError(f"{shown(wrong)} is no token of this model; it has 0 to {n_vocab - 1}")


def check_generation(sampling: Any, grammar: Any, max_tokens: Any) -> None:
    """Raise EngineError unless a generation can be asked for so."""
    _check_kind("sampling", sampling, SamplingParams)
    _check_kind("grammar", grammar, Grammar)
    if max_tokens is not None and not _AT_LEAST_ONE.takes(max_tokens):
        raise EngineError(f"max_tokens must be {_AT_LEAST_ONE}, or None for no limit; got {shown(max_tokens)}")


def check_texts(pieces: Sequence[Any]) -> None:
    """Raise EngineError unless all of a prompt's pieces are texts."""
    if wrong := [piece for piece in pieces if not isinstance(piece, str)]:
        raise EngineError(f"a text to tokenize is {shown(wrong[0])}; expected a text, or a list of texts")


def _check_kind(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise EngineError(f"{name} is {shown(value)}; expected {kind.__name__}(…), or None")
