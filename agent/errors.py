"""Errors of the agent: what its caller did wrong, or asked to be told about. A tool's fault is a result.

AgentError
├── ConfigError        an Agent was built with something that cannot work
├── HistoryError       a list of messages that no model could be asked with
├── SessionFileError   a session file that cannot be read or written
├── TraceError         a trace file that cannot be read
└── LimitError         on_limit="raise": a cap of `Limits` was reached; carries the partial result
    └── RoundLimitError    the cap on tool rounds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import RunResult


class AgentError(Exception):
    """Root of every error that laploop.agent raises on purpose."""


class ConfigError(AgentError):
    """An Agent was built with something that cannot work (schema, tool name, number)."""


class HistoryError(AgentError):
    """Messages break the protocol: an unknown role, a call without its result, a result without its call."""


class SessionFileError(AgentError):
    """A session file is missing, damaged, or written by a version that this one does not know."""


class TraceError(AgentError):
    """A trace file is damaged, or written by a version that this one does not know."""


class LimitError(AgentError):
    """A cap of `Limits` was reached and the agent was told to raise (`on_limit="raise"`).

    `result` is the run so far: its messages are a valid history, its trace is complete.
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class RoundLimitError(LimitError):
    """The cap on tool rounds was reached."""
