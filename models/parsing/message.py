"""The message in the making: what was understood so far, as deltas and as a whole.

Holds white space back until something visible follows it, and looks for stop texts. Does not know how the text was
marked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .call_text import Call
from .stop_texts import StopTexts

Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """What the raw text said.

    Args:
        message: OpenAI assistant message: role, content (None beside calls without text), and, where there are any,
            reasoning_content and tool_calls (arguments as a JSON string).
        finish_reason: "stop", "length" or "tool_calls"; "length" wins.
        invalid_tool_calls: calls that cannot be run, each {name, arguments, error, raw}.
    """

    message: dict[str, Any]
    finish_reason: str
    invalid_tool_calls: list[dict[str, Any]] = field(default_factory=list)


def new_call_id(length: int | None = None) -> str:
    """An id as OpenAI's calls have it; with a length, one of so many letters and digits."""
    return uuid.uuid4().hex[:length] if length else "call_" + uuid.uuid4().hex[:24]


class Draft:
    """Collects reasoning, content and calls in the order in which they are understood.

    Args:
        stop: texts that end the content, across any split; then `stopped` is true.
        new_call_id: makes the id of each call.
    """

    def __init__(self, stop: Sequence[str] = (), new_call_id: Callable[[], str] = new_call_id) -> None:
        self.stopped = False
        # Line feeds in front of the first content belong to the marks before it, not to the text.
        self.drop_line_feeds = False
        self.starts_line = True  # whether content that came now would begin a line
        self._new_call_id = new_call_id
        self._stop = StopTexts(tuple(stop)) if stop else None
        self._deltas: list[Delta] = []
        self._reasoning: list[str] = []
        self._line_feeds: list[str] = []  # of the reasoning, counted only if text follows
        self._in_thought = False  # whether the present thought has text
        self.has_content = False  # whether visible text was added
        self._interrupted = False  # whether something else came behind the content: text that follows is a new line
        self._content: list[str] = []
        self._space: list[str] = []  # of the content, counted only if text follows
        self._calls: list[dict[str, Any]] = []
        self._invalid: list[dict[str, Any]] = []

    @property
    def says_something(self) -> bool:
        """Whether there is content, a call, or a call that cannot be run."""
        return bool(self.has_content or self._calls or self._invalid)

    def take(self) -> list[Delta]:
        """The deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def add_reasoning(self, text: str) -> None:
        """Reasoning; line feeds around it do not count."""
        if not self._in_thought:
            text = text.lstrip("\n")
        body = text.rstrip("\n")
        if not body:
            self._line_feeds.append(text)
            return
        body, self._line_feeds = "".join(self._line_feeds) + body, [text[len(body) :]]
        self._in_thought = True
        self._reasoning.append(body)
        self._deltas.append({"reasoning_content": body})

    def end_reasoning(self) -> None:
        """A thought is over; a further one will begin on a line of its own."""
        self._line_feeds = ["\n"] if self._reasoning else []
        self._in_thought = False

    def add_text(self, text: str) -> None:
        """Content."""
        body = text.rstrip()
        if not body:
            self._space.append(text)
            self.starts_line = self.starts_line or "\n" in text
            return
        space = text[len(body) :]
        body = "".join(self._space) + body
        if self._interrupted and "\n" not in body[: len(body) - len(body.lstrip())]:
            body = "\n" + body
        self._interrupted = False
        if not self.has_content:
            body = body.lstrip() if self._calls else body.lstrip("\n") if self.drop_line_feeds else body
        self._space = [space]
        self.starts_line = "\n" in space or bool(self._calls)
        self.has_content = True
        self._emit(body)

    def end_text(self) -> None:
        """Something else than content begins. One line feed in front of it belongs to its marks, by the templates."""
        if self.has_content and not self._calls:
            space = "".join(self._space)
            self._emit(space[:-1] if space.endswith("\n") else space)
        self._flush_maybe_stop()
        self._interrupted = self.has_content
        self._space = []
        self.starts_line = True

    def add_call(self, call: Call) -> None:
        """A whole call, announced at once: its head first, then its arguments."""
        self.end_text()
        index, call_id = len(self._calls), call.id
        if not call_id or any(call_id == earlier["id"] for earlier in self._calls):
            call_id = self._new_call_id()
        function = {"name": call.name, "arguments": call.arguments}
        self._calls.append({"id": call_id, "type": "function", "function": function})
        head = {"index": index, "id": call_id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        self._deltas.append({"tool_calls": [head]})
        self._deltas.append({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]})

    def add_invalid(self, name: str | None, arguments: str, error: str, raw: str) -> None:
        """A call that cannot be run."""
        self._invalid.append({"name": name, "arguments": arguments.strip(), "error": error, "raw": raw})

    def finish(self) -> None:
        """The output is over: white space at its end counts where it is not only what stands between calls."""
        if self.stopped:
            return
        if not self._calls and self.has_content:
            self._emit("".join(self._space))
        self._space = []
        self._flush_maybe_stop()

    def result(self, finish_reason: str) -> ParsedOutput:
        """The whole message."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if self._calls else "")}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [{**call, "function": dict(call["function"])} for call in self._calls]
        if finish_reason != "length":
            finish_reason = "tool_calls" if self._calls else "stop"
        return ParsedOutput(message, finish_reason, list(self._invalid))

    def _emit(self, text: str) -> None:
        """Add content as far as it is certain that no stop text begins in it."""
        if self.stopped or not text:
            return
        if self._stop:
            text = self._stop.feed(text)
            self.stopped = self._stop.found
        self._put(text)

    def _flush_maybe_stop(self) -> None:
        if self._stop and not self.stopped:
            self._put(self._stop.rest())

    def _put(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._deltas.append({"content": text})
