"""One action of a text protocol: the name of a tool and its input, in the shapes in which models write them.

The input ends where its JSON value ends; only where it is no JSON does the next label end it. What is not understood is
reported, never guessed: repairing arguments is the business of the tools. Knows labels; not what else an output holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .call_text import Call, arguments_in, calls_in, keywords_in
from .dialect import Labels, LabelVariants
from .draft import Draft
from .json_text import JsonScanner
from .labels import UNDECIDED, Label, Lines
from .source import Source

_MOST_NAME = 200  # characters of the line that names a tool
_DRESS = " \t`'\"*[]<>"  # what models put around a name
_NAME = re.compile(r"[\w.\-]+")
_CALLED = re.compile(r"[`'\"* \t]*([\w.\-]+)[`'\"*]*[ \t]*([(\[{])")
_NAME_AND_MORE = re.compile(r"[`'\"* \t]*([\w.\-]+)[`'\"*.,;]*[ \t]+")
_FENCE = re.compile(r"`{3,8}\w{0,12}[ \t]{0,8}\n|`{3,8}(?:json)?[ \t]{0,8}(?=[{\[])|`{1,8}(?=[^`])")
_FENCE_BEGUN = re.compile(r"`{1,8}(?:(?<=```)\w{0,12}[ \t]{0,8})?\Z")


@dataclass(frozen=True, slots=True)
class Tools:
    """What the reader needs to know of the tools that are offered.

    Args:
        names: all of them.
        text_parameter: of the tools that take one text and nothing else, what it is called.
    """

    names: frozenset[str] = frozenset()
    text_parameter: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Mapping[str, Any]]) -> Tools:
        """From a request's tools."""
        text_parameter = {}
        for function in (tool["function"] for tool in tools):
            properties = (function.get("parameters") or {}).get("properties") or {}
            for key, schema in properties.items() if len(properties) == 1 else ():
                if isinstance(schema, Mapping) and schema.get("type") == "string":
                    text_parameter[str(function["name"])] = str(key)
        return cls(frozenset(str(tool["function"]["name"]) for tool in tools), text_parameter)


