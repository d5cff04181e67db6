"""The rescue of an answer that is a call and nothing else, but for the family's marks.

A bare JSON object, a list of them, or either in a code fence counts as a call when it has the shape of one and names
known tools only, and when nothing else is said but for stray marks that the family leaves in front: an answer that
merely contains such text is an answer. Until that is decided the text is held back, so every reason to give up is
looked for as early as possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from ..dialect import Wrapper
from .call_text import ARGUMENT_KEYS, LIST_KEY, NAME_KEYS, Call, bare_calls_in, name_in
from .json_text import JsonScanner
from .message import Draft
from .source import Source

_FENCE = re.compile(r"```(?:json|tool_call|xml)?[ \t]*\n")
_FENCE_BEGUN = re.compile(r"`{1,2}\Z|```[a-z_]{0,9}[ \t]{0,8}\Z")
# The first key of the first object, and the beginning of a value that may still turn out to have it.
_FIRST_KEY = re.compile(r'[\[{\s]*"([^"\\]*)"\s*:')
_FIRST_KEY_BEGUN = re.compile(r'[\[{\s]*(?:"[^"\\]*(?:"\s*)?)?\Z')
_FIRST_NAME = re.compile(r'[\[{\s]*"[^"\\]*"\s*:\s*"([^"\\]*)"')
_FIRST_NAME_BEGUN = re.compile(r'[\[{\s]*"[^"\\]*"\s*:\s*(?:"[^"\\]*)?\Z')
_KEYS = frozenset({LIST_KEY, "id", "type", *NAME_KEYS, *ARGUMENT_KEYS})
_MOST_HEAD = 400  # characters up to the end of the first name; what needs more is no call


class BareCall:
    """The stage between the thoughts and the answer: takes the output if it is a bare call, else nothing.

    Args:
        source: where the text comes from.
        draft: where the calls go.
        known: names of the tools that are offered.
        stray: characters in front that say nothing (`Dialect.stray`).
        wrappers: the family's; a fence among them is no rescue: what stands in it is left to the next stage.
        open_block: tells the next stage that it begins in a block: its wrapper and the text that opened it.
    """

    def __init__(
        self,
        source: Source,
        draft: Draft,
        known: Collection[str],
        stray: str,
        wrappers: Sequence[Wrapper],
        open_block: Callable[[Wrapper, str], None],
    ) -> None:
        self._source, self._draft, self._known, self._stray = source, draft, known, stray
        self._native = next((w for w in wrappers if w.whole_answer), None)
        self._open_block = open_block
        self._fenced = False
        self._closes = ("```", *(w.close for w in wrappers if w.close and not w.whole_answer))
        self._before: list[str] = []  # white space, stray marks, and the line that opens a fence
        self._taken: list[str] = []  # all behind that
        self._value: list[str] = []
        self._scanner = JsonScanner()
        self._head: str | None = ""  # the beginning of the first value, until it was judged
        self._name = ""  # the tool that the first value names, where it says so first
        self._calls: list[Call] = []
        self._state: Callable[[], bool] = self._at_start
        self._done = False

    in_reasoning = False
    answering = True

    @property
    def calling(self) -> str | None:
        """The tool whose call is being written; None where that is not known, or no call is."""
        return self._name or None

    def run(self) -> bool:
        """Read; return whether this stage is over, so that the rest is the next one's."""
        while not self._done and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _take(self, end: int) -> str:
        self._taken.append(self._source.take(end))
        return self._taken[-1]

    # -- how it ends ------------------------------------------------------------------------------------------------

    def _give_up(self) -> bool:
        """It is an answer: all of it is the next stage's."""
        self._source.put_back("".join(self._before + self._taken))
        self._done = True
        return False

    def _to_block(self, wrapper: Wrapper) -> bool:
        """It is a call in the family's own fence: the next stage's too, but as a call."""
        self._source.put_back("".join(self._taken))
        self._open_block(wrapper, "".join(self._before).lstrip())
        self._done = True
        return False

    def _settle(self) -> bool:
        """The output is over, and nothing but calls was said."""
        unfinished = self._state == self._in_value
        if not self._calls and not (unfinished and self._name):
            return self._give_up()
        for call in self._calls:
            self._draft.add_call(call)
        if unfinished:
            text = "".join(self._value)
            raw = "".join(self._before + self._taken)
            self._draft.add_invalid(self._name if not self._calls else name_in(text), text, self._source.why_ended, raw)
        self._done = True
        return False

    # -- the parts of such an answer --------------------------------------------------------------------------------

    def _at_start(self) -> bool:
        source = self._source
        self._before.append(source.take_space())
        if source.is_read:
            return self._give_up() if source.ended else False
        if source.text[source.at] in self._stray:
            self._before.append(source.take(source.at + 1))
            return True
        return self._enter(self._at_fence if source.text[source.at] == "`" else self._at_value)

    def _at_fence(self) -> bool:
        source = self._source
        if found := _FENCE.match(source.text, source.at):
            self._before.append(source.take(found.end()))
            self._fenced = True
            return self._enter(self._at_value)
        if not source.ended and _FENCE_BEGUN.match(source.text, source.at):
            return False
        return self._give_up()

    def _at_value(self) -> bool:
        """In front of a value, or behind the last one."""
        source = self._source
        self._taken.append(source.take_space())
        if source.is_read:
            return self._settle() if source.ended else False
        if source.text[source.at] in "{[":
            self._value, self._scanner = [], JsonScanner()
            return self._enter(self._in_value)
        if not self._calls:
            return self._give_up()
        if source.text[source.at] in "}],":  # one bracket or comma too many
            self._take(source.at + 1)
            return True
        starts = [source.starts(close) for close in self._closes]
        if True in starts:
            self._take(source.at + len(self._closes[starts.index(True)]))
            return self._enter(self._behind)
        return False if None in starts and not source.ended else self._give_up()

    def _in_value(self) -> bool:
        source = self._source
        self._value.append(self._take(self._scanner.feed(source.text, source.at)))
        promising = self._promises()
        if promising is False:
            return self._give_up()
        if self._fenced and self._native and self._name:
            return self._to_block(self._native)
        if self._scanner.done:
            try:
                self._calls += bare_calls_in("".join(self._value), self._known)
            except ValueError:
                return self._give_up()
            return self._to_block(self._native) if self._fenced and self._native else self._enter(self._at_value)
        if self._scanner.broken:
            return self._give_up()
        return self._settle() if source.ended else False

    def _promises(self) -> bool | None:
        """Whether the first value begins like a call to a known tool; None: it is too early to say."""
        if self._head is None:
            return True
        self._head = head = (self._head + self._value[-1])[:_MOST_HEAD]
        undecided = None if len(head) < _MOST_HEAD and not self._scanner.done else False
        if not (key := _FIRST_KEY.match(head)):
            return undecided if _FIRST_KEY_BEGUN.match(head) else False
        if key.group(1) not in _KEYS:
            return False
        if key.group(1) in NAME_KEYS:
            if name := _FIRST_NAME.match(head):
                if name.group(1) not in self._known:
                    return False
                self._name = name.group(1)
            elif _FIRST_NAME_BEGUN.match(head):
                return undecided
        self._head = None
        return True

    def _behind(self) -> bool:
        """Behind the closing mark nothing may follow."""
        source = self._source
        self._taken.append(source.take_space())
        if not source.is_read:
            return self._give_up()
        return self._settle() if source.ended else False
