"""The errors of `laploop.engine`: one tree, each class named for what went wrong.

Knows nothing of messages, tools or downloads. A message is one line: what was wrong, what was expected,
the valid choices, and the way out.
"""

from __future__ import annotations


class EngineError(Exception):
    """Something went wrong between a model file and a generated token."""


class BadModelFileError(EngineError):
    """The file is not a GGUF that can be loaded: pointer, page, truncated, damaged, or of another version."""


class StateFileError(EngineError):
    """A saved KV state cannot be used: damaged, of another model, build or cache type, or not readable."""


class ContextError(EngineError):
    """The tokens do not fit the context window."""


class GrammarError(EngineError):
    """A grammar or JSON Schema cannot be compiled, or nothing matches it."""


class BackendError(EngineError):
    """The native library failed: a load, an allocation or a decode."""
