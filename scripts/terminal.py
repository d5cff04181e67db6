"""Events on a screen or in a pipe. It knows events and widths; it asks no model and runs no tool.

On a terminal: thinking dim, a line when a call starts and one when it ends, text as Markdown while it comes.
In a pipe: nothing but the answer on stdout, the call lines on stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from laploop.agent.events import (
    CallBegun,
    CallFinished,
    CallStarted,
    Event,
    ReasoningDelta,
    RoundStarted,
    RunFinished,
    TextDelta,
)

from .call_lines import CallLines
from .visible import clean, one_line

if TYPE_CHECKING:
    from laploop.agent import RunResult
    from rich.console import Console
    from rich.status import Status

    from .markdown_stream import MarkdownStream


class View(Protocol):
    """Something that events are shown on."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def close(self) -> None:
        """Leave the screen in order, wherever the events stopped."""


def make_view() -> View:
    """The view that fits stdout."""
    from rich.console import Console

    if sys.stdout.isatty():
        return TerminalView(Console(highlight=False))
    return PipeView(Console(stderr=True, highlight=False))


class TerminalView:
    """Everything on one console, as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = CallLines(console)
        self._status: Status | None = None
        self._markdown: MarkdownStream | None = None
        self._in_thinking = False
        self._running: dict[str, str] = {}  # calls that have no result yet: id → name

    def show(self, event: Event) -> None:
        """Show one event, and a turning spinner that says what goes on where nothing else moves."""
        self._stop_status()
        if not isinstance(event, (ReasoningDelta, TextDelta)):
            self._close_text()
        self._lines.show(event)
        if isinstance(event, ReasoningDelta):
            self._show_thinking(event.text)
        elif isinstance(event, TextDelta):
            self._end_thinking()
            self._show_text(event.text)
        elif isinstance(event, RoundStarted):
            self._running.clear()
            self._start_status("reading …")
        elif isinstance(event, CallBegun):
            self._start_status(f"writing a call to {one_line(event.name)} …")
        elif isinstance(event, (CallStarted, CallFinished)):
            self._running.pop(event.call_id, None)
            if isinstance(event, CallStarted):
                self._running[event.call_id] = one_line(event.name)
            if self._running:
                self._start_status(f"running {', '.join(self._running.values())} …")

    def close(self) -> None:
        """Leave the screen in order, wherever the events stopped."""
        self._close_text()
        self._lines.close()

    def _close_text(self) -> None:
        self._stop_status()
        self._end_thinking()
        if self._markdown is not None:
            self._markdown.close()
            self._markdown = None

    def _show_thinking(self, text: str) -> None:
        from rich.text import Text

        shown = clean(text) if self._in_thinking else clean(text).lstrip()
        if shown:
            self._in_thinking = True
            self._console.print(Text(shown, style="dim"), end="", soft_wrap=True)

    def _end_thinking(self) -> None:
        if self._in_thinking:
            self._console.print()
        self._in_thinking = False

    def _show_text(self, text: str) -> None:
        from .markdown_stream import MarkdownStream

        if self._markdown is None:
            self._markdown = MarkdownStream(self._console)
        self._markdown.feed(clean(text))

    def _start_status(self, text: str) -> None:
        from rich.text import Text

        line = Text(text, no_wrap=True, overflow="ellipsis")  # more than one could not be taken back in a narrow window
        self._status = self._console.status(line, spinner="dots", spinner_style="dim")
        self._status.start()

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class ProgressView:
    """Call lines only: for --json, whose stdout belongs to the one object.

    Args:
        console: where they go; None for stderr.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._lines = CallLines(console or Console(stderr=True, highlight=False))

    def show(self, event: Event) -> None:
        """Show one event."""
        self._lines.show(event)

    def close(self) -> None:
        """Show what waits."""
        self._lines.close()


class PipeView(ProgressView):
    """Call lines, and the answer, and nothing else, on stdout when the run ends.

    Not earlier, because only the end of a round tells whether its text was the answer.
    """

    def show(self, event: Event) -> None:
        """Show one event."""
        super().show(event)
        if isinstance(event, RunFinished) and event.result.answer:
            sys.stdout.write(clean(event.result.answer).strip("\n") + "\n")
            sys.stdout.flush()


def why_no_answer(result: RunResult) -> str:
    """One sentence for a run that ended without an answer of the model's own, and the way out."""
    return {
        "length": "the reply was cut at the token limit; raise it with -n, or the context with -c",
        "empty": "the model gave no text; ask again, or use --reasoning off or another model",
        "echo": "the model only repeated the question; ask in another way, or use another model",
        "invalid_calls": "the model wrote tool calls that cannot be read; ask again, or use another model",
        "max_rounds": "the model gave no final answer within the tool rounds; raise --max-rounds",
        "max_calls": "the model gave no final answer within the calls that it may make; raise --max-calls",
        "max_tokens": "the model gave no final answer within the tokens that it may generate",
        "timeout": "the time for this question was over before there was an answer; raise --timeout",
        "repeat": "the model only repeated the same call; ask in another way, or use another model",
        "cycle": "the model only repeated the same calls; ask in another way, or use another model",
        "same_error": "a tool failed again and again, and the model gave no final answer; its errors stand above",
        "no_progress": "the calls brought nothing new, and the model gave no final answer; ask in another way",
        "unknown_tool": "the model called a tool that does not exist; ask again, or use another model",
        "arguments": "the model called a tool with arguments that do not fit; ask again, or use another model",
        "tool_choice": "the model called tools that it may not call; ask again, or use another model",
        "cancelled": "stopped before there was an answer",
    }[result.stop_reason]
