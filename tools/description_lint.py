"""What a small model will stumble over in a tool's words: vague, no example, no range, nothing about the result.

It judges words by rules that can be read here; it knows no models. A finding is advice, never an error: the eight
built-in tools leave out on purpose what was tried on small models and made no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .definition import Tool

_MAX_CHARS = 600  # about 150 tokens, read before every first answer
_RETURNS = re.compile(r"\b(returns?|gives?|yields?|results?|answers?|shows?)\b|返回|结果|给出|得到", re.IGNORECASE)
_EXAMPLE = re.compile(
    r"\b(e\.g\.|for example|for instance|such as|example|like|as in)|例如|比如|譬如|如[:：]|[\"'“「`].+[\"'”」`]|\d",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"\d|\b(between|from .* to|at (most|least)|positive|negative|above|below|percent)\b|至|到|以上|以下|范围",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(stuff|things?|something|somehow|various|misc|etc|do(es)? it|handles?|processes|helper|utility|useful|"
    r"manages?|works? with|deals? with)\b|处理|相关|一些|等等",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Za-z]+|[\u4e00-\u9fff]")


class Advice(NamedTuple):
    """One thing to be said better: where ("" for the tool, else the parameter), what, and how."""

    place: str
    problem: str
    suggestion: str


def lint_description(tool: Tool) -> list[Advice]:
    """Advice on the words of a tool, the tool's own first."""
    return [*_of_tool(tool), *_of_parameters(tool)]


def _of_tool(tool: Tool) -> Iterator[Advice]:
    text = tool.description.strip()
    words = _WORDS.findall(text)
    own = set(re.findall(r"[a-z]+", tool.name.lower()))
    if not text:
        yield Advice("", "no description", "say in one sentence what it does, and in one what it returns")
        return
    if len(words) < 4 or {word.lower() for word in words} <= own | {"a", "an", "the"}:
        yield Advice("", "says no more than the name", "say what it acts on, and when to call it")
    elif vague := _VAGUE.search(text):
        yield Advice("", f"vague ({vague[0]!r})", "name what it acts on instead")
    if not _RETURNS.search(text):
        yield Advice("", "nothing about the result", 'end with "Returns …": what comes back, in what unit or form')
    if len(text) > _MAX_CHARS:
        yield Advice(
            "", f"{len(text):,} characters long", f"keep it below {_MAX_CHARS}: it is read before every first answer"
        )


def _of_parameters(tool: Tool) -> Iterator[Advice]:
    definitions = tool.parameters.get("$defs", {})
    required = set(tool.parameters.get("required", ()))
    for name, given in tool.parameters.get("properties", {}).items():
        schema = _resolved(given, definitions)
        text = str(schema.get("description", ""))
        kinds = _types(schema, definitions)
        chosen = {"enum", "const", "format", "pattern"} & set(schema)
        if not text and name in required and not chosen:
            yield Advice(name, "no description", f"describe it, with an example: {_sample(name, kinds)}")
        elif (
            "string" in kinds
            and not chosen
            and not schema.get("default")
            and name in required
            and not _EXAMPLE.search(text)
        ):
            yield Advice(name, "no example", f"add one: {_sample(name, kinds)}; or an enum, where the values are known")
        bounded = any(
            key in schema for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        )
        if kinds & {"integer", "number"} and not (bounded or chosen or "default" in schema or _RANGE.search(text)):
            yield Advice(
                name, "no range", "give minimum and maximum (Annotated[int, Field(ge=1, le=100)]), or name its unit"
            )


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with the definition that it refers to merged in; one step, as pydantic writes it."""
    if not isinstance(schema, Mapping):
        return {}
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        return {**definitions.get(reference.removeprefix("#/$defs/"), {}), **schema}
    return schema


def _types(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    own = schema.get("type", [])
    found = {own} if isinstance(own, str) else set(own)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found |= _types(_resolved(branch, definitions), {})
    return found


def _sample(name: str, kinds: set[str]) -> str:
    """What a description with an example looks like."""
    return f'"The {name.replace("_", " ")}, e.g. {42 if kinds & {"integer", "number"} else "…"}"'
