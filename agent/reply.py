"""One reply of the model: asked for, streamed, folded. It knows chunks and messages; it decides nothing.

Whether a round calls tools is known only when the stream has ended, so text is shown as it comes; text that
is white space so far is held back, and dropped if nothing else follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from laploop.models import accumulate

from .choice import ToolChoice
from .errors import AgentError
from .events import CallBegun, Event, ReasoningDelta, RoundFinished, RoundStarted, TextDelta
from .guards import n_before_repeats
from .run import Run

_LOOK_EVERY = 100  # characters


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply: its message as it goes into the history, and why it ended (OpenAI's reasons, or "repeat": its text
    only repeated itself and was broken off)."""

    message: dict[str, Any]
    finish_reason: str
    faults: tuple[dict[str, Any], ...]
    raw_output: str | None

    @property
    def text(self) -> str:
        """The visible text, "" for none."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    @property
    def text_with_faults(self) -> str:
        """The text, and the raw text of each malformed call that it does not hold already."""
        missing = [f["raw"] for f in self.faults if f["raw"] not in self.text]
        return "\n".join([self.text, *missing] if self.text.strip() else missing) or self.text

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls that can be executed, in the model's order."""
        return self.message.get("tool_calls") or []


def stream_reply(run: Run, choice: ToolChoice | None) -> Generator[Event, None, Reply | None]:
    """Ask the model and pass its deltas on; the reply is the generator's value, None if the run was
    stopped.

    The model's stream is closed in every case, also when the caller closes this generator.
    """
    if run.stop.is_set():
        return None
    run.begin_round()
    yield RoundStarted(run.rounds, choice)
    chunks: list[dict[str, Any]] = []
    begun = _Begun()
    held = ""
    n_looked_at = 0
    n_told: int | None = None  # where the text only repeats itself: its beginning up to there
    with closing(run.stop.until(run.model.stream(list(run.messages), **run.request(choice)))) as stream:
        for chunk in stream:
            chunks.append(chunk)
            for name in begun.named_in(chunk):
                yield CallBegun(run.rounds, name)
            for delta in _deltas(chunk):
                if thought := delta.get("reasoning_content"):
                    yield ReasoningDelta(run.rounds, thought)
                if text := delta.get("content"):
                    held += text
                    if run.partial or held.strip():
                        run.partial, text, held = run.partial + held, held, ""
                        yield TextDelta(run.rounds, text)
            if len(run.partial) >= n_looked_at + _LOOK_EVERY and run.settings.guards.same_text is not None:
                n_looked_at = len(run.partial)
                n_told = n_before_repeats(run.partial, run.settings.guards.same_text)
                if n_told is not None:
                    break
    if run.stop.is_set():
        return None
    reply, finished = _fold(run, chunks)
    run.usage.add(finished.usage)
    run.partial = ""
    yield finished
    if n_told is not None:
        return replace(reply, message={"role": "assistant", "content": reply.text[:n_told]}, finish_reason="repeat")
    return reply


def _deltas(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for choice in chunk.get("choices") or []:
        if isinstance(delta := choice.get("delta"), dict):
            yield delta


class _Begun:
    """Which calls have begun: a model in this process says so (`calling`), a server's deltas show it."""

    def __init__(self) -> None:
        self._told: str | None = None  # said to have begun, and not there yet

    def named_in(self, chunk: dict[str, Any]) -> Iterator[str]:
        """The tools whose calls begin with this chunk."""
        for choice in chunk.get("choices") or []:
            if name := choice.get("calling"):
                self._told = name
                yield name
        for delta in _deltas(chunk):
            for call in delta.get("tool_calls") or []:
                if name := (call.get("function") or {}).get("name"):
                    if name != self._told:
                        yield name
                    self._told = None


def _fold(run: Run, chunks: list[dict[str, Any]]) -> tuple[Reply, RoundFinished]:
    if not chunks:
        raise AgentError(f"{run.model.name} ended its reply without sending anything; ask again or use another model")
    completion = accumulate(chunks)
    choice = completion["choices"][0]
    message = with_unique_ids(choice["message"], run.call_ids())
    finish_reason = choice.get("finish_reason") or "stop"
    faults = tuple(choice.get("invalid_tool_calls") or ())
    raw = choice.get("raw_output")
    usage, timings = completion.get("usage"), completion.get("timings")
    event = RoundFinished(run.rounds, message, finish_reason, faults, raw, usage, timings, choice.get("prompt_sha256"))
    return Reply(message, finish_reason, faults, raw), event


def with_unique_ids(message: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """The message itself; only where a server left a call without an id, or gave one twice, a mended copy of
    it.
    """
    calls = message.get("tool_calls") or []
    seen = set(used)
    mended = []
    for call in calls:
        call_id = call.get("id")
        if not call_id or call_id in seen:
            call = {**call, "id": f"call_{uuid.uuid4().hex[:12]}"}
        seen.add(call["id"])
        mended.append(call)
    return message if mended == calls else {**message, "tool_calls": mended}
