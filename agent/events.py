"""What a run tells while it goes on, as frozen values. Nothing here knows a terminal, a file or a model.

A run is: (RoundStarted, deltas, RoundFinished, then per call CallStarted … CallFinished)*, RunFinished.
Events come in the order of time: with parallel calls, CallFinished comes as each call ends. GuardFired stands
where the loop steps in. The text deltas of a round add up to its message's content (a content of white space
only is not shown at all), the reasoning deltas to its reasoning_content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import RunResult


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A request goes to the model. `tool_choice` is what it carries (None: there are no tools)."""

    round: int
    tool_choice: Any = None


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking."""

    round: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the model's visible text. Whether the round also calls tools is known at its end only."""

    round: int
    text: str


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The reply is whole: the message as it goes into the history, and what the model said about the work."""

    round: int
    message: dict[str, Any]
    finish_reason: str
    invalid_tool_calls: tuple[dict[str, Any], ...] = ()
    raw_output: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call begins. `arguments` is the model's own JSON text."""

    round: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has its result. `executed` is False where the loop answered in the tool's place (see
    GuardFired).
    """

    round: int
    call_id: str
    name: str
    arguments: str
    content: str
    is_error: bool
    seconds: float
    executed: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardFired:
    """The loop stepped in.

    `guard` is one of repeat, max_rounds, empty, invalid_calls, unknown_tool, tool_choice, length;
    `step` says what was done: refused, masked, final_answer, retry, stopped.
    """

    round: int
    guard: str
    step: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of every run that was not broken off by its caller."""

    result: RunResult


Event = (
    RoundStarted | ReasoningDelta | TextDelta | RoundFinished | CallStarted | CallFinished | GuardFired | RunFinished
)
