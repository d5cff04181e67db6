"""The state of one run: its messages, its counts, and the ways it can end. The loop moves it; it never loops
itself.

Messages are only ever appended (but for compaction, which replaces whole rounds), and a reply with calls only together
with all its results, so `messages` is a valid history at every moment, also when the caller breaks the run off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laploop.models import Model
from laploop.tools import ToolRegistry, ToolResult

from .calls import Call, CallBatch
from .choice import ToolChoice
from .events import Event, ResultCut, RunFinished
from .guards import Guards
from .limits import Limits
from .observation import fit_results
from .prompts import Texts
from .result import RunResult, UsageSum
from .stop import Stop
from .tokens import TokenCounter
from .trace import Trace

if TYPE_CHECKING:
    from .approval import Approvals
    from .memory import Memory
    from .visibility import Visible

MAX_OBSERVED_CHARS = 500  # of each result, where they stand in for an answer that the model did not give


@dataclass(frozen=True, slots=True)
class Settings:
    """What an Agent was told once, and holds for each of its runs."""

    limits: Limits
    raise_on_limit: bool
    max_parallel: int
    tool_choice: ToolChoice
    request: dict[str, Any]  # sampling fields that were set; the others stay away
    guards: Guards
    memory: Memory


@dataclass(eq=False)  # a run is itself
class Run:
    """One question on its way to an answer."""

    model: Model
    tools: ToolRegistry
    settings: Settings
    messages: list[dict[str, Any]]
    words: Texts
    approvals: Approvals
    visible: Visible | None = None
    trace: Trace = field(default_factory=Trace)
    stop: Stop = field(default_factory=Stop)
    usage: UsageSum = field(default_factory=UsageSum)
    rounds: int = 0
    partial: str = ""  # text of the reply that is being streamed
    denied: set[str] = field(default_factory=set)  # tools that a person, or the policy, said no to
    summary: str = ""  # what stands in the history for rounds that are no longer there

    def __post_init__(self) -> None:
        self.counter = TokenCounter(self.model, self.tools.to_openai(), self._note_count)
        is_user = [m.get("role") == "user" for m in self.messages]
        self.i_goal = len(is_user) - 1 - is_user[::-1].index(True) if any(is_user) else len(is_user) - 1
        self.goal = self.messages[self.i_goal]  # the question: it stays, whatever is compacted
        self._open: tuple[dict[str, Any], CallBatch] | None = None

    def _note_count(self, key: str, n: int) -> None:
        self.trace.add("tokens_counted", key=key, n=n)

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

    def close_calls(self) -> Iterator[Event]:
        """Append the opened reply and one result per call, in order; what is longer than its budget is cut, and what is
        not done says so. The history is whole before the first event.
        """
        if self._open is None:
            return
        message, batch = self._open
        self._open = None
        done = [
            result or ToolResult(self.text_of_unfinished(call), is_error=True)
            for call, result in zip(batch.calls, batch.results, strict=True)
        ]
        texts, memory = [result.content for result in done], self.settings.memory
        shown = fit_results(texts, self.counter, memory.per_result(self.counter), memory.per_round(self.counter))
        self.messages.append(message)
        for call, text in zip(batch.calls, shown, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        for call, whole, text in zip(batch.calls, texts, shown, strict=True):
            if text is not whole:
                yield ResultCut(self.rounds, call.id, len(whole), text)

    def text_of_unfinished(self, call: Call) -> str:
        """The result of a call that was not waited for."""
        words = self.words.out_of_time if self.stop.reason == "timeout" else self.words.cancelled_call
        return words.format(name=call.name)

    def stop_call(self, call_id: str) -> bool:
        """Give up one of the calls that are being executed; False if it is none."""
        return self._open is not None and self._open[1].stop_call(call_id)

    def settle(self) -> None:
        """Bring the history into order after a run was cancelled or broken off, at whatever point."""
        for event in self.close_calls():
            self.trace.add_event(event)
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
        return self.finish_broken_off("cancelled")

    def finish_broken_off(self, stop_reason: str) -> RunFinished:
        """End a run in the middle of whatever it does; the text of a reply that had begun is kept."""
        text = self.partial
        self.settle()
        return self.finish(stop_reason, text, answered=False)

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
        seen = self._observations()
        answer = "\n".join([self.words.no_final_answer, *seen]) if seen else self.words.no_final_answer_nor_results
        self.messages.append({"role": "assistant", "content": answer})
        return self.finish(stop_reason, answer, answered=False)

    def _observations(self) -> Sequence[str]:
        """What the tools themselves returned, each once: errors and refusals were meant for the model."""
        seen = (
            f"- {call['name']}({call['arguments']}): {_beginning(call['content'])}"
            for call in self.trace.of_type("call_finished")
            if call["executed"] and not call["is_error"]
        )
        return list(dict.fromkeys(seen))


def _beginning(text: str) -> str:
    return text if len(text) <= MAX_OBSERVED_CHARS else text[:MAX_OBSERVED_CHARS] + " …"
