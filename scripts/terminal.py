"""Events on a screen or in a pipe. It knows events and widths; it asks no model and runs no tool.

On a terminal: thinking dim, a line when a call starts and one when it ends, text as Markdown while it comes.
In a pipe: nothing but the answer on stdout, the call lines on stderr. Text of models and tools is untrusted:
control characters are made visible before a terminal sees them.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Protocol

from laploop.agent.events import (
    ApprovalAnswered,
    CallBegun,
    CallFinished,
    CallStarted,
    Compaction,
    Event,
    GuardFired,
    ReasoningDelta,
    ResultCut,
    RoundStarted,
    RunFinished,
    TextDelta,
)

if TYPE_CHECKING:
    from laploop.agent import RunResult
    from rich.console import Console
    from rich.status import Status

    from .markdown_stream import MarkdownStream

# C0 but tab and newline, DEL, C1; the marks that reorder text (Unicode's bidirectional controls); and halves of
# surrogate pairs, which no stream can encode.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


MAX_LINE_CHARS = 2_000


def clean(text: str) -> str:
    """The text with control characters as visible escapes; carriage returns are dropped. Works piece by
    piece.
    """
    return _CONTROL.sub(lambda m: _visible(m.group()), text.replace("\r", ""))


def _visible(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def json_text(value: object) -> str:
    """JSON for stdout, with no raw control character in it: inside strings they can be written as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _CONTROL.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def call_text(name: str, arguments: str) -> str:
    """A call as a person reads it: `get_weather(city="北京")`; what is no object stays as it is."""
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{k}={json.dumps(v, ensure_ascii=False)}' for k, v in values.items())})"


def one_line(text: str) -> str:
    """The text on one line, clean; no more of it than the widest terminal shows."""
    return clean(" ".join(text[:MAX_LINE_CHARS].split()))


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
        self._status: Status | None = None
        self._markdown: MarkdownStream | None = None
        self._in_thinking = False
        self._running: dict[str, str] = {}  # calls that have no result yet: id → name

    def show(self, event: Event) -> None:
        """Show one event, and a turning spinner that says what goes on where nothing else moves."""
        self._stop_status()
        if isinstance(event, RoundStarted):
            self._running.clear()
            self._start_status("reading …")
        elif isinstance(event, CallBegun):
            self.close()
            self._start_status(f"writing a call to {one_line(event.name)} …")
        else:
            self._show(event)
        if isinstance(event, (CallStarted, CallFinished)):
            self._running.pop(event.call_id, None)
            if isinstance(event, CallStarted):
                self._running[event.call_id] = one_line(event.name)
            if self._running:
                self._start_status(f"running {', '.join(self._running.values())} …")

    def _show(self, event: Event) -> None:
        if isinstance(event, ReasoningDelta):
            self._show_thinking(event.text)
        elif isinstance(event, TextDelta):
            self._end_thinking()
            self._show_text(event.text)
        else:
            self.close()
            show_line(self._console, event)

    def close(self) -> None:
        """Leave the screen in order, wherever the events stopped."""
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


class PipeView:
    """Call lines on a console of stderr; the answer, and nothing else, on stdout when the run ends.

    Not earlier, because only the end of a round tells whether its text was the answer.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, RunFinished):
            if event.result.answer:
                sys.stdout.write(clean(event.result.answer).strip("\n") + "\n")
                sys.stdout.flush()
        else:
            show_line(self._console, event)

    def close(self) -> None:
        """Nothing is ever left open."""


class ProgressView:
    """Call lines only: for --json, whose stdout belongs to the one object."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)

    def show(self, event: Event) -> None:
        """Show one event."""
        show_line(self._console, event)

    def close(self) -> None:
        """Nothing is ever left open."""


def show_line(console: Console, event: Event) -> None:
    """The line of a call's start or end, or of a guard, cut to the console's width; others have none."""
    from rich.text import Text

    if isinstance(event, CallStarted):
        line = Text(f"→ {one_line(call_text(event.name, event.arguments))}", style="cyan")
    elif isinstance(event, CallFinished):
        mark, style = ("✗", "red") if event.is_error else ("←", "green")
        head = f"{mark} {one_line(event.name)} {event.seconds:.1f} s: "
        line = Text(head, style=style).append(one_line(event.content), style="default")
    elif isinstance(event, GuardFired) and event.step != "refused":
        line = Text(f"! {event.guard}, {event.step}: {one_line(event.detail)}", style="yellow")
    elif isinstance(event, (ApprovalAnswered, ResultCut, Compaction)) and (said := _remark(event)):
        line = Text(f"! {said}", style="yellow")
    else:
        return
    console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _remark(event: ApprovalAnswered | ResultCut | Compaction) -> str:
    """One line for what was done beside the calls, "" where there is nothing to say."""
    if isinstance(event, ResultCut):
        return f"result cut: {len(event.shown):,} of {event.n_chars:,} characters go to the model"
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
