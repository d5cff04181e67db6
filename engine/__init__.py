"""A GGUF in memory: load, tokenize, decode, sample, constrain, KV cache, hardware.

Knows tokens and text, not messages. Only `native` imports llama_cpp.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import EngineConfig, SamplingParams
    from .engine import Engine
    from .errors import BackendError, BadModelFileError, ContextError, EngineError, GrammarError, StateFileError
    from .gguf import GGUFFile, read_gguf
    from .grammar import Grammar
    from .sequence import Step, TokenLogprob

_HOME = {
    "BackendError": "errors",
    "BadModelFileError": "errors",
    "ContextError": "errors",
    "Engine": "engine",
    "EngineConfig": "config",
    "EngineError": "errors",
    "GGUFFile": "gguf",
    "Grammar": "grammar",
    "GrammarError": "errors",
    "SamplingParams": "config",
    "StateFileError": "errors",
    "Step": "sequence",
    "TokenLogprob": "sequence",
    "read_gguf": "gguf",
}
__all__ = [
    "BackendError",
    "BadModelFileError",
    "ContextError",
    "Engine",
    "EngineConfig",
    "EngineError",
    "GGUFFile",
    "Grammar",
    "GrammarError",
    "SamplingParams",
    "StateFileError",
    "Step",
    "TokenLogprob",
    "read_gguf",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
