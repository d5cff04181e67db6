"""Raw model output into an OpenAI-shaped message, piece by piece.

One incremental machine serves streamed and plain output: `parse_output` feeds it everything at once. The end of a call
is the end of its JSON value, never the first text that looks like a closing tag. It does not know how a call is run,
nor the model that wrote the text; the family's syntax comes from a `Dialect`.

A call is announced when it is whole, never before: what cannot be run (cut off, malformed) therefore never shows up in
the deltas, and stands in `invalid_tool_calls` instead.
"""

from __future__ import annotations

import codecs
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .call_text import Call, calls_in
from .dialect import Dialect, Wrapper, get_dialect
from .errors import RequestError
from .json_text import JsonScanner

Delta = dict[str, Any]

# Most of an answer that merely looks like a bare call is held back no longer than this many characters.
_PROBE = 48
_PROBE_MAX = 65_536
_LOOKS_LIKE_CALL = re.compile(r'\s*[\[{]\s*[\[{]?\s*"name"')


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


def parse_output(
    text: str,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    finish_reason: str = "stop",
    enable_thinking: bool = True,
    prompt_opens_think: bool = False,
    dialect: str | Dialect = "qwen3",
) -> ParsedOutput:
    """Parse a complete output; arguments as for `OutputParser`, finish_reason as for its `finish`."""
    parser = OutputParser(
        tools=tools, enable_thinking=enable_thinking, prompt_opens_think=prompt_opens_think, dialect=dialect
    )
    parser.feed(text)
    parser.finish(finish_reason)
    return parser.result()


def _new_call_id() -> str:
    return "call_" + uuid.uuid4().hex[:24]


