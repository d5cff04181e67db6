"""Short texts that match the patterns in a grammar's schemas: where a text has to end, one of their ends often does.

Reads regular expressions as JSON Schema has them, roughly: a wrong guess costs a vain trial, no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_QUANTIFIER = re.compile(r"(?:([*?])|(\+)|\{(\d+)(?:,\d*)?\})[?+]?")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*(?:\[[^\]]*\][^\]]*)*\]")
_ESCAPE = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{([0-9a-fA-F]+)\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[a-z]*:))?")
_FLAGS = re.compile(r"\(\?[a-z]+\)")
# Tried in this order for a place where one of several characters may stand.
_CANDIDATES = "0a-A_ .!@/,;:+#é日\n"
_MOST_CHARS = 60
_MOST_ENDINGS = 200


@lru_cache(maxsize=256)
def endings(rules: str) -> tuple[bytes, ...]:
    """The ends of texts that match the patterns in the JSON Schemas of a Lark grammar, as JSON spells them, longest
    first."""
    found: dict[bytes, None] = {}
    for pattern in dict.fromkeys(_patterns(rules)):
        example = example_of(pattern)[:_MOST_CHARS]
        for start in range(len(example)):
            found[json.dumps(example[start:], ensure_ascii=False)[1:-1].encode()] = None
    return tuple(sorted(found, key=len)[:_MOST_ENDINGS][::-1])


def _patterns(rules: str) -> Iterator[str]:
    """The patterns in the schemas of a grammar."""
    decoder, at = json.JSONDecoder(), 0
    while (at := rules.find("%json ", at) + 6) > 5:
        schema, at = decoder.raw_decode(rules, at)
        waiting: list[Any] = [schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                waiting += node.values()
                if isinstance(node.get("pattern"), str):
                    yield node["pattern"]
                if isinstance(node.get("patternProperties"), dict):
                    yield from node["patternProperties"]
            elif isinstance(node, list):
                waiting += node


def example_of(pattern: str) -> str:
    """A short text that matches `pattern`; an empty one where none can be guessed."""
    try:
        example, at = _alternatives(pattern, 0)
    except (ValueError, RecursionError):
        return ""
    return example if at == len(pattern) else ""


def _alternatives(pattern: str, at: int) -> tuple[str, int]:
    """The shortest example of a|b|c from `at` on, and where that ends."""
    examples = [""]
    while at < len(pattern) and pattern[at] != ")":
        if pattern[at] == "|":
            examples.append("")
            at += 1
            continue
        atom, at = _atom(pattern, at)
        n_least = 1
        if found := _QUANTIFIER.match(pattern, at):
            n_least = 0 if found[1] else 1 if found[2] else int(found[3])
            at = found.end()
        examples[-1] += atom * min(n_least, _MOST_CHARS)
    # An empty one leads nowhere.
    return min(filter(None, examples), key=len, default=""), at


def _atom(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] in "^$":
        return "", at + 1
    if flags := _FLAGS.match(pattern, at):
        return "", flags.end()
    if group := _GROUP.match(pattern, at):
        example, at = _alternatives(pattern, group.end())
        if not pattern.startswith(")", at):
            raise ValueError("an open group")
        return example, at + 1
    if pattern[at] == ".":
        return "0", at + 1
    if escape := _ESCAPE.match(pattern, at):
        return _one_of(escape[0]), escape.end()
    if pattern[at] == "[" and (found := _CLASS.match(pattern, at)):
        return _one_of(found[0]), found.end()
    return pattern[at], at + 1


def _one_of(expression: str) -> str:
    """A character that a class or an escape matches."""
    import regex

    written = re.sub(r"\\x\{([0-9a-fA-F]+)\}", lambda found: f"\\U{int(found[1], 16):08X}", expression)
    try:
        compiled = regex.compile(written)
    except regex.error as error:
        raise ValueError(str(error)) from error
    everywhere = [*_CANDIDATES, *(chr(code) for code in range(32, 0x250)), *re.sub(r"\W", "", expression)]
    return next((char for char in everywhere if compiled.fullmatch(char)), "")
