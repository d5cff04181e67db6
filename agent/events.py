"""What a run tells while it goes on, as frozen values. Nothing here knows a terminal, a file or a model.

A run is: (RoundStarted, deltas and CallBegun, RoundFinished, then per call CallStarted … CallFinished)*, RunFinished.
Events come in the order of time: with parallel calls, CallFinished comes as each call ends. GuardFired stands
where the loop steps in, ApprovalAsked and ApprovalAnswered before the calls of a round, ResultCut behind them,
Compaction before a round. The text deltas of a round add up to its message's content (a content of white space
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
class CallBegun:
    """The model has begun to write a call of this tool. For those who watch: it may still turn out to be none."""

    round: int
    name: str


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The reply is whole: the message as it goes into the history, and what the model said about the work.
    `prompt_sha256` is of the rendered prompt, where the model is in this process."""

    round: int
    message: dict[str, Any]
    finish_reason: str
    invalid_tool_calls: tuple[dict[str, Any], ...] = ()
    raw_output: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    prompt_sha256: str | None = None


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
    GuardFired). `fault` is ToolResult's: what ended the call, where it was not the function itself.
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
    fault: str = ""


@dataclass(frozen=True, slots=True)
class GuardFired:
    """The loop stepped in.

    `guard` is one of repeat, cycle, same_error, no_progress, unknown_tool, arguments, invalid_calls, tool_choice,
    max_rounds, max_calls, max_tokens, timeout, empty, echo, announced, length; `step` says what was done: refused
    (a call), retry (asked again), nudged, masked (a tool, for one reply), calls_masked, final_answer (asked for),
    stopped.
    """

    round: int
    guard: str
    step: str
    detail: str


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call waits for a person's yes. `arguments` is the JSON text of exactly what would be run."""

    round: int
    call_id: str
    name: str
    arguments: str
    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """Whether a call may run, and who said so: user, remembered, policy, or nobody (there is no one to ask).

    `arguments` is the JSON text that the user put in the place of the model's; None if they stay.
    """

    round: int
    call_id: str
    name: str
    allowed: bool
    by: str
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class ResultCut:
    """A result was longer than its budget. `shown` stands in the history; CallFinished has the whole."""

    round: int
    call_id: str
    n_chars: int
    shown: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """Earlier messages were replaced by a summary.

    `by` is "model", or "loop" where the model's summary could not be had (`detail` says why). Counts are of the whole
    prompt, in tokens; `estimated` where the model cannot count.
    """

    round: int
    n_tokens_before: int
    n_tokens_after: int
    n_messages_replaced: int
    summary: str
    by: str = "model"
    detail: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of every run that was not broken off by its caller."""

    result: RunResult


Event = (
    RoundStarted
    | ReasoningDelta
    | TextDelta
    | CallBegun
    | RoundFinished
    | CallStarted
    | CallFinished
    | GuardFired
    | ApprovalAsked
    | ApprovalAnswered
    | ResultCut
    | Compaction
    | RunFinished
)
