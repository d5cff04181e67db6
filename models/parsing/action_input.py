"""The input of one action of a text protocol, up to where it ends.

A JSON object or list ends where its value ends, whatever stands in its strings; only what is no JSON is ended by the
next label. Knows neither the tool nor what its arguments are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .json_text import JsonScanner
from .labels import UNDECIDED, Label, Lines
from .source import Source

_FENCE = re.compile(r"`{3,8}\w{0,12}[ \t]{0,8}\n|`{3,8}(?:json)?[ \t]{0,8}(?=[{\[])|`{1,8}(?=[^`])")
_FENCE_BEGUN = re.compile(r"`{1,8}(?:(?<=```)\w{0,12}[ \t]{0,8})?\Z")


class ActionInput:
    """Reads one input. Afterwards `text` is what it says, `fault` why it cannot be used.

    Args:
        source, lines: where the text comes from.
        raw: all text that is read is appended to it.
        fault: what is wrong already; then only the next label can end it.
    """

    def __init__(self, source: Source, lines: Lines, raw: list[str], fault: str = "") -> None:
        self._source, self._lines, self._raw = source, lines, raw
        self.fault = fault
        self.is_plain = False  # whether it is text rather than a JSON object or list
        self._parts: list[str] = []
        self._scanner = JsonScanner()
        self._state: Callable[[], bool] = self._in_broken if fault else self._at_start
        self._done = False

    @property
    def text(self) -> str:
        """The input without white space, quotes of code and fences around it."""
        text = "".join(self._parts).strip()
        return text.rstrip("`").rstrip() if self.is_plain else text

    def run(self) -> bool:
        """Read; return whether the input is over."""
        while not self._done and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _finish(self, fault: str = "") -> bool:
        if fault:
            self.fault = f"{self.fault}; {fault}" if self.fault else fault
        self._done = True
        return False

    def _gather(self, text: str) -> None:
        self._raw.append(text)
        self._parts.append(text)

    def _at_start(self) -> bool:
        source = self._source
        self._raw.append(self._lines.take_space())
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label or source.is_read:
            return self._finish(source.why_ended if source.cut and not label else "")
        char = source.text[source.at]
        if char == "`":
            if not source.ended and _FENCE_BEGUN.match(source.text, source.at):
                return False
            if fence := _FENCE.match(source.text, source.at):
                self._raw.append(self._lines.take(fence.end()))
                return True
        self.is_plain = char not in "{["
        return self._enter(self._in_plain if self.is_plain else self._in_value)

    def _in_value(self) -> bool:
        """In an object or a list. No label can stand between its tokens: there it was left open."""
        source, scanner = self._source, self._scanner
        while not source.is_read and not scanner.done:
            label = None if scanner.in_string else self._lines.label()
            if label is UNDECIDED:
                return False
            if label:
                return self._finish("the JSON value was left open")
            line_end = source.text.find("\n", source.at)
            end = scanner.feed(source.text, source.at, len(source.text) if line_end < 0 else line_end + 1)
            self._gather(self._lines.take(end))
            if scanner.broken:
                self.fault = f"{scanner.broken} at character {sum(map(len, self._parts))}"
                return self._enter(self._in_broken)
        if scanner.done:
            return self._finish()
        return self._finish(source.why_ended) if source.ended else False

    def _in_plain(self) -> bool:
        """All up to the next label."""
        label = self._lines.read(self._gather, _any_label)
        if not label and not self._source.ended:
            return False
        return self._finish(self._source.why_ended if self._source.cut and not label else "")

    _in_broken = _in_plain


def _any_label(label: Label) -> bool:
    return True
