"""The thinking block in front of an answer: reasoning up to its closing tag, the rest is the answer's.

Knows the two tags; not what an answer looks like, but for the marks that show that it has begun.
"""

from __future__ import annotations

from collections.abc import Callable

from .message import Draft
from .source import Marks, Source


class Thoughts:
    """The first stage of a family that thinks.

    Args:
        source: where the text comes from.
        draft: where the reasoning goes.
        tags: opening and closing tag.
        opened: whether the prompt has opened the block.
        allowed: whether the prompt let the model think. Then text before a lone closing tag is reasoning, and the
            answer of a model that should have opened a block but did not is held back until that is decided.
        answer_marks: texts that show that the answer has begun.
    """

    def __init__(
        self, source: Source, draft: Draft, tags: tuple[str, str], *, opened: bool, allowed: bool, answer_marks: Marks
    ) -> None:
        self._source, self._draft = source, draft
        self._open, self._close = tags
        self._closing = Marks(tags[1:])
        self._answer_marks = answer_marks
        self._opened, self._allowed = opened, allowed
        self._held: list[str] = []  # text that is reasoning or an answer, depending on what follows
        self._state: Callable[[], bool] = self._at_start
        self._done = False

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside a thinking block."""
        return not self._done and (self._opened or self._state == self._in_block)

    calling = None

    @property
    def answering(self) -> bool:
        """Whether the text so far looks like an answer."""
        return self._done or self._state == self._unopened

    def run(self) -> bool:
        """Read; return whether this stage is over, so that the rest is the next one's."""
        while not self._done and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _at_start(self) -> bool:
        source = self._source
        self._held.append(source.take_space())
        opens = source.starts(self._open) if not source.is_read else None
        if opens is None and not source.ended:
            return False
        if opens:  # some models repeat the tag that the prompt opened
            source.at += len(self._open)
            self._held.clear()
        if opens or self._opened:
            self._draft.add_reasoning("".join(self._held))
            return self._enter(self._in_block)
        return self._enter(self._unopened) if self._allowed else self._release()

    def _unopened(self) -> bool:
        """Thinking was on and no block was opened: a lone closing tag makes all before it reasoning."""
        source = self._source
        at = source.text.find(self._close, source.at)
        mark = self._answer_marks.search(source.text, source.at)
        if at >= 0 and not (mark and mark.start() < at):
            self._held.append(source.take(at))
            self._draft.add_reasoning("".join(self._held))
            self._held.clear()
            return self._enter(self._in_block)
        if mark or source.ended:
            return self._release()
        settled = min(m.settled(source.text, source.at) for m in (self._closing, self._answer_marks))
        self._held.append(source.take(settled))
        return False

    def _release(self) -> bool:
        """The held text was an answer after all."""
        self._source.put_back("".join(self._held))
        self._held.clear()
        self._done = True
        return False

    def _in_block(self) -> bool:
        source = self._source
        at = source.text.find(self._close, source.at)
        if at < 0:
            settled = len(source.text) if source.ended else self._closing.settled(source.text, source.at)
            self._draft.add_reasoning(source.take(settled))
            self._done = source.ended
            return False
        self._draft.add_reasoning(source.take(at))
        source.at += len(self._close)
        self._draft.end_reasoning()
        self._draft.drop_line_feeds = True
        self._done = True
        return False