class OutputParser:
    """The incremental parser: `feed` pieces, `finish` once, then `result`.

    Invariant: joining the deltas of any split of a text gives the message that `parse_output` gives for it (but for the
    random call ids).

    Args:
        tools: the request's tools in OpenAI form; a bare JSON object or a fenced one is taken for a call only when it
            names one of them.
        enable_thinking: whether the prompt let the model think. Then text before a lone closing tag is reasoning, and
            the answer of a model that should have opened a block but did not is held back until that is decided.
        prompt_opens_think: whether the prompt itself ends with an open thinking block.
        dialect: name or settings of the family's syntax.
        stop: texts that end the answer, across any split, but not inside a call or a thought; then `stopped` is true.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool = True,
        prompt_opens_think: bool = False,
        dialect: str | Dialect = "qwen3",
        stop: Sequence[str] = (),
        new_call_id: Callable[[], str] = _new_call_id,
    ) -> None:
        self.dialect = get_dialect(dialect) if isinstance(dialect, str) else dialect
        if prompt_opens_think and not self.dialect.think:
            raise RequestError(f"dialect {self.dialect.name} has no thinking block that a prompt could open")
        self._known = {str(t["function"]["name"]) for t in tools or ()}
        self._new_call_id = new_call_id
        self._stop = tuple(stop)
        self._maybe_stop = ""  # content that may be the beginning of a stop text
        self.stopped = False
        self._think = self.dialect.think
        self.may_think = enable_thinking and self._think is not None
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

        tagged = [w for w in self.dialect.wrappers if not w.whole_answer]
        self._wrapper_of = {w.open: w for w in tagged}
        self._openers = re.compile("|".join(re.escape(w.open) for w in tagged))

        self._pending = ""  # text not yet understood
        self._held: list[str] = []  # an answer held back until it is known not to be reasoning
        self._searched = 0  # how much of a possible bare call was read
        self._space: list[str] = []  # white space that counts only if text follows
        self._deltas: list[Delta] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._invalid: list[dict[str, Any]] = []
        self._after_think = False
        self._finish_reason = ""

        self._wrapper: Wrapper | None = None  # the open call block
        self._raw: list[str] = []  # its text so far
        self._scanner: JsonScanner | None = None
        self._body: list[str] = []  # the JSON value so far
        self._found = 0  # calls in this block
        self._fault = ""
        self._state: Callable[[], bool] = self._at_opened if prompt_opens_think else self._at_start

    # -- the public side ------------------------------------------------------------------------------------------

    def feed(self, piece: str | bytes) -> list[Delta]:
        """Take the next piece (text, or token bytes that may end inside a character); return the new deltas."""
        text = self._decode(piece) if isinstance(piece, bytes) else piece
        if text and not self.stopped:
            self._pending += text
            self._run()
        return self._take()

    def finish(self, finish_reason: str = "stop") -> list[Delta]:
        """Say that the output is over and why ("stop" or "length"); return the last deltas."""
        self._finish_reason = finish_reason
        if self.stopped:
            return []
        # An incomplete last character was never a character: it is dropped.
        for _ in range(4 + len(self._pending)):  # each turn consumes text or leaves a state
            if not self._at_end():
                break
        if not self._calls and "".join(self._content).strip():
            self._content_delta("".join(self._space))
        if self._maybe_stop and not self.stopped:
            self._add_content(self._maybe_stop)
        self._space.clear()
        return self._take()

    def result(self) -> ParsedOutput:
        """Return the whole message; call after `finish`."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if self._calls else "")}
        if reasoning := "".join(self._reasoning):
            message["reasoning_content"] = reasoning
        if self._calls:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": dict(c["function"])} for c in self._calls
            ]
        reason = self._finish_reason
        if reason != "length":
            reason = "tool_calls" if self._calls else "stop"
        return ParsedOutput(message, reason, list(self._invalid))

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside a thinking block."""
        return self._state in (self._in_reasoning, self._at_opened)

    @property
    def answering(self) -> bool:
        """Whether the thinking block, if there is one, lies behind."""
        return self._after_think or bool(self._content or self._calls or self._wrapper or self._held)

    # -- the machine: each state eats from `_pending` and says whether it got further --------------------------------

    def _run(self) -> None:
        while self._pending and not self.stopped and self._state():
            pass

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _at_start(self) -> bool:
        text = self._pending.lstrip()
        if self._think:
            opener = self._think[0]
            if text.startswith(opener):
                self._pending = text[len(opener) :]
                return self._enter(self._in_reasoning)
            if opener.startswith(text):
                return False
        return self._enter(self._in_unopened if self.may_think else self._at_answer)

    def _at_opened(self) -> bool:
        """Behind the tag that the prompt opened; some models repeat it."""
        assert self._think
        text, opener = self._pending.lstrip(), self._think[0]
        if text.startswith(opener):
            self._pending = text[len(opener) :]
        elif opener.startswith(text):
            return False
        return self._enter(self._in_reasoning)

    def _in_unopened(self) -> bool:
        """Thinking was on and no block was opened: a lone closing tag makes all before it reasoning."""
        assert self._think
        text, close = self._pending, self._think[1]
        opener = self._openers.search(text)
        at = text.find(close)
        if at >= 0 and not (opener and opener.start() < at):
            self._reasoning_delta(("".join(self._held) + text[:at]).strip("\n"))
            self._held.clear()
            self._pending = text[at + len(close) :]
            self._after_think = True
            return self._enter(self._at_answer)
        if opener:
            return self._release()
        keep = len(text) - _partial(text, (close, *self._wrapper_of))
        self._held.append(text[:keep])
        self._pending = text[keep:]
        return False

    def _release(self) -> bool:
        """The held text was an answer after all."""
        self._pending = "".join(self._held) + self._pending
        self._held.clear()
        return self._enter(self._at_answer)

    def _in_reasoning(self) -> bool:
        assert self._think
        close, text = self._think[1], self._pending
        if not self._reasoning:
            text = text.lstrip("\n")
        at = text.find(close)
        if at < 0:
            keep = len(text) - _partial(text, (close,))
            self._reasoning_delta(self._hold_newlines(text[:keep]))
            self._pending = text[keep:]
            return False
        self._reasoning_delta(self._hold_newlines(text[:at]))
        self._space.clear()
        self._pending = text[at + len(close) :]
        self._after_think = True
        return self._enter(self._at_answer)

    def _hold_newlines(self, text: str) -> str:
        """Return held and new text up to its last character that is no line feed; hold the rest."""
        if body := text.rstrip("\n"):
            text_out = "".join(self._space) + body
            self._space = [text[len(body) :]]
            return text_out
        self._space.append(text)
        return ""

    def _at_answer(self) -> bool:
        """Before the first visible character of the answer."""
        text = self._pending.lstrip()
        if not text:
            return False
        if self._known and text[0] in "{[`":
            decided = self._probe(text)
            if decided is None:
                return False
            if decided:
                return True
        return self._enter(self._in_content)

    def _probe(self, text: str) -> bool | None:
        """Is this a bare or fenced call? None: more text is needed."""
        wrapper, body = _fence_of(text)
        if wrapper is None:
            return None if body is None else False
        assert body is not None
        if not _LOOKS_LIKE_CALL.match(body) and len(body) < _PROBE:
            return None
        start = len(body) - len(body.lstrip())
        if self._scanner is None:
            self._scanner, self._searched = JsonScanner(), start
        if not self._scanner.done:
            self._searched = self._scanner.feed(body, self._searched)
        if not self._scanner.done:
            hopeless = self._scanner.broken or not _LOOKS_LIKE_CALL.match(body) or len(body) > _PROBE_MAX
            return False if hopeless else None
        end = self._searched
        if not self._names_known_tool(body[start:end]):
            return False
        native = wrapper.open and any(w.open == wrapper.open for w in self.dialect.wrappers)
        if not native:  # a rescue: only when it is the whole answer
            rest = body[end:].strip()
            if not self._finish_reason:
                return None if wrapper.close.startswith(rest) or not rest or rest[0] in "{[" else False
            if rest not in ("", wrapper.close) and rest[0] not in "{[":
                return False
        self._pending = body
        return self._open_block(wrapper, text[: len(text) - len(body)])

    def _names_known_tool(self, text: str) -> bool:
        try:
            return all(c.name in self._known for c in calls_in(text))
        except ValueError:
            return False

    def _in_content(self) -> bool:
        text = self._pending
        if match := self._openers.search(text):
            self._text(text[: match.start()])
            if not self._starts_line() and not _begins_json(text, match.end(), self._finish_reason):
                if _begins_json(text, match.end(), self._finish_reason) is None:
                    self._pending = text[match.start() :]
                    return False
                self._text(match.group())  # a tag that is only mentioned
                self._pending = text[match.end() :]
                return True
            self._pending = text[match.end() :]
            return self._open_block(self._wrapper_of[match.group()], match.group())
        keep = len(text) - _partial(text, tuple(self._wrapper_of))
        self._text(text[:keep])
        self._pending = text[keep:]
        return False

    def _starts_line(self) -> bool:
        return not self._content or "\n" in "".join(self._space) or bool(self._calls)

    def _open_block(self, wrapper: Wrapper, opening: str) -> bool:
        self._wrapper, self._raw, self._found, self._fault = wrapper, [opening], 0, ""
        self._scanner, self._body = None, []
        return self._enter(self._in_block)

    def _in_block(self) -> bool:
        """Between the marks of a call block, in front of an object or of the closing mark."""
        assert self._wrapper
        text = self._pending.lstrip()
        close = self._wrapper.close
        if close and text.startswith(close):
            self._raw.append(self._pending[: len(self._pending) - len(text)] + close)
            self._pending = text[len(close) :]
            return self._close_block()
        if not text or (close and close.startswith(text)):
            return False
        if text[0] in "{[":
            self._raw.append(self._pending[: len(self._pending) - len(text)])
            self._pending, self._scanner, self._body = text, JsonScanner(), []
            return self._enter(self._in_object)
        if self._found and text[0] in "}],":  # one bracket or comma too many after a whole call
            self._raw.append(text[0])
            self._pending = text[1:]
            return True
        if self._found:  # the closing mark is missing: what follows is a new thing
            return self._close_block()
        self._fault = f"expected a JSON object, found {text[0]!r}"
        return self._enter(self._in_broken)

    def _in_object(self) -> bool:
        assert self._scanner
        end = self._scanner.feed(self._pending)
        taken, self._pending = self._pending[:end], self._pending[end:]
        self._body.append(taken)
        self._raw.append(taken)
        if self._scanner.done:
            body = "".join(self._body)
            try:
                for call in calls_in(body):
                    self._call_delta(call)
            except ValueError as error:
                self._report(body, str(error))
            self._found += 1
            return self._enter(self._in_block)
        if self._scanner.broken:
            self._fault = f"{self._scanner.broken} at character {len(''.join(self._body))}"
            return self._enter(self._in_broken)
        return False

    def _in_broken(self) -> bool:
        """The body is no JSON: nothing but the closing mark can end it."""
        assert self._wrapper
        text, close = self._pending, self._wrapper.close
        at = text.find(close) if close else -1
        if at < 0:
            keep = len(text) - _partial(text, (close,))
            self._raw.append(text[:keep])
            self._body.append(text[:keep])
            self._pending = text[keep:]
            return False
        self._body.append(text[:at])
        self._raw.append(text[: at + len(close)])
        self._pending = text[at + len(close) :]
        self._report("".join(self._body), self._fault)
        return self._close_block()

    def _close_block(self) -> bool:
        if not self._found and not self._fault:
            self._report("", "the call is empty")
        self._wrapper = None
        return self._enter(self._in_content)

    def _at_end(self) -> bool:
        """One step of `finish`: settle the present state; say whether another step is needed."""
        state = self._state
        if state in (self._at_start, self._in_unopened):
            self._release()
            self._run()
            return True
        if state == self._at_opened:
            return self._enter(self._in_reasoning)
        if state == self._in_reasoning:
            self._reasoning_delta(self._hold_newlines(self._pending))
            self._space.clear()
            self._pending = ""
            return False
        if state == self._at_answer:
            if self._pending.strip() and self._pending.lstrip()[0] in "{[`" and self._known and self._state():
                self._run()
                return True
            self._enter(self._in_content)
            return True
        if state == self._in_content:
            self._run()
            if self._state == self._in_content:
                self._text(self._pending)
                self._pending = ""
                return False
            return True
        if state == self._in_block and self._found:
            self._wrapper = None
            self._pending = ""
            return False
        why = "cut off by the token limit" if self._finish_reason == "length" else "the output ended inside the call"
        self._raw.append(self._pending)
        self._report("".join(self._body) + self._pending, f"{self._fault}; {why}" if self._fault else why)
        self._pending = ""
        self._wrapper = None
        self._state = self._in_content
        return False

    # -- what comes out -------------------------------------------------------------------------------------------

    def _reasoning_delta(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._deltas.append({"reasoning_content": text})

    def _text(self, text: str) -> None:
        """Content; white space is held until a visible character follows it."""
        body = text.rstrip()
        if not body:
            self._space.append(text)
            return
        if not self._content:
            body = "".join(self._space) + body
            body = body.lstrip() if self._calls else body.lstrip("\n") if self._after_think else body
        else:
            body = "".join(self._space) + body
        self._space = [text[len(text.rstrip()) :]]
        self._content_delta(body)

    def _content_delta(self, text: str) -> None:
        if not self._stop or not text or self.stopped:
            self._add_content("" if self.stopped else text)
            return
        text = self._maybe_stop + text
        found = min((at for s in self._stop if (at := text.find(s)) >= 0), default=-1)
        self.stopped = found >= 0
        keep = found if self.stopped else len(text) - _partial(text, self._stop)
        self._maybe_stop = "" if self.stopped else text[keep:]
        self._add_content(text[:keep])

    def _add_content(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._deltas.append({"content": text})

    def _call_delta(self, call: Call) -> None:
        if not self._calls and self._content:
            # The template puts one line feed between text and the first call; the rest belongs to the text.
            self._content_delta("".join(self._space).removesuffix("\n"))
        self._space.clear()
        index = len(self._calls)
        made = {
            "id": self._new_call_id(),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        self._calls.append(made)
        head = {
            "index": index,
            "id": made["id"],
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        self._deltas.append({"tool_calls": [head]})
        self._deltas.append({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]})

    def _report(self, body: str, error: str) -> None:
        name = re.search(r'"name"\s*:\s*"([^"\\]*)"', body)
        self._invalid.append(
            {
                "name": name.group(1) if name else None,
                "arguments": body.strip(),
                "error": error,
                "raw": "".join(self._raw),
            }
        )


def _partial(text: str, marks: tuple[str, ...]) -> int:
    """Length of the longest end of `text` that one of `marks` could still grow from."""
    longest = max((len(m) for m in marks), default=1) - 1
    firsts = {m[:1] for m in marks}
    for k in range(min(longest, len(text)), 0, -1):
        if text[-k] in firsts and any(m.startswith(text[-k:]) for m in marks):
            return k
    return 0


def _begins_json(text: str, i: int, finished: str) -> bool | None:
    rest = text[i:].lstrip()
    if not rest:
        return False if finished else None
    return rest[0] in "{["


_FENCE = re.compile(r"```(?:json|tool_call|xml)?[ \t]*\n")
_BARE = Wrapper("", "")


def _fence_of(text: str) -> tuple[Wrapper | None, str | None]:
    """The wrapper at the start of an answer and the text behind it; (None, None): too early to say."""
    if text[0] != "`":
        return _BARE, text
    if match := _FENCE.match(text):
        return Wrapper("```json", "```", whole_answer=True), text[match.end() :]
    for lang in ("json", "tool_call", "xml", ""):
        head = "```" + lang
        if head.startswith(text) or (text.startswith(head) and not text[len(head) :].strip(" \t")):
            return None, None
    return None, ""
