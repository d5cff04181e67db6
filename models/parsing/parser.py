"""Raw model output into an OpenAI-shaped message, piece by piece.

One incremental machine serves streamed and plain output: `parse_output` feeds it everything at once. It is made of
stages that read the same text one after the other: the thinking block (`thoughts`), an answer that is nothing but a
call without its marks (`bare_call`), and the answer with its calls (`blocks`, or `sections` for a text protocol);
which stages there are is said by the `Dialect`. It does not know how a call is run, nor the model that wrote the text.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from laploop.engine.values import shown

from ..dialect import Dialect, get_dialect
from ..errors import RequestError
from .bare_call import BareCall
from .blocks import Blocks
from .message import Delta, Draft, ParsedOutput
from .message import new_call_id as make_call_id
from .sections import Sections
from .source import Source
from .thoughts import Thoughts

__all__ = ["Delta", "OutputParser", "ParsedOutput", "parse_output"]

_HALF_PAIR = re.compile(r"[\ud800-\udfff]")  # no character: what wrong bytes come to in a text


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


class _Stage(Protocol):
    """Reads its part of the source."""

    @property
    def in_reasoning(self) -> bool: ...

    @property
    def answering(self) -> bool: ...

    @property
    def calling(self) -> str | None: ...

    def run(self) -> bool:
        """Read as far as the text goes; return whether the rest is the next stage's."""


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

    Raises:
        RequestError: an unknown dialect, or what can be no tools, no stop texts, or (of `feed`) no text.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool = True,
        prompt_opens_think: bool = False,
        dialect: str | Dialect = "qwen3",
        stop: Sequence[str] = (),
        new_call_id: Callable[[], str] | None = None,
    ) -> None:
        self.dialect = get_dialect(dialect)
        _check_given(tools, stop)
        if prompt_opens_think and not self.dialect.think:
            raise RequestError(f"dialect {self.dialect.name} has no thinking block that a prompt could open")
        self.may_think = enable_thinking and bool(self.dialect.think or self.dialect.labels)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        made_id = new_call_id or functools.partial(make_call_id, self.dialect.id_length)
        self._source, self._draft = Source(), Draft(stop, made_id)
        self._finish_reason = ""
        self._stages = self._make_stages(tools or (), prompt_opens_think)

    def _make_stages(self, tools: Sequence[Mapping[str, Any]], opened: bool) -> list[_Stage]:
        """The stages, the last first."""
        source, draft, family = self._source, self._draft, self.dialect
        blocks = Blocks(source, draft, family.wrappers, tools, family.id_length)
        stages: list[_Stage] = [blocks]
        if family.labels:  # no family has both
            stages = [Sections(source, draft, family.labels, family.variants, tools)]
        if known := {str(t["function"]["name"]) for t in tools}:
            stages.append(BareCall(source, draft, known, family.stray, family.wrappers, blocks.open_block))
        if tags := family.think:
            allowed, marks = self.may_think, blocks.marks
            stages.append(Thoughts(source, draft, tags, opened=opened, allowed=allowed, answer_marks=marks))
        return stages

    def feed(self, piece: str | bytes) -> list[Delta]:
        """Take the next piece (text, or token bytes that may end inside a character); return the new deltas."""
        if not isinstance(piece, str | bytes):
            raise RequestError(f"a piece is {shown(piece)}; expected text, or the bytes of tokens")
        text = self._decode(piece) if isinstance(piece, bytes) else _HALF_PAIR.sub("\ufffd", piece)
        if text and not self.stopped:
            self._source.add(text)
            self._run()
        return self._draft.take()

    def finish(self, finish_reason: str = "stop") -> list[Delta]:
        """Say that the output is over and why ("stop" or "length"); return the last deltas."""
        # An incomplete last character was never a character: it is dropped.
        self._finish_reason = finish_reason
        self._source.ended, self._source.cut = True, finish_reason == "length"
        self._run()
        self._draft.finish()
        return self._draft.take()

    def _run(self) -> None:
        while not self.stopped and self._stages[-1].run() and len(self._stages) > 1:
            self._stages.pop()

    def result(self) -> ParsedOutput:
        """Return the whole message; call after `finish`."""
        # A stop text ended it, whatever limit the text behind it came to.
        return self._draft.result("stop" if self.stopped else self._finish_reason)

    @property
    def stopped(self) -> bool:
        """Whether the answer is over although the model may go on: what follows does not count."""
        return self._draft.stopped

    @property
    def unread(self) -> str:
        """The end of the text so far that waits for more to be understood; but for what was held back whole."""
        return self._source.text[self._source.at :]

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside a thinking block."""
        return self._stages[-1].in_reasoning

    @property
    def calling(self) -> str | None:
        """The tool whose call is being written at the end of the text so far; None where its name is not known yet, or
        no call is. For those who watch: the call may still turn out to be none."""
        return self._stages[-1].calling

    @property
    def answering(self) -> bool:
        """Whether the thinking block, if there is one, lies behind."""
        return self._stages[-1].answering


def _check_given(tools: Any, stop: Any) -> None:
    """Raise RequestError for what can be no tools and no stop texts."""
    for tool in (tools or ()) if isinstance(tools or (), list | tuple) else [tools]:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools holds {shown(tool)}; expected tools in OpenAI form")
    if not isinstance(stop, list | tuple) or not all(isinstance(text, str) for text in stop):
        raise RequestError(f"stop is {shown(stop)}; expected a list of texts")
