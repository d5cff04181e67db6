"""The labels of a text protocol where they begin a line, in the dress in which models put them.

Knows spellings: case, bold marks, list marks, numbers, a full-width colon, other words for the same. Does not know what
a section means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

from ..dialect import Labels, LabelVariants
from .source import Source

# Everything is decided within so many characters from the line's beginning, however the text is cut.
_MOST = 48
_DRESS = re.compile(r"[ \t#>*_`+\-\d.)]*")
_TAIL = re.compile(r"[#\d*_`]*\Z")
_GAPS = re.compile(r"[ \t_\-]+")


class Label(NamedTuple):
    """A label that was found.

    Args:
        kind: name of the field of `Labels`; "" where more text is needed to decide.
        end: index behind it.
        exact: whether it is spelled as the protocol says.
    """

    kind: str
    end: int
    exact: bool


UNDECIDED = Label("", -1, False)


class LabelReader:
    """Reads labels at the beginnings of lines.

    Args:
        labels: the protocol's spelling.
        variants: other words.
    """

    def __init__(self, labels: Labels, variants: LabelVariants) -> None:
        self._exact = {f.name: str(getattr(labels, f.name)) for f in fields(labels)}
        words = {k: (label.rstrip(":："), *getattr(variants, k)) for k, label in self._exact.items()}
        self._begun = tuple({_GAPS.sub("", w.lower()) for kind in words.values() for w in kind})
        gap = r"[ \t_-]*"
        kinds = "|".join(
            f"(?P<{kind}>{'|'.join(gap.join(map(re.escape, w.split())) for w in sorted(ws, key=len, reverse=True))})"
            for kind, ws in words.items()
        )
        # ASCII: only then are letters equal in exactly the ways that str.lower knows.
        self._pattern = re.compile(
            r"(?:[#>+\-][#>+\- \t]*|\d{1,2}[.)][ \t]*)?(?P<bold>[*_`]{1,3})?"
            rf"(?:{kinds})[ \t]*(?:#?\d{{1,3}}[ \t]*)?(?P<closed>(?(bold)(?P=bold)|))?[ \t]*[:：]",
            re.IGNORECASE | re.ASCII,
        )

    def read(self, text: str, at: int, ended: bool) -> Label | None:
        """The label at index `at`, where a line begins; None where there is none.

        Args:
            text: what came so far.
            at: index of the line's first character.
            ended: whether nothing more will come.
        """
        view = min(len(text), at + _MOST)
        final = ended or view == at + _MOST
        if found := self._pattern.match(text, at, view):
            end, bold = found.end(), found["bold"] or ""
            if bold and not found["closed"]:  # **Action:** rather than **Action**:
                rest = text[end : min(view, end + len(bold))]
                if not final and rest != bold and bold.startswith(rest):
                    return UNDECIDED
                end += len(bold) if rest == bold else 0
            kind = next(k for k in self._exact if found[k])
            return Label(kind, end, text.startswith(self._exact[kind], at))
        if final or not self._may_begin(text[at:view]):
            return None
        return UNDECIDED

    def _may_begin(self, text: str) -> bool:
        """Whether a line that begins so may come to begin with a label. Errs on the side of yes."""
        if "\n" in text or text.startswith((" ", "\t")):  # what is indented was quoted
            return False
        bare = _TAIL.sub("", _GAPS.sub("", text[_DRESS.match(text).end() :].lower()))  # type: ignore[union-attr]
        return any(word.startswith(bare) for word in self._begun)

    def begins(self, line: str) -> bool:
        """Whether a line begins with a label."""
        return self.read(line, 0, True) is not None


@lru_cache(maxsize=8)
def label_reader(labels: Labels, variants: LabelVariants) -> LabelReader:
    """The reader of a protocol; made once."""
    return LabelReader(labels, variants)


class Lines:
    """A source read line by line, up to the next label.

    Args:
        source: where the text comes from.
        reader: knows the labels.
    """

    def __init__(self, source: Source, reader: LabelReader) -> None:
        self._source, self._reader = source, reader
        self._at_start = True  # whether a label may stand here
        self._in_gap = False  # right behind a label: the space there is no part of the text

    @property
    def at_start(self) -> bool:
        """Whether a line begins here."""
        return self._at_start

    def label(self) -> Label | None:
        """The label here, unread; UNDECIDED where more text is needed, None where there is none."""
        source = self._source
        return self._reader.read(source.text, source.at, source.ended) if self._at_start else None

    def inline_label(self, at: int) -> Label | None:
        """The label at index `at`, inside a line."""
        return self._reader.read(self._source.text, at, self._source.ended)

    def open(self, label: Label) -> str:
        """Read a label; return its text."""
        self._at_start, self._in_gap = False, True
        return self._source.take(label.end)

    def take_gap(self) -> str:
        """Read the space behind a label, which is no part of the text."""
        source = self._source
        return self.take(source.at + (self._in_gap and source.text.startswith(" ", source.at)))

    def take(self, end: int) -> str:
        """Read up to index `end`."""
        taken = self._source.take(end)
        if taken:
            self._at_start, self._in_gap = taken.endswith("\n"), False
        return taken

    def take_space(self) -> str:
        """Read white space."""
        source = self._source
        start = source.at
        source.take_space()
        end, source.at = source.at, start
        return self.take(end)

    def read(self, take: Callable[[str], None], counts: Callable[[Label], bool]) -> Label | None:
        """Read text up to the next label that counts and pass it to `take`; return the label, unread.

        None: there is none in what came so far, all of which was read unless it may become one.
        """
        source = self._source
        text, at, found = source.text, source.at, None
        while at < len(text):
            if self._at_start:
                found = self._reader.read(text, at, source.ended)
                if found and at > source.at:  # whether it counts may depend on the text in front of it
                    self._in_gap = False
                    take(source.take(at))
                if found and (found is UNDECIDED or counts(found)):
                    break
                found = None
            line_end = text.find("\n", at)
            self._at_start = line_end >= 0
            at = line_end + 1 if line_end >= 0 else len(text)
        if at > source.at:
            self._in_gap = False
            take(source.take(at))
        return None if found is UNDECIDED else found
