"""What a run comes to: the answer, how it ended, and everything it took. It knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .trace import Trace

STOP_REASONS = (
    "answer",  # the model answered
    # A cap was reached (Limits); a final answer was asked for.
    "max_rounds",
    "max_calls",
    "max_tokens",
    "timeout",  # or a reply was broken off: then `answered` is False
    # A guard's ladder came to its end (guards.py); a final answer was asked for.
    "repeat",  # the same call again and again
    "cycle",  # the same few calls in turn
    "same_error",  # the same error of a tool again and again
    "no_progress",  # rounds that brought nothing new
    "unknown_tool",  # the same tool that does not exist
    "arguments",  # the same arguments that do not fit
    "invalid_calls",  # calls that cannot be read, twice in a row
    "tool_choice",  # calls although no call was possible
    "echo",  # the question again in the place of an answer
    # The run ended without an answer.
    "length",  # the token limit cut its reply; `cut` holds the reply as far as it got
    "empty",  # it said nothing twice (thinking only)
    "cancelled",  # agent.cancel()
)

_SHOWN_CHARS = 100  # of an answer, in a repr


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run.

    answer: the text for the user. Empty only when `answered` is False.
    messages: the history, system prompt included, valid as input for a further request. Whole, unless a Compaction
        replaced its beginning and ResultCut a result; the trace has all of it in any case.
    stop_reason: one of STOP_REASONS.
    rounds: how many replies the model gave, the final one included.
    usage: OpenAI's `usage`, summed over the rounds (per round: trace records of type round_finished).
    cut: the raw text of a reply that the token limit cut; None otherwise. None of its calls was executed.
    answered: `answer` is the model's own whole reply. False after length, empty and cancelled, after a reply that
        timeout broke off, and where a forced final reply held no text (then `answer` lists what the tools had
        returned).
    """

    answer: str
    messages: list[dict[str, Any]]
    stop_reason: str
    rounds: int
    usage: dict[str, Any]
    trace: Trace
    cut: str | None = None
    answered: bool = True

    def __repr__(self) -> str:
        text = " ".join(self.answer[: 2 * _SHOWN_CHARS].split())
        text = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
        how = f"{self.stop_reason}; rounds: {self.rounds}, calls: {len(self.calls)}"
        return f"<RunResult {text!r} ({how}{'' if self.answered else '; not answered'})>"

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every call that has a result, in order of time: the call_finished records of the trace."""
        return self.trace.of_type("call_finished")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able copy, as `laploop --json` prints it."""
        return {
            "answer": self.answer,
            "answered": self.answered,
            "stop_reason": self.stop_reason,
            "rounds": self.rounds,
            "usage": self.usage,
            "cut": self.cut,
            "messages": self.messages,
            "trace": self.trace.records,
        }


@dataclass
class UsageSum:
    """Adds up `usage` objects, nested counts included; counts that a model does not report stay absent."""

    total: dict[str, Any] = field(default_factory=dict)

    def add(self, usage: Mapping[str, Any] | None) -> None:
        """Add one round's usage (None: the model gave none)."""
        _add_counts(self.total, usage or {})


def _add_counts(total: dict[str, Any], usage: Mapping[str, Any]) -> None:
    for key, value in usage.items():
        if isinstance(value, Mapping):
            _add_counts(total.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = total.get(key, 0) + value
