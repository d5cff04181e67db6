"""Events as lines: a call's start and end, a guard, an approval, a cut. It knows events, no model and no tool.

Text of models and tools is untrusted: control characters are made visible before a terminal sees them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laploop.agent.events import (
    ApprovalAnswered,
    CallFinished,
    CallStarted,
    Compaction,
    Event,
    GuardFired,
    ResultCut,
)

from .visible import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SAID_ELSEWHERE = ("refused", "stopped")  # by the call's own result; by the sentence on a run without an answer


class CallLines:
    """Prints the lines on a console. The last result of a round waits for the event behind it, which may be its cut:
    both are one line then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: set[str] = set()
        self._held: CallFinished | None = None

    def show(self, event: Event) -> None:
        """Show an event that has a line; the others end the wait of the last result."""
        held, self._held = self._held, None
        if held is not None:
            is_its_cut = isinstance(event, ResultCut) and event.call_id == held.call_id
            self._print(_result_line(held, event if is_its_cut and isinstance(event, ResultCut) else None))
            if is_its_cut:
                return
        if isinstance(event, CallStarted):
            self._running.add(event.call_id)
        elif isinstance(event, CallFinished):
            self._running.discard(event.call_id)
            if not self._running:
                self._held = event
                return
        self._print(line_of(event))

    def close(self) -> None:
        """Print what waits."""
        held, self._held = self._held, None
        self._running.clear()
        if held is not None:
            self._print(_result_line(held))

    def _print(self, line: Text | None) -> None:
        if line is not None:
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def line_of(event: Event) -> Text | None:
    """The line of an event; None for those that have none."""
    from rich.text import Text

    if isinstance(event, CallStarted):
        return Text(f"→ {one_line(call_text(event.name, event.arguments))}", style="cyan")
    if isinstance(event, CallFinished):
        return _result_line(event)
    if isinstance(event, GuardFired) and event.step not in _SAID_ELSEWHERE:
        return Text(f"! {event.guard}, {event.step}: {one_line(event.detail)}", style="yellow")
    if isinstance(event, (ApprovalAnswered, ResultCut, Compaction)) and (said := _remark(event)):
        return Text(f"! {said}", style="yellow")
    return None


def _result_line(event: CallFinished, cut: ResultCut | None = None) -> Text:
    from rich.text import Text

    mark, style = ("✗", "red") if event.is_error else ("←", "green")
    head = f"{mark} {one_line(event.name)} {event.seconds:.1f} s"
    if cut is not None:
        head += f", {_cut_text(cut)}"
    return Text(f"{head}: ", style=style).append(one_line(event.content), style="default")


def _cut_text(event: ResultCut) -> str:
    return f"cut to {len(event.shown):,} of {event.n_chars:,} characters"


def _remark(event: ApprovalAnswered | ResultCut | Compaction) -> str:
    """One line for what was done beside the calls, "" where there is nothing to say."""
    if isinstance(event, ResultCut):
        return f"a result was {_cut_text(event)}"
    if isinstance(event, Compaction):
        about = "about " if event.estimated else ""
        return f"earlier messages summarized: {about}{event.n_tokens_before:,} → {event.n_tokens_after:,} tokens"
    who = {
        "nobody": "there is no terminal to ask on; see --approve",
        "policy": "by policy",
        "remembered": "as answered before",
    }
    if event.allowed or event.by not in who:
        return ""  # whoever was asked knows
    return f"not allowed: {one_line(event.name)} ({who[event.by]})"


def call_text(name: str, arguments: str) -> str:
    """A call as a person reads it: `get_weather(city="北京")`; what is no object stays as it is."""
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{k}={json.dumps(v, ensure_ascii=False)}' for k, v in values.items())})"
