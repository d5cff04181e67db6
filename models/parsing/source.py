"""The text that has come and is not yet understood, and the marks that are looked for in it.

Each character is read a bounded number of times however the text is cut into pieces: whoever reads takes what it
understood, and leaves no more than the beginning of a mark. Knows no family and no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPACE = re.compile(r"\s*")


class Source:
    """A growing text with a reading position.

    `text[at:]` is unread; `ended` says that nothing more will come, `cut` that this is so because a limit was reached.
    """

    __slots__ = ("at", "cut", "ended", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.cut = False

    def add(self, piece: str) -> None:
        """Append a piece."""
        self.text = self.text[self.at :] + piece
        self.at = 0

    def put_back(self, text: str) -> None:
        """Make text that was taken unread again. Copies all that is unread: for once an output, not once a line."""
        self.text = text + self.text[self.at :]
        self.at = 0

    @property
    def why_ended(self) -> str:
        """What to say of something that the end of the output left unfinished."""
        return "cut off by the token limit" if self.cut else "the output ended inside the call"

    @property
    def is_read(self) -> bool:
        """Whether nothing is unread."""
        return self.at >= len(self.text)

    def take(self, end: int | None = None) -> str:
        """The text up to index `end` (None: all of it), which is read now."""
        start, self.at = self.at, len(self.text) if end is None else end
        return self.text[start : self.at]

    def take_space(self) -> str:
        """The white space in front, which is read now."""
        return self.take(_SPACE.match(self.text, self.at).end())  # type: ignore[union-attr]  # matches the empty text

    def starts(self, mark: str) -> bool | None:
        """Whether the unread text starts with `mark`; None: it is the beginning of one."""
        if self.text.startswith(mark, self.at):
            return True
        n = len(self.text) - self.at
        return None if n < len(mark) and mark.startswith(self.text[self.at :]) else False


class Marks:
    """Short texts that mean something wherever they stand, in the order in which they are preferred."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(t for t in texts if t)
        # A pattern that matches nothing stands for no marks at all.
        self._whole = re.compile("|".join(map(re.escape, self.texts)) or r"(?!)")
        # The longest first.
        self._begun = tuple(sorted({t[:k] for t in self.texts for k in range(1, len(t))}, key=len, reverse=True))

    def search(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The first mark behind index `at`."""
        return self._whole.search(text, at)

    def settled(self, text: str, at: int = 0) -> int:
        """Index up to which `text`, which holds no mark, cannot become part of one whatever follows."""
        if not text.endswith(self._begun, at):
            return len(text)
        return len(text) - next(len(begun) for begun in self._begun if text.endswith(begun, at))
