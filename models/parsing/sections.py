"""An output in a text protocol: sections that labels at the beginnings of lines open.

`Thought:` is reasoning, `Action:` with `Action Input:` a call, `Final Answer:` content, and so is text without a label.
`Observation:` ends the output: results are ours to write, what a model makes up of them does not count. Knows the
order of sections; not how an action is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dialect import Labels, LabelVariants
from .action import Action
from .labels import UNDECIDED, Label, Lines, label_reader
from .message import Draft
from .source import Source
from .tool_names import ToolNames

# What may close behind an input, on its line and on lines of its own.
_CLOSERS_IN_LINE = re.compile(r"[)\]}`*.;, \t]*\s*")
_CLOSERS = re.compile(r"[)\]}`]*\s*")


class Sections:
    """The last stage of a text protocol.

    Args:
        source: where the text comes from.
        draft: where it goes.
        labels, variants: the protocol's words.
        tools: those that are offered, in OpenAI form.
    """

    def __init__(
        self,
        source: Source,
        draft: Draft,
        labels: Labels,
        variants: LabelVariants,
        tools: Sequence[Mapping[str, Any]],
    ) -> None:
        self._source, self._draft, self._labels = source, draft, labels
        self._names = ToolNames(tools, variants)
        self._lines = Lines(source, label_reader(labels, variants))
        self._state: Callable[[], bool] = self._at_start
        self._done = False
        self._lead: list[str] = []  # white space in front of everything
        self._action: Action | None = None
        self._back: Callable[[], bool] = self._in_text  # where it goes on if that is no action
        self._unanswered: list[str] = []  # sections that say nothing to anybody

    @property
    def answering(self) -> bool:
        """Whether the thought, if there is one, lies behind."""
        return self._state not in (self._at_start, self._in_thought)

    @property
    def calling(self) -> str | None:
        """The tool whose call is being written; None where that is not known yet, or no call is."""
        return (self._action.name or None) if self._action else None

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside a thought."""
        return self._state == self._in_thought

    def run(self) -> bool:
        """Read; return whether this stage is over."""
        while not self._done and not self._draft.stopped and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    # -- sections -----------------------------------------------------------------------------------------------------

    def _at_start(self) -> bool:
        """Models begin with white space, which would hide a label."""
        source = self._source
        self._lead.append(source.take_space())
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if not label:
            self._draft.add_text("".join(self._lead))
        return self._enter(self._in_text)

    def _in_text(self) -> bool:
        """Text without a label."""
        return self._read(self._draft.add_text, self._counts_in_text)

    def _counts_in_text(self, label: Label) -> bool:
        if label.kind == "action_input":
            return not self._draft.has_content
        return label.exact or not self._draft.has_content or label.kind in ("action", "thought")

    def _in_answer(self) -> bool:
        """The final answer. It may speak of anything: only labels as we spell them end it."""
        self._lines.take_gap()
        return self._read(self._draft.add_text, self._counts_in_answer)

    def _counts_in_answer(self, label: Label) -> bool:
        return label.exact and label.kind != "action_input"

    def _in_thought(self) -> bool:
        self._unanswered.append(self._lines.take_gap())
        return self._read(self._think, lambda label: True)

    def _think(self, text: str) -> None:
        self._unanswered.append(text)
        self._draft.add_reasoning(text)

    def _in_action(self) -> bool:
        assert self._action
        if not self._action.run():
            return False
        action, self._action = self._action, None
        if action.was_text:
            return self._enter(self._back)
        self._unanswered.append(action.raw)
        if not action.opens_answer:
            return self._enter(self._behind_action)
        self._draft.drop_line_feeds = True
        return self._enter(self._in_answer)

    def _behind_action(self) -> bool:
        """Brackets, quotes and fences may close here; then anything may follow."""
        source, lines = self._source, self._lines
        label = lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label:
            return self._open(label)
        closers = _CLOSERS_IN_LINE if not lines.at_start else _CLOSERS
        taken = lines.take(closers.match(source.text, source.at).end())  # type: ignore[union-attr]  # matches ""
        return bool(taken) or self._enter(self._in_text)

    # -- labels -------------------------------------------------------------------------------------------------------

    def _read(self, take: Callable[[str], None], counts: Callable[[Label], bool]) -> bool:
        label = self._lines.read(take, counts)
        if label:
            return self._open(label)
        if self._source.ended:
            self._settle()
            self._done = True
        return False

    def _open(self, label: Label) -> bool:
        """Leave the present section for the label's."""
        was_text = self._state in (self._in_text, self._in_answer)
        self._draft.end_reasoning()
        text = self._lines.open(label)
        if label.kind in ("action", "action_input"):
            self._back = self._state
            self._action = Action(
                self._source,
                self._lines,
                self._draft,
                self._names,
                self._labels,
                opening=text,
                named=label.kind == "action",
                tentative=was_text and self._draft.has_content,
            )
            return self._enter(self._in_action)
        self._unanswered.append(text)
        if label.kind == "answer":
            self._draft.drop_line_feeds = True
            return self._enter(self._in_answer)
        self._draft.end_text()
        if label.kind == "thought":
            return self._enter(self._in_thought)
        self._settle()
        self._draft.stopped = True
        return False

    def _settle(self) -> None:
        """The output is over. A thought that leads to nothing is a broken format, not an empty answer."""
        if self._unanswered and not self._draft.says_something and not self._source.cut:
            labels = self._labels
            self._draft.add_invalid(
                None,
                "",
                f"expected {labels.action!r} and {labels.action_input!r}, or {labels.answer!r}, each at the beginning "
                "of a line; found neither",
                "".join(self._unanswered),
            )
