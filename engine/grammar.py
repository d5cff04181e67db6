"""What a generation may look like: a grammar as a value, compiled for a vocabulary when it is used.

llguidance does the work (Lark syntax with %json). This module knows how to write a grammar down and whether a text
matches it; not what a tool call is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import llguidance

from .errors import GrammarError
from .values import shown

# Exactly json.dumps's spelling: no free white space that a model could run away in, and more forced tokens.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# The defaults stop some legitimate schemas in the middle of a call (grammar-notes: a failed matcher allows only EOS).
# A row has four items for each optional key that may come next.
_LIMITS = llguidance.LLParserLimits(
    max_items_in_row=20_000,
    initial_lexer_fuel=20_000_000,
    step_lexer_fuel=4_000_000,
    step_max_items=1_000_000,
    verbose_errors=False,
)
# Marks that llguidance takes by their text, and those that it takes by their token only.
_NAMED_MARK = re.compile(r'<[^<>"]+>')
_NUMBERED_MARK = re.compile(r"<[^<>]+>|\[/?[A-Z_]+\]")
# What the lexer has to count or match character by character: most of what it can give up on.
_COUNTED = frozenset(["minLength", "maxLength"])
_MATCHED = _COUNTED | {"pattern", "format", "multipleOf"}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in llguidance's Lark dialect.

    Args:
        rules: Lark source with the rule `start`. A mark such as <tool_call> is named by a rule `mark_0`, `mark_1`, …
            that is left out here.
        marks: the texts of those marks. Where the vocabulary has a special token of that text it stands for the token,
            elsewhere for the text.
        closers: what ends the texts in it that no quotation mark ends.
    """

    rules: str
    marks: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rules, str):
            raise GrammarError(
                f"rules is {shown(self.rules)}; expected Lark source, or use Grammar.json_schema(schema)"
            )
        if not isinstance(self.marks, tuple) or not all(isinstance(mark, str) for mark in self.marks):
            raise GrammarError(f"marks is {shown(self.marks)}; expected a tuple of texts")
        try:
            "".join([self.rules, *self.marks]).encode("utf-8")
        except UnicodeEncodeError as error:
            raise GrammarError(f"the grammar holds half a surrogate pair, which is no text: {error}") from error

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool, *, lenient: bool = False) -> Grammar:
        """The grammar of the JSON texts that match `schema`, spelled as json.dumps spells them.

        Args:
            schema: a JSON Schema (2020-12).
            lenient: leave out what llguidance cannot enforce instead of refusing.

        Raises:
            GrammarError: llguidance refuses the schema; the message says which keyword.
        """
        if not isinstance(schema, Mapping | bool):
            raise GrammarError(f"schema is {shown(schema)}; expected a JSON Schema as an object, or True or False")
        try:
            grammar = cls(f"start: {json_rule(schema, lenient=lenient)}\n")
        except (TypeError, ValueError, RecursionError) as error:
            raise GrammarError(f"the schema is not plain JSON: {error}") from error
        grammar.check()
        return grammar

    def check(self) -> list[str]:
        """Compile it without a model; return llguidance's warnings.

        Raises:
            GrammarError: it does not compile.
        """
        failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(
            self.source(self._tokens_of_marks()), limits=_LIMITS
        )
        if failed:
            raise GrammarError(_first_line(messages[0]))
        return list(messages)

    def looser(self) -> Iterator[Grammar]:
        """Grammars for a matcher that gave up, each asking for less: without the lengths of texts that have to match a
        pattern, then without patterns and lengths, then any JSON. They take what this one takes."""
        for loosen in (_without_lengths, _without_patterns, _only_type):
            rules = _with_schemas(self.rules, loosen)
            if rules != self.rules:
                yield replace(self, rules=rules)

    def source(self, special: Mapping[str, int]) -> str:
        """llguidance's form of the grammar for a vocabulary with these special marks, and the tokens they are."""
        lines = []
        for i, mark in enumerate(self.marks):
            written = json.dumps(mark)
            if mark in special and _NAMED_MARK.fullmatch(mark):
                written = mark
            elif mark in special and _NUMBERED_MARK.fullmatch(mark):
                written = f"<[{special[mark]}]>"
            lines.append(f"mark_{i}: {written}")
        return str(llguidance.LLMatcher.grammar_from_lark(self.rules + "\n".join(lines) + "\n"))

    def _tokens_of_marks(self) -> dict[str, int]:
        return {mark: 256 + i for i, mark in enumerate(self.marks)}

    def accepts(self, text: str) -> bool:
        """Whether `text` is a complete match. Needs no model: it reads byte by byte.

        Raises:
            GrammarError: the grammar does not compile, or asks for more than llguidance's limits allow; or there is no
                text.
        """
        if not isinstance(text, str):
            raise GrammarError(f"text is {shown(text)}; expected the text that may match")
        matcher = compile_matcher(_byte_tokenizer(self.marks), self.source(self._tokens_of_marks()))
        parts = re.split("(" + "|".join(map(re.escape, self.marks)) + ")", text) if self.marks else [text]
        for part in parts:
            ids = [256 + self.marks.index(part)] if part in self.marks else list(part.encode("utf-8", "surrogatepass"))
            # A mark's text may also be plain text (a fence); then it is read byte by byte.
            if matcher.try_consume_tokens(ids) == len(ids):
                continue
            if part in self.marks:
                raw = list(part.encode("utf-8"))
                if matcher.try_consume_tokens(raw) == len(raw):
                    continue
            matcher.compute_bitmask()  # tells a mismatch from a matcher that gave up, which try_consume does not
            if matcher.is_error():
                raise GrammarError(f"the grammar's matcher gave up: {_first_line(matcher.get_error())}")
            return False
        return bool(matcher.is_accepting())


