"""Where a call ends that is no JSON object as a whole: a name between marks, then arguments in one of three notations.

Each scanner reads every character once, like `JsonScanner`; what stands inside is `argument_texts`'s business.
"""

from __future__ import annotations

import re
from typing import Protocol

from ..call_writing import WrittenCall, call_text
from ..dialect import CallShape
from .json_text import JsonScanner

_MOST_HEAD = 400  # characters of a head; what needs more is no call
_MOST_DEPTH = 100
_TAG_ENDS = re.compile(r"</parameter>|</function>")
_LONGEST_TAG = len("</parameter>")


class Scanner(Protocol):
    """Finds the end of a value."""

    @property
    def done(self) -> bool:
        """Whether it was found."""
        ...

    @property
    def broken(self) -> str:
        """Why it never will be; empty if it may."""
        ...

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from `start`; return the index behind what was taken."""
        ...


class ShapeScanner:
    """Finds the end of one call of a shape, up to its arguments' last character.

    Args:
        shape: one that is no JSON object.
    """

    def __init__(self, shape: CallShape) -> None:
        self.broken = ""
        self.name = ""  # the tool, once it is known
        self._shape = shape
        self._head = Head(shape)
        self._arguments: Scanner | None = None

    @property
    def done(self) -> bool:
        """Whether the arguments are closed."""
        return self._arguments is not None and self._arguments.done

    def feed(self, text: str, start: int = 0) -> int:
        """Read on; see `Scanner`."""
        if self._arguments is None:
            start = self._head.feed(text, start)
            self.broken = self._head.broken
            if self._head.done:
                self.name = self._head.name
                self._arguments = _scanner(self._shape)
        if self._arguments is not None:
            start = self._arguments.feed(text, start)
            self.broken = self._arguments.broken
        return start


class Head:
    """What stands in front of a call's arguments: texts that are known, and between them the name and the id."""

    def __init__(self, shape: CallShape) -> None:
        self.done = False
        self.broken = ""
        self._values = ["", ""]  # name, id
        self._n_read = 0
        # Known texts, each with the value that follows it; the last one is followed by the arguments.
        middle = shape.middle.rstrip()
        self._texts = [shape.head, *([shape.id_behind_name] if shape.id_behind_name else []), middle]
        # The arguments' own bracket ends the name where nothing else does.
        self._opening = "" if middle else "{"
        self._at = 0  # of the present text
        self._n_known = 0  # characters of it that were read
        self._in_value = False
        self._settle()

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._values[0].strip()

    @property
    def call_id(self) -> str:
        """The id of the call, where it has one."""
        return self._values[1].strip()

    def feed(self, text: str, start: int = 0) -> int:
        """Read on; see `Scanner`."""
        while start < len(text) and not self.done and not self.broken:
            char = text[start]
            stop = (self._texts[self._at + 1] or self._opening)[0] if self._in_value else ""
            if self._in_value and char == stop:
                self._in_value, self._at, self._n_known = False, self._at + 1, 0
                self._settle()
                continue
            if self._in_value and char not in "\n{[" and self._n_read < _MOST_HEAD:
                self._values[self._at] += char
            elif not self._in_value and char == self._texts[self._at][self._n_known]:
                self._n_known += 1
                self._settle()
            else:
                expected = "a name" if self._in_value else repr(self._texts[self._at])
                self.broken = f"expected {expected}, found {char!r}"
                return start
            start += 1
            self._n_read += 1
        return start

    def _settle(self) -> None:
        """Go on behind a known text that was read."""
        if self._n_known == len(self._texts[self._at]):
            self.done = self._at == len(self._texts) - 1
            self._in_value = not self.done


def can_name(shape: CallShape, name: str) -> bool:
    """Whether a call of this tool is read back as one of it."""
    head = Head(shape)
    head.feed(call_text(shape, WrittenCall(name, {}, "a")))
    return head.done and head.name == name


def _scanner(shape: CallShape) -> Scanner:
    if shape.arguments == "tags":
        return _TagScanner()
    return _QuotedScanner(shape.quote) if shape.arguments == "quoted" else JsonScanner()


class _TagScanner:
    """The end of arguments between tags: the first closing tag of the call behind which no value is open."""

    def __init__(self) -> None:
        self.done = False
        self.broken = ""
        self._held = ""  # may be the beginning of a tag
        self._is_open = False  # whether something stands behind the last value's end

    def feed(self, text: str, start: int = 0) -> int:
        """Read on; see `Scanner`."""
        window, at = self._held + text[start:], 0
        n_held, self._held = len(self._held), ""
        for found in _TAG_ENDS.finditer(window):
            self._is_open = self._is_open or bool(window[at : found.start()].strip())
            at = found.end()
            if found[0] == "</parameter>":
                self._is_open = False
            elif not self._is_open:
                self.done = True
                return start + at - n_held
        rest = window[at:]
        begun = rest.rfind("<", max(len(rest) - _LONGEST_TAG + 1, 0))
        if begun >= 0 and any(tag.startswith(rest[begun:]) for tag in ("</parameter>", "</function>")):
            rest, self._held = rest[:begun], rest[begun:]
        self._is_open = self._is_open or bool(rest.strip())
        return len(text)


class _QuotedScanner:
    """The end of an object with bare keys, whose texts stand between marks."""

    def __init__(self, quote: str) -> None:
        self.done = False
        self.broken = ""
        self._quote = quote
        self._found = re.compile(re.escape(quote) + r"|[{}\[\]]")
        self._held = ""  # may be the beginning of a mark
        self._in_text = False
        self._depth = 0

    def feed(self, text: str, start: int = 0) -> int:
        """Read on; see `Scanner`."""
        window, at = self._held + text[start:], 0
        n_held, self._held = len(self._held), ""
        for found in self._found.finditer(window):
            at = found.end()
            if found[0] == self._quote:
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if found[0] in "{[" else -1
                if self._depth > _MOST_DEPTH:
                    self.broken = f"nested deeper than {_MOST_DEPTH} levels"
                    return max(start + at - n_held - 1, start)
                if self._depth == 0:
                    self.done = True
                    return start + at - n_held
        rest = window[at:]
        begun = rest.rfind(self._quote[0], max(len(rest) - len(self._quote) + 1, 0))
        if begun >= 0 and self._quote.startswith(rest[begun:]):
            self._held = rest[begun:]
        return len(text)
