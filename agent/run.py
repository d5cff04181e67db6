"""The state of one run: its messages, its counts, and the ways it can end. The loop moves it; it never loops
itself.

Messages are only ever appended, and a reply with calls only together with all its results, so `messages` is a
valid history at every moment, also when the caller breaks the run off.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from laploop.models import Model
from laploop.tools import ToolRegistry, ToolResult

from .calls import CallBatch
from .choice import ToolChoice
from .events import RunFinished
from .prompts import Texts
from .result import RunResult, UsageSum
from .trace import Trace

MAX_OBSERVED_CHARS = 500  # of each result, where they stand in for an answer that the model did not give


@dataclass(frozen=True, slots=True)
class Settings:
    """What an Agent was told once, and holds for each of its runs."""

    max_rounds: int = 5
    raise_on_limit: bool = False
    max_parallel: int = 8
    tool_choice: ToolChoice = "auto"
    request: dict[str, Any] = field(default_factory=dict)  # sampling fields that were set; the others stay away


@dataclass
class Run:
    """One question on its way to an answer."""

    model: Model
    tools: ToolRegistry
    settings: Settings
    messages: list[dict[str, Any]]
    words: Texts
    trace: Trace = field(default_factory=Trace)
    cancelled: threading.Event = field(default_factory=threading.Event)
    usage: UsageSum = field(default_factory=UsageSum)
    rounds: int = 0
    partial: str = ""  # text of the reply that is being streamed
    n_given: int = 0  # messages that were there before the first reply

    def __post_init__(self) -> None:
        self.n_given = len(self.messages)
        self._open: tuple[dict[str, Any], CallBatch] | None = None

    # --- asking

    def begin_round(self) -> None:
        """Count a request."""
        self.rounds += 1
        self.partial = ""

    def request(self, choice: ToolChoice | None) -> dict[str, Any]:
        """The fields of a request beside its messages; tools are always the same list, in the same order."""
        fields = dict(self.settings.request)
        if choice is not None:
            fields.update(tools=self.tools.to_openai(), tool_choice=choice)
        return fields

    def call_ids(self) -> set[str]:
        """The ids of all calls in the history."""
        return {call["id"] for m in self.messages for call in m.get("tool_calls") or []}

    # --- appending

    def say(self, text: str) -> None:
        """The loop's own word to the model, as a user message."""
        self.messages.append({"role": "user", "content": text})

    def open_calls(self, message: dict[str, Any], batch: CallBatch) -> CallBatch:
        """Remember a reply whose calls are being executed; it enters the history with close_calls."""
        self._open = (message, batch)
        return batch

    def close_calls(self) -> None:
        """Append the opened reply and one result per call, in order; what is not done yet says so."""
        if self._open is None:
            return
        message, batch = self._open
        self._open = None
        self.messages.append(message)
        for call, result in zip(batch.calls, batch.results, strict=True):
            done = result or ToolResult(self.words.cancelled_call.format(name=call.name), is_error=True)
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": done.content})

    def settle(self) -> None:
        """Bring the history into order after a run was cancelled or broken off, at whatever point."""
        self.close_calls()
        if self.partial.strip():
            self.messages.append({"role": "assistant", "content": self.partial})
        self.partial = ""

    # --- ending

    def result(self, stop_reason: str, answer: str, *, answered: bool = True, cut: str | None = None) -> RunResult:
        """The result as of now."""
        return RunResult(
            answer=answer,
            messages=list(self.messages),
            stop_reason=stop_reason,
            rounds=self.rounds,
            usage=self.usage.total,
            trace=self.trace,
            cut=cut,
            answered=answered,
        )

    def finish(self, stop_reason: str, answer: str, *, answered: bool = True, cut: str | None = None) -> RunFinished:
        """End the run: the last record of the trace, and the last event."""
        result = self.result(stop_reason, answer, answered=answered, cut=cut)
        self.trace.add(
            "run_finished",
            stop_reason=stop_reason,
            answer=answer,
            answered=answered,
            cut=cut,
            rounds=self.rounds,
            usage=self.usage.total,
        )
        return RunFinished(result)

    def finish_cancelled(self) -> RunFinished:
        """End a cancelled run with what there is."""
        text = self.partial
        self.settle()
        return self.finish("cancelled", text, answered=False)

    def finish_cut(self, message: dict[str, Any], raw: str | None, has_calls: bool) -> RunFinished:
        """End a run whose reply was cut. Its calls leave the history, and a note stands where they or the
        text were.
        """
        text = message.get("content") or ""
        kept = {k: v for k, v in message.items() if k != "tool_calls"}
        if has_calls or not text.strip():
            kept["content"] = f"{text}\n{self.words.cut_calls}".strip()
        self.messages.append(kept)
        return self.finish("length", text, answered=False, cut=raw if raw is not None else text)

    def finish_without_text(self, stop_reason: str) -> RunFinished:
        """End a run whose forced final reply held no text: what the tools returned stands in for it, marked
        as such.
        """
        answer = "\n".join([self.words.no_final_answer, *self._observations()])
        self.messages.append({"role": "assistant", "content": answer})
        return self.finish(stop_reason, answer, answered=False)

    def _observations(self) -> Sequence[str]:
        calls = {c["id"]: c["function"] for m in self.messages for c in m.get("tool_calls") or []}
        lines = []
        for message in self.messages[self.n_given :]:
            if message["role"] == "tool":
                function = calls[message["tool_call_id"]]
                content = message["content"]
                shown = content if len(content) <= MAX_OBSERVED_CHARS else content[:MAX_OBSERVED_CHARS] + " …"
                lines.append(f"- {function['name']}({function['arguments']}): {shown}")
        return lines