def json_rule(schema: Mapping[str, Any] | bool, *, lenient: bool = False) -> str:
    """A Lark expression that matches the JSON texts of `schema`."""
    # llguidance raises on boolean schemas that carry options; these two mean the same.
    body: Mapping[str, Any] = {} if schema is True else {"not": {}} if schema is False else schema
    return "%json " + json.dumps({**body, "x-guidance": {**JSON_STYLE, "lenient": lenient}}, ensure_ascii=False)


def _with_schemas(rules: str, change: Callable[[Any], Any]) -> str:
    """Lark rules with every JSON Schema in them changed."""
    parts, at, decoder = [], 0, json.JSONDecoder()
    while (start := rules.find("%json ", at)) >= 0:
        schema, end = decoder.raw_decode(rules, start + len("%json "))
        options = schema.pop("x-guidance", {})
        parts += [rules[at:start], json_rule(change(schema), lenient=bool(options.get("lenient")))]
        at = end
    return "".join([*parts, rules[at:]])


def _without_lengths(schema: Any) -> Any:
    def loosen(node: dict[str, Any]) -> dict[str, Any]:
        is_matched = isinstance(node.get("pattern", node.get("format")), str)
        return {k: v for k, v in node.items() if not (is_matched and k in _COUNTED and _is_plain(v))}

    return _everywhere(schema, loosen)


def _without_patterns(schema: Any) -> Any:
    def loosen(node: dict[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in node.items() if not (k in _MATCHED and _is_plain(v))}
        if isinstance(kept.get("oneOf"), list):  # its branches may no longer exclude each other
            kept["allOf"] = [*kept.get("allOf", ()), {"anyOf": kept.pop("oneOf")}]
        if kept.pop("patternProperties", None):
            kept["additionalProperties"] = True
        return kept

    return _everywhere(schema, loosen)


def _everywhere(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A schema with each object in it changed, but not the values that it names."""
    if isinstance(node, list):
        return [_everywhere(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    return change({k: v if k in ("const", "enum", "default") else _everywhere(v, change) for k, v in node.items()})


def _is_plain(value: Any) -> bool:
    """Whether this is a keyword's value, and not the schema of a property of that name."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _only_type(schema: Any) -> Any:
    return {"type": schema["type"]} if "type" in schema else {}


def compile_matcher(tokenizer: llguidance.LLTokenizer, source: str) -> llguidance.LLMatcher:
    """A fresh matcher.

    Raises:
        GrammarError: the grammar does not compile.
    """
    matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=_LIMITS)
    if matcher.is_error():
        raise GrammarError(_first_line(matcher.get_error()))
    return matcher


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else "llguidance gave no reason"


@lru_cache(maxsize=32)
def _byte_tokenizer(marks: tuple[str, ...]) -> llguidance.LLTokenizer:
    """One token a byte, one a mark, and an end: enough to match a text without any model."""

    class Bytes:
        eos_token_id = 256 + len(marks)
        bos_token_id = None
        tokens = [bytes([b]) for b in range(256)] + [b"\xff" + m.encode() for m in marks] + [b"\xff<eos>"]
        special_token_ids = list(range(256, 257 + len(marks)))  # noqa: RUF012 - read once by llguidance, never changed

        def __call__(self, text: bytes | str) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))
