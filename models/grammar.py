"""The grammar of a reply: thinking and text free, every call's arguments by its tool's schema.

Reads the dialect's settings and writes llguidance's Lark; knows no tokens. Key order of arguments is the schema's:
`properties` in order, then required names without a property, then extras.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from laploop.engine.grammar import Grammar, json_rule

from .argument_rules import ENDS_OF_FORMATS, ArgumentRules
from .dialect import CallShape, Dialect, Labels, Wrapper, get_dialect
from .errors import RequestError
from .parsing.call_scanners import can_name
from .requests.request import Request, ToolChoice
from .schemas.schema import arguments_schema, check_schema, closed, enforced

_MOST_NAMED = 5  # keywords in a warning
_CALL_ID = "/[a-zA-Z0-9]{9}/"
# Most calls in a reply of the text protocol: a small model may repeat the same one until it is stopped.
MOST_CALLS = 8
# And in the marks of the other families, where calls are for a machine and cost less; some write on without an end too.
MOST_MARKED_CALLS = 16


def tool_grammar(
    tools: Sequence[Mapping[str, Any]],
    tool_choice: ToolChoice = "auto",
    parallel_tool_calls: bool = True,
    dialect: str | Dialect = "qwen3",
    enable_thinking: bool = False,
) -> Grammar:
    """The grammar of the replies to a request with these tools.

    Args:
        tools: in OpenAI form.
        tool_choice: as in the request.
        parallel_tool_calls: whether a reply may hold several calls.
        dialect: name or settings of the family's syntax.
        enable_thinking: whether the reply may begin with a thinking block.

    Raises:
        RequestError: a schema is invalid; names tool, pointer and keyword.
    """
    request = Request.of(
        [{"role": "user", "content": ""}],
        {"tools": tools, "tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls},
    )
    return reply_grammar(request, get_dialect(dialect), thinking="allowed" if enable_thinking else "none")


def reply_grammar(request: Request, dialect: Dialect, thinking: str) -> Grammar:
    """The grammar of the reply to `request`.

    Args:
        request: tools, tool_choice, parallel_tool_calls and response_format count.
        dialect: the family's syntax.
        thinking: "none", "allowed" (the reply may open a block) or "open" (the prompt has opened one).
    """
    writer = _Writer(dialect)
    names = set(request.allowed_names)
    allowed = [t["function"] for t in request.tools if t["function"]["name"] in names]
    answer = _answer(writer, request, bool(allowed) or bool(request.tools))
    if dialect.labels:
        return writer.grammar(_protocol(writer, dialect.labels, request, allowed, answer, thinking))
    body = answer
    if allowed:
        calls = writer.calls(allowed, request.parallel_tool_calls)
        # The empty reply stays possible: it says that there is nothing to call, and ChatModel asks again for words.
        # A reply that has to be JSON has no place for words: calls, or the JSON.
        before = writer.text_before_calls() if answer == "TEXT" else ""
        body = calls if request.must_call else f"({answer}? | {before} {calls})"
    if dialect.think and thinking != "none":
        opened, closed = writer.think_marks()
        block = f"think: THOUGHT? {closed} NEWLINES?\nTHOUGHT: /(.|\\n)+/\nNEWLINES: /\\n+/\n"
        writer.rules.append(block)
        body = f"think {body}" if thinking == "open" else f"({opened} think)? {body}"
    return writer.grammar(body)


def _protocol(
    writer: _Writer,
    labels: Labels,
    request: Request,
    allowed: Sequence[Mapping[str, Any]],
    answer: str,
    thinking: str,
) -> str:
    """A reply in the text protocol, spelled as `text_protocol.assistant_text` spells it: a thought of one line, then
    calls or the final answer.

    Models that have called want to write the result too. Were they not let, they would write one call after the other
    instead; so the label of a result may follow, and then nothing more. The same holds behind a final answer.
    """
    bodies = []
    if allowed:
        for i, function in enumerate(allowed):
            head = f"{labels.action} {function['name']}\n{labels.action_input} "
            writer.rule(f"call_{i}", json.dumps(head, ensure_ascii=False) + f" args_{i}")
            writer.rule(f"args_{i}", _arguments_rule(function))
        writer.rule("call", " | ".join(f"call_{i}" for i in range(len(allowed))))
        more = f' ("\\n" call){{0,{MOST_CALLS - 1}}} ({json.dumps(chr(10) + labels.observation)})?'
        bodies.append(writer.rule("calls", "call" + (more if request.parallel_tool_calls else "")))
    if not (allowed and request.must_call):
        bodies.append(writer.rule("final", json.dumps(labels.answer + " ") + " " + answer))
    body = "(" + " | ".join(bodies) + ")"
    if thinking == "none":
        return body
    # Small models go on with the next label instead of ending the line, in Chinese above all.
    words = "|".join(name.rstrip(":") for name in (labels.observation, labels.answer, labels.action_input))
    writer.rules.append(
        "THOUGHT: LINE & ~LABELLED\nLINE: /( ([^\\s][^\\r\\n]*)?)?\\n/\n"
        f"LABELLED: /(.|\\n)*({words}|{labels.action}|{labels.thought})(.|\\n)*/\n"
    )
    return f"({json.dumps(labels.thought)} THOUGHT)? {body}"


def _answer(writer: _Writer, request: Request, guarded: bool) -> str:
    """The rule of a reply without calls."""
    schema = request.answer_schema
    if schema is None:
        return writer.text(guarded)
    check_schema(schema, "response_format")
    schema = closed(schema, strict=request.answer_is_strict)
    return writer.rule("answer", _enforceable(json.dumps(schema), "response_format"))


class _Writer:
    """Collects rules and marks."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.rules: list[str] = []
        self.marks: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.marks:
            self.marks.append(text)
        return f"mark_{self.marks.index(text)}"

    def think_marks(self) -> list[str]:
        """What opens a thinking block, and what closes it."""
        return [self.texts(tag) if self.dialect.marks else self.mark(tag) for tag in self.dialect.think or ()]

    def rule(self, name: str, body: str) -> str:
        self.rules.append(f"{name}: {body}\n")
        return name

    def text(self, guarded: bool) -> str:
        """Free text of at least one character; where calls are possible it may not begin like a call in another
        wrapper."""
        first = self.dialect.text_never_starts_with
        if labels := self.dialect.labels:  # one space stands between label and text already
            ends, others = (
                f"{labels.observation}|{labels.thought}",
                f"{labels.action}|{labels.action_input}|{labels.answer}",
            )
            self.rules.append(
                "TEXT: ANSWER & ~RUN_ON\nANSWER: /[^\\s](.|\\n)*/\n"
                f"RUN_ON: /(.|\\n)*\\n(({ends})(.|\\n)+|({others})(.|\\n)*)/\n"
            )
        elif guarded and first:
            stops = "".join("\\" + c if c in "[]\\^-&~" else c for c in first)
            self.rules.append(f"TEXT: /[^{stops}\\s](.|\\n)*/\n")
        else:
            self.rules.append("TEXT: /(.|\\n)+/\n")
        return "TEXT"

    def text_before_calls(self) -> str:
        """Text in front of a call: only where the call begins with a mark that text cannot hold."""
        return "TEXT?" if not self.dialect.text_never_starts_with else ""

    def calls(self, functions: Sequence[Mapping[str, Any]], parallel: bool) -> str:
        """One or more calls in one of the family's wrappers."""
        written = [w for w in self.dialect.wrappers if w.is_written]
        for n, shape in enumerate(dict.fromkeys(w.shape for w in written)):
            name = f"call{n or ''}"
            for i, function in enumerate(functions):
                self.call(name, i, shape, function)
            self.rule(name, " | ".join(f"{name}_{i}" for i in range(len(functions))))
        return self.rule(
            "calls", " | ".join(self.block(i, wrapper, written, parallel) for i, wrapper in enumerate(written))
        )

    def call(self, rule: str, i: int, shape: CallShape, function: Mapping[str, Any]) -> None:
        """The rule of one tool's call, and that of its arguments."""
        name = json.dumps(function["name"], ensure_ascii=False)[1:-1] if shape.is_json else function["name"]
        if not shape.is_json and not can_name(shape, name):
            raise RequestError(
                f"the tool name {name!r} has no place in this model's way of calling; use letters, digits, _ and -"
            )
        args = f"args{rule[4:]}_{i}"
        told = f"{self.texts(shape.id_behind_name)} {_CALL_ID} " if shape.id_behind_name else ""
        head = (
            f"{self.texts(shape.head + name)} {told}{self.texts(shape.middle)}"
            if told
            else self.texts(shape.head + name + shape.middle)
        )
        tail = self.texts(shape.tail)
        if shape.id_behind_arguments:
            tail = f"({self.texts(shape.id_behind_arguments)} {_CALL_ID} {self.texts(chr(34))})? {tail}"
        self.rule(f"{rule}_{i}", " ".join(part for part in (head, args, tail) if part))
        if shape.arguments == "json":
            self.rule(args, _arguments_rule(function))
        else:
            where, schema = _arguments_schema(function)
            rules = ArgumentRules(
                shape, schema, where, self.rule, self.mark, lambda s: _enforceable(json.dumps(s), where), args
            )
            self.rule(args, rules.arguments())

    def texts(self, text: str) -> str:
        """A text, and the marks in it."""
        marks = self.dialect.marks
        if not text:
            return ""
        if not marks:
            return json.dumps(text, ensure_ascii=False)
        pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
        return " ".join(self.mark(p) if p in marks else json.dumps(p, ensure_ascii=False) for p in pieces if p)

    def block(self, i: int, wrapper: Wrapper, written: Sequence[Wrapper], parallel: bool) -> str:
        """The calls in one wrapper."""
        shapes = list(dict.fromkeys(w.shape for w in written))
        call = f"call{shapes.index(wrapper.shape) or ''}"
        repeats = f"{{0,{MOST_MARKED_CALLS - 1}}}"
        joint = None if wrapper.joint is None else json.dumps(wrapper.joint) + " " if wrapper.joint else ""
        more = f" ({joint}{call}){repeats}" if parallel and wrapper.many and joint is not None else ""
        parts = [
            self.mark(wrapper.open) if wrapper.open else "",
            json.dumps(wrapper.lead) if wrapper.lead else "",
            call + more,
            json.dumps(wrapper.trail) if wrapper.trail else "",
            self.mark(wrapper.close) if wrapper.close else "",
        ]
        block = " ".join(part for part in parts if part)
        is_repeated = parallel and not wrapper.many and not wrapper.whole_answer and joint is not None
        return self.rule(f"block_{i}", block + (f" ({joint}{block}){repeats}" if is_repeated else ""))

    def grammar(self, start: str) -> Grammar:
        notations = {w.shape.arguments for w in self.dialect.wrappers}
        end = "\n</parameter>\n" if "tags" in notations else ""
        closers = tuple(text + end for text in ("", *ENDS_OF_FORMATS) if text + end) if notations - {"json"} else ()
        return Grammar(f"start: {start}\n" + "".join(self.rules), tuple(self.marks), closers)


def _arguments_rule(function: Mapping[str, Any]) -> str:
    where, schema = _arguments_schema(function)
    return _enforceable(json.dumps(schema), where)


def _arguments_schema(function: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Whose arguments they are, for messages, and their schema."""
    parameters = function.get("parameters") or {}
    where = f"tool {function['name']!r}"
    check_schema(parameters, where)
    return where, arguments_schema(parameters, strict=bool(function.get("strict")))


@lru_cache(maxsize=512)
def _enforceable(schema_text: str, where: str) -> str:
    """The rule for the part of a schema that can be enforced, with one warning for the rest."""
    part = enforced(json.loads(schema_text))
    if part.left_out:
        said = [f"{keyword} at {pointer or '/'} ({why})" for pointer, keyword, why in part.left_out]
        more = f" and {len(said) - _MOST_NAMED} more" if len(said) > _MOST_NAMED else ""
        shown = "; ".join(said[:_MOST_NAMED]) + more
        warnings.warn(f"{where}: enforced in part, the rest is validated after generation: {shown}", stacklevel=2)
    return json_rule(part.schema)
