"""The loop: rounds, guards, events, session, trace. It knows messages and tools; it does not know tokens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent
    from .errors import AgentError, ConfigError, HistoryError, RoundLimitError, SessionFileError, TraceError
    from .events import (
        CallFinished,
        CallStarted,
        Event,
        GuardFired,
        ReasoningDelta,
        RoundFinished,
        RoundStarted,
        RunFinished,
        TextDelta,
    )
    from .history import check_history, trim_history
    from .openai_model import OpenAIModel
    from .result import RunResult
    from .session import Session
    from .trace import Trace

_HOME = {
    "Agent": "agent",
    "AgentError": "errors",
    "CallFinished": "events",
    "CallStarted": "events",
    "ConfigError": "errors",
    "Event": "events",
    "GuardFired": "events",
    "HistoryError": "errors",
    "OpenAIModel": "openai_model",
    "ReasoningDelta": "events",
    "RoundFinished": "events",
    "RoundLimitError": "errors",
    "RoundStarted": "events",
    "RunFinished": "events",
    "RunResult": "result",
    "Session": "session",
    "SessionFileError": "errors",
    "TextDelta": "events",
    "Trace": "trace",
    "TraceError": "errors",
    "check_history": "history",
    "trim_history": "history",
}
__all__ = [
    "Agent",
    "AgentError",
    "CallFinished",
    "CallStarted",
    "ConfigError",
    "Event",
    "GuardFired",
    "HistoryError",
    "OpenAIModel",
    "ReasoningDelta",
    "RoundFinished",
    "RoundLimitError",
    "RoundStarted",
    "RunFinished",
    "RunResult",
    "Session",
    "SessionFileError",
    "TextDelta",
    "Trace",
    "TraceError",
    "check_history",
    "trim_history",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
