"""The grammar of a reply: thinking and text free, every call's arguments by its tool's schema.

Reads the dialect's settings and writes llguidance's Lark; knows no tokens. Key order of arguments is the schema's:
`properties` in order, then required names without a property, then extras.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from laploop.engine.grammar import Grammar, json_rule

from .dialect import Dialect, Labels, get_dialect
from .requests.request import Request, ToolChoice
from .schemas.schema import arguments_schema, check_schema, closed, enforced

_MOST_NAMED = 5  # keywords in a warning
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
        opened, closed = (writer.mark(m) for m in dialect.think)
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
        for i, function in enumerate(functions):
            head = json.dumps(
                '{"name": ' + json.dumps(function["name"], ensure_ascii=False) + ', "arguments": ',
                ensure_ascii=False,
            )
            self.rules.append(f'call_{i}: {head} args_{i} "}}"\nargs_{i}: {_arguments_rule(function)}\n')
        self.rule("call", " | ".join(f"call_{i}" for i in range(len(functions))))
        blocks = []
        for i, wrapper in enumerate(w for w in self.dialect.wrappers if w.is_written):
            repeats = f"{{0,{MOST_MARKED_CALLS - 1}}}"
            more = f' ("\\n" call){repeats}' if parallel and wrapper.many else ""
            block = f'{self.mark(wrapper.open)} "\\n" call{more} "\\n" {self.mark(wrapper.close)}'
            again = f' ("\\n" {block}){repeats}' if parallel and not wrapper.many and not wrapper.whole_answer else ""
            blocks.append(self.rule(f"block_{i}", block + again))
        return self.rule("calls", " | ".join(blocks))

    def grammar(self, start: str) -> Grammar:
        return Grammar(f"start: {start}\n" + "".join(self.rules), tuple(self.marks))


def _arguments_rule(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters") or {}
    where = f"tool {function['name']!r}"
    check_schema(parameters, where)
    schema = arguments_schema(parameters, strict=bool(function.get("strict")))
    return _enforceable(json.dumps(schema), where)


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