class Action:
    """Reads one action, from behind its label up to the end of its input.

    Args:
        source, lines: where the text comes from.
        draft: where the call goes.
        tools: those that are offered.
        labels, variants: the protocol's words.
        opening: the text of the label.
        named: whether the label is that of a name; else it is that of an input without one.
        tentative: whether this is text unless a known tool or an input follows: an answer may hold such a line.
    """

    def __init__(
        self,
        source: Source,
        lines: Lines,
        draft: Draft,
        tools: Tools,
        labels: Labels,
        variants: LabelVariants,
        *,
        opening: str,
        named: bool,
        tentative: bool,
    ) -> None:
        self._source, self._lines, self._draft, self._tools = source, lines, draft, tools
        self._labels, self._variants = labels, variants
        self._tentative = tentative
        self._raw = [opening]
        self._name: str | None = None
        self._fault = "" if named else f"expected {labels.action!r} in front of {labels.action_input!r}"
        self._body: list[str] = []  # the input so far
        self._scanner = JsonScanner()
        self._closer = ""
        self._state: Callable[[], bool] = self._at_name if named else self._at_value
        self._done = False
        self.was_text = False  # it turned out to be no action; the draft has its text
        self.opens_answer = False  # it turned out to be the label of the final answer

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

    def _take_space(self) -> None:
        self._raw.append(self._lines.take_space())

    # -- the name ---------------------------------------------------------------------------------------------------

    def _at_name(self) -> bool:
        """Behind the label; the name may stand on the next line."""
        self._take_space()
        label = self._lines.label()
        if self._source.is_read or label is UNDECIDED:
            return self._end_inside() if self._source.ended else False
        if label:
            self._name = ""
            return self._enter(self._behind_name)
        return self._enter(self._in_name)

    def _in_name(self) -> bool:
        source = self._source
        text, at = source.text, source.at
        fence = source.starts("```")
        if text[at] == "{" or fence:  # the whole call as one JSON value
            return self._enter(self._at_value)
        line_end = text.find("\n", at)
        end = len(text) if line_end < 0 else line_end
        view = min(end, at + _MOST_NAME)
        called = _CALLED.match(text, at, view)
        if (
            called
            and (called.group(1) in self._tools.names or not self._tentative)
            and not any(name.startswith(text[at : called.end()]) for name in self._tools.names)  # it holds a bracket
        ):
            return self._open_brackets(called)
        more = _NAME_AND_MORE.match(text, at, view)
        if more and (label := self._lines.inline_label(more.end())) and label.kind == "action_input":
            self._name = more.group(1)
            self._take(more.end())
            self._raw.append(self._lines.open(label))
            self._tentative = False
            return self._enter(self._at_value)
        if line_end < 0 and not source.ended and end - at < _MOST_NAME:
            return False
        return self._resolve(self._take(view))

    def _resolve(self, line: str) -> bool:
        """The line that should be a name."""
        if self._source.ended and self._source.is_read and self._source.cut:
            return self._end_inside()
        bare = line.strip()
        if bare not in self._tools.names:
            bare = bare.strip(_DRESS).rstrip(".,;:").strip(_DRESS)
        self._name = bare
        return self._enter(self._behind_name)

    def _is_one_of(self, words: Collection[str]) -> bool:
        return self._name is not None and self._name.casefold() in {w.casefold() for w in words}

    @property
    def _means_nothing(self) -> bool:
        name = (self._name or "").casefold()
        words = [w.casefold() for w in self._variants.no_action]
        if self._name is None or name in self._tools.names:
            return False
        return (
            not name or name in words or (not _NAME.fullmatch(name) and name.startswith(tuple(f"{w} " for w in words)))
        )

    @property
    def _means_answer(self) -> bool:
        return self._is_one_of(self._variants.answer_actions) and self._name not in self._tools.names

    # -- input in brackets behind the name ----------------------------------------------------------------------------

    def _open_brackets(self, called: re.Match[str]) -> bool:
        self._name, bracket = called.groups()
        if bracket == "{":
            self._take(called.start(2))
            return self._enter(self._at_value)
        self._take(called.end())
        self._closer = ")" if bracket == "(" else "]"
        return self._enter(self._in_brackets)

    def _in_brackets(self) -> bool:
        """An object, or else all up to the end of the line."""
        source = self._source
        if not self._body:
            self._take_space()
            label = self._lines.label()
            if not source.ended and (source.is_read or label is UNDECIDED):
                return False
            if label:
                self._fault = f"expected {self._closer!r}"
                return self._report()
            if source.text[source.at : source.at + 1] == "{":
                return self._enter(self._at_value)
        line_end = source.text.find("\n", source.at)
        self._body.append(self._take(len(source.text) if line_end < 0 else line_end))
        if line_end < 0 and not source.ended:
            return False
        if source.ended and source.cut and line_end < 0:
            return self._end_inside()
        inner, closer, rest = "".join(self._body).rpartition(self._closer)
        if not closer or rest.strip(" \t`*.;"):
            self._fault = f"expected {self._closer!r} at the end of the line"
            return self._enter(self._in_broken)
        self._body = [inner.strip()]
        if not self._body[0]:
            return self._enter(self._behind_name)
        if self._means_answer:
            self._draft.drop_line_feeds = True
            self._draft.add_text(self._body[0].strip("\"'"))
            return self._finish()
        return self._call_with(lambda text: keywords_in(text) or arguments_in(text, self._text_parameter))

    # -- the input ----------------------------------------------------------------------------------------------------

    def _behind_name(self) -> bool:
        """In front of the label of the input."""
        source = self._source
        self._take_space()
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label and label.kind == "action_input":
            self._raw.append(self._lines.open(label))
            self._tentative = False
            if self._means_answer:
                self.opens_answer = True
                return self._finish()
            return self._enter(self._at_value)
        if self._tentative and self._name not in self._tools.names:
            return self._report()
        if label or source.is_read:
            return self._end_inside() if source.ended and source.cut and not label else self._call_with(arguments_in)
        if source.text[source.at] in "{`":
            return self._enter(self._at_value)
        found = source.text[source.at : source.at + 1]
        self._fault = f"expected {self._labels.action_input!r} behind the name of the tool, found {found!r}"
        return self._enter(self._in_broken)

    def _at_value(self) -> bool:
        source = self._source
        self._take_space()
        label = self._lines.label()
        if not source.ended and (source.is_read or label is UNDECIDED):
            return False
        if label or source.is_read:
            return self._end_inside() if source.ended and source.cut and not label else self._call_with(arguments_in)
        if source.text[source.at] == "`":
            if not source.ended and _FENCE_BEGUN.match(source.text, source.at):
                return False
            if fence := _FENCE.match(source.text, source.at):
                self._take(fence.end())
                return True
        return self._enter(self._in_value if source.text[source.at] in "{[" else self._in_plain)

    def _in_value(self) -> bool:
        """In an object or a list. No label can stand between its tokens: there it was left open."""
        source = self._source
        while not source.is_read and not self._scanner.done:
            if not self._scanner.in_string:
                label = self._lines.label()
                if label is UNDECIDED:
                    return False
                if label:
                    self._fault = "the JSON value was left open"
                    return self._report()
            line_end = source.text.find("\n", source.at)
            end = self._scanner.feed(source.text, source.at, len(source.text) if line_end < 0 else line_end + 1)
            self._body.append(self._take(end))
            if self._scanner.broken:
                self._fault = f"{self._scanner.broken} at character {sum(map(len, self._body))}"
                return self._enter(self._in_broken)
        if self._scanner.done:
            return self._call_with(arguments_in)
        return self._end_inside() if source.ended else False

    def _in_plain(self) -> bool:
        """No JSON container: all up to the next label."""
        label = self._lines.read(self._gather, _any_label)
        if not label and not self._source.ended:
            return False
        if not label and self._source.cut:
            return self._end_inside()
        return self._call_with(lambda text: arguments_in(text.strip().rstrip("`"), self._text_parameter))

    def _in_broken(self) -> bool:
        """Malformed: only the next label can end it."""
        label = self._lines.read(self._gather, _any_label)
        if not label and not self._source.ended:
            return False
        return self._report() if label or not self._source.cut else self._end_inside()

    def _gather(self, text: str) -> None:
        self._raw.append(text)
        self._body.append(text)

    # -- what it comes to ---------------------------------------------------------------------------------------------

    @property
    def _text_parameter(self) -> str | None:
        return self._tools.text_parameter.get(self._name or "")

    def _call_with(self, arguments: Callable[[str], str]) -> bool:
        """The input is whole: a call, or the report of what is wrong with it."""
        body = "".join(self._body)
        if self._fault:
            return self._report()
        try:
            if self._name is None:
                calls = calls_in(body)
            elif self._means_nothing or self._means_answer:
                if body.strip().casefold() not in ("", "{}", *(w.casefold() for w in self._variants.no_action)):
                    raise ValueError(f"{self._labels.action!r} names no tool, yet there is an input")
                calls = []
            elif self._name not in self._tools.names and not _NAME.fullmatch(self._name):
                raise ValueError(f"expected the name of one tool, found {self._name[:80]!r}")
            else:
                calls = [Call(self._name, arguments(body))]
        except ValueError as error:
            self._fault = str(error)
            return self._report()
        if self._tentative and any(call.name not in self._tools.names for call in calls):
            return self._report()
        for call in calls:
            self._draft.add_call(call)
        return self._finish()

    def _end_inside(self) -> bool:
        """The output ended in the action."""
        rest = self._source.take()
        self._gather(rest)
        if self._means_nothing and not self._source.cut:
            return self._finish()
        why = self._source.why_ended
        self._fault = f"{self._fault}; {why}" if self._fault else why
        return self._report()

    def _report(self) -> bool:
        """It cannot be run, or it is text after all."""
        if self._tentative and self._name not in self._tools.names:
            self._draft.add_text(self.raw)
            self.was_text = True
            return self._finish()
        self._draft.end_text()
        self._draft.add_invalid(self._name or None, "".join(self._body), self._fault, self.raw)
        return self._finish()


def _any_label(label: Label) -> bool:
    return True
