"""One action of a text protocol: the name of a tool and its input, in the shapes in which models write them.

What is not understood is reported, never guessed: repairing arguments is the business of the tools. Knows labels; not
what else an output holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..dialect import Labels
from .action_input import ActionInput
from .call_text import Call, arguments_in, calls_in, keywords_in
from .labels import UNDECIDED, Lines
from .message import Draft
from .source import Source
from .tool_names import ToolNames

_MOST_NAME = 256  # characters of the line that names a tool
_CALLED = re.compile(r"[`'\"* \t]*([\w.\-]+)[`'\"*]*[ \t]*([(\[{])")
_NAME_AND_MORE = re.compile(r"[`'\"* \t]*([\w.\-]+)[`'\"*.,;]*[ \t]+")
_CLOSER_OF = {"(": ")", "[": "]"}


class Action:
    """Reads one action, from behind its label up to the end of its input.

    Args:
        source, lines: where the text comes from.
        draft: where the call goes.
        names: judges what it names.
        labels: the protocol's words, for what is said of faults.
        opening: the text of the label.
        named: whether the label is that of a name; else it is that of an input without one.
        tentative: whether this is text unless an offered tool or an input follows: an answer may hold such a line.
    """

    def __init__(
        self,
        source: Source,
        lines: Lines,
        draft: Draft,
        names: ToolNames,
        labels: Labels,
        *,
        opening: str,
        named: bool,
        tentative: bool,
    ) -> None:
        self._source, self._lines, self._draft, self._names, self._labels = source, lines, draft, names, labels
        self._tentative = tentative
        self._raw = [opening]
        self._name: str | None = None
        self._fault = "" if named else f"expected {labels.action!r} in front of {labels.action_input!r}"
        self._brackets: list[str] = []  # what stands in brackets behind the name
        self._closer = ""
        self._input = ActionInput(source, lines, self._raw)
        self._state: Callable[[], bool] = self._at_name if named else self._in_input
        self._done = False
        self.was_text = False  # it turned out to be no action; the draft has its text
        self.opens_answer = False  # it turned out to be the label of the final answer

    @property
    def name(self) -> str | None:
        """The tool, once its name is read."""
        return self._name

    @property
    def raw(self) -> str:
        """All its text."""
        return "".join(self._raw)

    def run(self) -> bool:
        """Read; return whether the action is over."""
        while not self._done and self._state():
            pass
        return self._done

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _finish(self) -> bool:
        self._done = True
        return False

    def _take(self, end: int) -> str:
        self._raw.append(self._lines.take(end))
        return self._raw[-1]

    # -- the name -----------------------------------------------------------------------------------------------------

    def _at_name(self) -> bool:
        """Behind the label; the name may stand on the next line."""
        source = self._source
        self._raw.append(self._lines.take_space())
        label = self._lines.label()
        if source.is_read or label is UNDECIDED:
            return self._report("", source.why_ended) if source.ended else False
        if label:
            self._name = ""
            return self._enter(self._behind_name)
        return self._enter(self._in_name)

    def _in_name(self) -> bool:
        source = self._source
        text, at = source.text, source.at
        line_end = text.find("\n", at)
        end = len(text) if line_end < 0 else line_end
        if (text[at] == "{" or source.starts("```")) and not self._names.may_go_on(text[at:end]):
            return self._enter(self._in_input)  # the whole call as one JSON value
        view = min(end, at + _MOST_NAME)
        called = _CALLED.match(text, at, view)
        if called and (self._names.is_offered(called.group(1)) or not self._tentative):
            holds_bracket = self._names.may_go_on(text[at : called.end()])
            if not holds_bracket:
                return self._open_brackets(called)
        more = _NAME_AND_MORE.match(text, at, view)
        label = self._lines.inline_label(more.end()) if more else None
        if more and label and label.kind == "action_input" and not self._names.may_go_on(text[at : label.end]):
            self._name = more.group(1)
            self._take(more.end())
            self._raw.append(self._lines.open(label))
            self._tentative = False
            return self._enter(self._in_input)
        if line_end < 0 and not source.ended and end - at < _MOST_NAME:
            return False
        line = self._take(view)
        if line_end < 0 and source.cut and source.is_read:
            return self._report(line, source.why_ended)
        self._name = self._names.clean(line)
        return self._enter(self._behind_name)

    def _behind_name(self) -> bool:
        """In front of the label of the input."""
        source = self._source
        self._raw.append(self._lines.take_space())
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label and label.kind == "action_input":
            self._raw.append(self._lines.open(label))
            self._tentative = False
            if self._names.means_answer(self._name):
                self.opens_answer = True
                return self._finish()
            return self._enter(self._in_input)
        if self._is_text():
            return self._report("", "")
        if label or source.is_read:
            return self._report("", source.why_ended) if source.cut and not label else self._call_with("", arguments_in)
        char = source.text[source.at]
        if char not in "{`":
            fault = f"expected {self._labels.action_input!r} behind the name of the tool, found {char!r}"
            self._input = ActionInput(source, self._lines, self._raw, fault)
        return self._enter(self._in_input)

    # -- the input ----------------------------------------------------------------------------------------------------

    def _open_brackets(self, called: re.Match[str]) -> bool:
        self._name, bracket = called.groups()
        if bracket == "{":
            self._take(called.start(2))
            return self._enter(self._in_input)
        self._take(called.end())
        self._closer = _CLOSER_OF[bracket]
        return self._enter(self._at_brackets)

    def _at_brackets(self) -> bool:
        source = self._source
        self._raw.append(self._lines.take_space())
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label:
            return self._report("", f"expected {self._closer!r}")
        is_object = not source.is_read and source.text[source.at] == "{"
        return self._enter(self._in_input if is_object else self._in_brackets)

    def _in_brackets(self) -> bool:
        """No object: all up to the end of the line."""
        source = self._source
        line_end = source.text.find("\n", source.at)
        self._brackets.append(self._take(len(source.text) if line_end < 0 else line_end))
        if line_end < 0 and not source.ended:
            return False
        text = "".join(self._brackets)
        if line_end < 0 and source.cut:
            return self._report(text, source.why_ended)
        text, closer, rest = text.rpartition(self._closer)
        if not closer or rest.strip(" \t`*.;"):
            return self._report("".join(self._brackets), f"expected {self._closer!r} at the end of the line")
        if not text.strip():
            return self._enter(self._behind_name)
        if self._names.means_answer(self._name):
            self._draft.drop_line_feeds = True
            self._draft.add_text(text.strip("\"' "))
            return self._finish()
        parameter = self._names.text_parameter(self._name or "")
        return self._call_with(text, lambda inner: keywords_in(inner) or arguments_in(inner, parameter))

    def _in_input(self) -> bool:
        if not self._input.run():
            return False
        text = self._input.text
        if fault := "; ".join(filter(None, (self._fault, self._input.fault))):
            return self._report(text, fault)
        if self._input.is_plain and self._names.is_no_input(text):
            text = ""
        parameter = self._names.text_parameter(self._name or "") if self._input.is_plain else None
        return self._call_with(text, lambda inner: arguments_in(inner, parameter))

    # -- what it comes to ---------------------------------------------------------------------------------------------

    def _is_text(self) -> bool:
        return self._tentative and not self._names.is_offered(self._name)

    def _call_with(self, text: str, arguments: Callable[[str], str]) -> bool:
        """The input is whole: a call, or the report of what is wrong with it."""
        try:
            calls = self._calls(text, arguments)
        except ValueError as error:
            return self._report(text, str(error))
        if self._tentative and not all(self._names.is_offered(call.name) for call in calls):
            return self._report(text, "")
        for call in calls:
            self._draft.add_call(call)
        return self._finish()

    def _calls(self, text: str, arguments: Callable[[str], str]) -> list[Call]:
        if self._name is None:
            return calls_in(text)
        if self._names.means_nothing(self._name) or self._names.means_answer(self._name):
            if not self._names.is_no_input(text):
                raise ValueError(f"{self._labels.action!r} names no tool, yet there is an input")
            return []
        if not self._names.could_be_tool(self._name):
            raise ValueError(f"expected the name of one tool, found {self._name[:80]!r}")
        return [Call(self._name, arguments(text))]

    def _report(self, text: str, fault: str) -> bool:
        """It cannot be run, or it is text after all."""
        if self._is_text():
            self._draft.add_text(self.raw)
            self.was_text = True
        else:
            self._draft.end_text()
            self._draft.add_invalid(self._name or None, text, fault, self.raw)
        return self._finish()
