"""The loop: rounds, guards, events, session, trace. It knows messages and tools; it does not know tokens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent
    from .approval import ApprovalRequest, Approvals, Decision, Remembered, exact_pattern
    from .errors import AgentError, ConfigError, HistoryError, LimitError, RoundLimitError, SessionFileError, TraceError
    from .events import (
        ApprovalAnswered,
        ApprovalAsked,
        CallBegun,
        CallFinished,
        CallStarted,
        Compaction,
        Event,
        GuardFired,
        ReasoningDelta,
        ResultCut,
        RoundFinished,
        RoundStarted,
        RunFinished,
        TextDelta,
    )
    from .guards import Guards
    from .history import check_history, trim_history
    from .limits import Limits
    from .memory import Memory
    from .openai_model import OpenAIModel
    from .redaction import Redaction
    from .replaying import Divergence, Replay, replay
    from .result import RunResult
    from .session import Session
    from .trace import Trace
    from .trace_folder import TraceFolder
    from .visibility import Bm25Selector, RoundView, ToolSelector

_HOME = {
    "Agent": "agent",
    "AgentError": "errors",
    "ApprovalAnswered": "events",
    "ApprovalAsked": "events",
    "ApprovalRequest": "approval",
    "Approvals": "approval",
    "Bm25Selector": "visibility",
    "CallBegun": "events",
    "CallFinished": "events",
    "CallStarted": "events",
    "Compaction": "events",
    "ConfigError": "errors",
    "Decision": "approval",
    "Divergence": "replaying",
    "Event": "events",
    "GuardFired": "events",
    "Guards": "guards",
    "HistoryError": "errors",
    "LimitError": "errors",
    "Limits": "limits",
    "Memory": "memory",
    "OpenAIModel": "openai_model",
    "ReasoningDelta": "events",
    "Redaction": "redaction",
    "Remembered": "approval",
    "Replay": "replaying",
    "ResultCut": "events",
    "RoundFinished": "events",
    "RoundLimitError": "errors",
    "RoundStarted": "events",
    "RoundView": "visibility",
    "RunFinished": "events",
    "RunResult": "result",
    "Session": "session",
    "SessionFileError": "errors",
    "TextDelta": "events",
    "ToolSelector": "visibility",
    "Trace": "trace",
    "TraceError": "errors",
    "TraceFolder": "trace_folder",
    "check_history": "history",
    "exact_pattern": "approval",
    "replay": "replaying",
    "trim_history": "history",
}
__all__ = [
    "Agent",
    "AgentError",
    "ApprovalAnswered",
    "ApprovalAsked",
    "ApprovalRequest",
    "Approvals",
    "Bm25Selector",
    "CallBegun",
    "CallFinished",
    "CallStarted",
    "Compaction",
    "ConfigError",
    "Decision",
    "Divergence",
    "Event",
    "GuardFired",
    "Guards",
    "HistoryError",
    "LimitError",
    "Limits",
    "Memory",
    "OpenAIModel",
    "ReasoningDelta",
    "Redaction",
    "Remembered",
    "Replay",
    "ResultCut",
    "RoundFinished",
    "RoundLimitError",
    "RoundStarted",
    "RoundView",
    "RunFinished",
    "RunResult",
    "Session",
    "SessionFileError",
    "TextDelta",
    "ToolSelector",
    "Trace",
    "TraceError",
    "TraceFolder",
    "check_history",
    "exact_pattern",
    "replay",
    "trim_history",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
