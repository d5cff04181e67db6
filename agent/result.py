"""What a run comes to: the answer, how it ended, and everything it took. It knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .trace import Trace

STOP_REASONS = (
    "answer",  # the model answered
    "max_rounds",  # the cap on tool rounds was reached; it was asked for a final answer
    "repeat",  # it kept repeating a call; it was asked for a final answer
    "length",  # the token limit cut its reply; `cut` holds the reply as far as it got
    "empty",  # it said nothing twice (thinking only)
    "invalid_calls",  # it wrote calls that cannot be read, twice in a row
    "cancelled",  # agent.cancel()
)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run.

    answer: the text for the user. Empty only when `answered` is False.
    messages: the whole history, system prompt included, valid as input for a further request.
    stop_reason: one of STOP_REASONS.
    rounds: how many replies the model gave, the final one included.
    usage: OpenAI's `usage`, summed over the rounds (per round: trace records of type round_finished).
    cut: the raw text of a reply that the token limit cut; None otherwise. None of its calls was executed.
    answered: `answer` is the model's own whole reply. False after length, empty, invalid_calls and cancelled,
        and where a forced final reply held no text (then `answer` lists what the tools had returned).
    """

    answer: str
    messages: list[dict[str, Any]]
    stop_reason: str
    rounds: int
    usage: dict[str, Any]
    trace: Trace
    cut: str | None = None
    answered: bool = True

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
