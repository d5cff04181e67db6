"""An answer with call blocks: text, and calls between the family's marks.

The end of a call is the end of its value, never the first text that looks like a closing mark. A call is announced
when it is whole, never before: what cannot be run (cut off, malformed) never shows up in the deltas. Knows wrappers,
not families.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dialect import Wrapper
from .argument_texts import CallReader
from .call_scanners import Scanner, ShapeScanner
from .call_text import Call, name_in
from .json_text import JsonScanner
from .message import Draft
from .source import Marks, Source

_MOST_HEAD_PIECES = 50


class Blocks:
    """The last stage of a family that marks its calls.

    Args:
        source: where the text comes from.
        draft: where text and calls go.
        wrappers: the marks; those that count only for a whole answer are not looked for here.
        tools: in OpenAI form; some notations need their schemas.
        id_length: letters and digits of an id that a call may bring along; None: it brings none.
    """

    def __init__(
        self,
        source: Source,
        draft: Draft,
        wrappers: Sequence[Wrapper],
        tools: Sequence[Mapping[str, Any]] = (),
        id_length: int | None = None,
    ) -> None:
        self._source, self._draft = source, draft
        self._reader_of = {w.shape: CallReader(w.shape, tools) for w in wrappers}
        self._good_id = re.compile(rf"[A-Za-z0-9]{{{id_length}}}" if id_length else r"(?!)")
        self._wrapper_of = {w.open: w for w in wrappers if not w.whole_answer}
        self.marks = Marks(self._wrapper_of)
        self._state: Callable[[], bool] = self._in_text
        self._done = False
        self._wrapper = Wrapper("", "")  # the present block
        self._closing = Marks(())
        self._raw: list[str] = []  # its text so far
        self._body: list[str] = []  # the JSON value so far
        self._scanner: Scanner = JsonScanner()
        self._n_values = 0  # whole values in this block
        self._fault = ""
        self._mark: list[str] = []  # an opening mark inside a line, and the white space behind it

    in_reasoning = False
    answering = True

    @property
    def calling(self) -> str | None:
        """The tool whose call is being written; None where that is not known yet, or no call is."""
        # The name stands in front; however long the arguments get, they are not searched.
        if self._state != self._in_value:
            return None
        if isinstance(self._scanner, ShapeScanner):
            return self._scanner.name or None
        return name_in("".join(self._body[:_MOST_HEAD_PIECES]))

    def run(self) -> bool:
        """Read; return whether this stage is over."""
        while not self._done and not self._draft.stopped and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _in_text(self) -> bool:
        source = self._source
        if found := self.marks.search(source.text, source.at):
            self._draft.add_text(source.take(found.start()))
            mark = source.take(found.end())
            if self._draft.starts_line:
                self.open_block(self._wrapper_of[mark], mark)
            else:
                self._mark = [mark]
                self._state = self._behind_mark
            return True
        end = len(source.text) if source.ended else self.marks.settled(source.text, source.at)
        self._draft.add_text(source.take(end))
        self._done = source.ended
        return False

    def _behind_mark(self) -> bool:
        """Inside a line: a call if its beginning follows, else the mark is only spoken of."""
        source = self._source
        self._mark.append(source.take_space())
        if source.is_read and not source.ended:
            return False
        text, wrapper = "".join(self._mark), self._wrapper_of[self._mark[0]]
        begins = None if source.is_read else self._begins_call(wrapper)
        if begins is None and not source.ended:
            return False
        if begins:
            self.open_block(wrapper, text)
            return True
        self._draft.add_text(text)
        return self._enter(self._in_text)

    def _begins_call(self, wrapper: Wrapper) -> bool | None:
        """Whether what is unread begins a call in this wrapper; None: it may."""
        source, head = self._source, wrapper.shape.head
        if source.text[source.at] in "{[":
            return True
        if wrapper.shape.is_json:
            return False
        # Without a head the mark itself is one, where it is the family's.
        return source.starts(head) if head else wrapper.is_written

    def open_block(self, wrapper: Wrapper, opening: str) -> None:
        """What follows stands in a block that `opening` opened."""
        self._wrapper, self._closing, self._raw = wrapper, Marks([wrapper.close]), [opening]
        self._body, self._n_values, self._fault = [], 0, ""
        self._state = self._in_block

    def _in_block(self) -> bool:
        """Between the marks of a block, in front of an object or of the closing mark."""
        source = self._source
        if self._n_values and not self._wrapper.close:
            return self._close_block()
        self._raw.append(source.take_space())
        if source.is_read:
            return self._end_inside() if source.ended else False
        closes = source.starts(self._wrapper.close) if self._wrapper.close else False
        if closes is None:
            return self._end_inside() if source.ended else False
        if closes:
            self._raw.append(source.take(source.at + len(self._wrapper.close)))
            return self._close_block()
        char = source.text[source.at]
        if char in "{[" or not (self._wrapper.shape.is_json or self._n_values):
            is_json = char in "{["
            self._body, self._scanner = [], JsonScanner() if is_json else ShapeScanner(self._wrapper.shape)
            return self._enter(self._in_value)
        if self._n_values and char in "}],":  # one bracket or comma too many after a whole call
            self._raw.append(source.take(source.at + 1))
            return True
        if self._n_values:  # the closing mark is missing: what follows is a new thing
            return self._close_block()
        self._fault = f"expected a JSON object, found {char!r}"
        return self._enter(self._in_broken)

    def _in_value(self) -> bool:
        source = self._source
        taken = source.take(self._scanner.feed(source.text, source.at))
        self._body.append(taken)
        self._raw.append(taken)
        if self._scanner.done:
            body = "".join(self._body)
            try:
                for call in self._reader_of[self._wrapper.shape].calls_in(body):
                    is_good = self._good_id.fullmatch(call.id)
                    self._draft.add_call(call if is_good else Call(call.name, call.arguments))
            except ValueError as error:
                self._report(str(error))
            self._n_values += 1
            self._body = []
            return self._enter(self._in_block)
        if self._scanner.broken:
            self._fault = f"{self._scanner.broken} at character {sum(map(len, self._body))}"
            return self._enter(self._in_broken)
        return self._end_inside() if source.ended else False

    def _in_broken(self) -> bool:
        """The body is no JSON: nothing but the closing mark can end it."""
        source = self._source
        found = self._closing.search(source.text, source.at)
        end = found.start() if found else self._closing.settled(source.text, source.at)
        taken = source.take(end)
        self._body.append(taken)
        self._raw.append(taken)
        if found:
            self._raw.append(source.take(found.end()))
            self._report(self._fault)
            return self._close_block()
        return self._end_inside() if source.ended else False

    def _close_block(self) -> bool:
        if not self._n_values and not self._fault:
            self._report("the call is empty")
        return self._enter(self._in_text)

    def _end_inside(self) -> bool:
        """The output ended in a block: a fault, unless only the closing mark is missing."""
        rest = self._source.take()
        self._raw.append(rest)
        self._body.append(rest)
        self._done = True
        if not self._n_values or self._state != self._in_block:
            why = self._source.why_ended
            self._report(f"{self._fault}; {why}" if self._fault else why)
        return False

    def _report(self, error: str) -> None:
        body = "".join(self._body)
        name = self._scanner.name if isinstance(self._scanner, ShapeScanner) else name_in(body)
        self._draft.add_invalid(name or None, body, error, "".join(self._raw))
