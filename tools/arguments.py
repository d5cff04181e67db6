"""The text a model wrote as a call's arguments → checked values. It knows the schema, not the tool or the
model.

Strict JSON first. What is not JSON goes through json-repair, what has the wrong type through lossless
conversion (see `conversion`); both are reported in `notes`, and neither is done for strict parameters (paths,
URLs, SQL, commands), where a guess may do harm. Then the whole is validated by JSON Schema 2020-12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .conversion import convert
from .errors import ArgumentsError
from .json_text import loads_strict
from .violations import violations

_SHOWN_CHARS = 80
_MAX_REPAIRED_CHARS = 50_000  # json-repair's time grows faster than the text


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """`value`: arguments that fit the schema; `notes`: one sentence for each repair and conversion."""

    value: dict[str, Any]
    notes: tuple[str, ...]


def parse_arguments(
    text: str | Mapping[str, Any], schema: Mapping[str, Any], strict: frozenset[str] = frozenset()
) -> ParsedArguments:
    """Return the arguments in `text` (JSON, or an object already parsed), as `schema` wants them.

    Args:
        text: a JSON object as text; empty text counts as `{}`.
        schema: JSON Schema of the arguments object.
        strict: names of parameters that are never repaired or converted. If the schema has one of them,
            broken JSON is
            refused as a whole, since a repair may end a path early.

    Raises:
        ArgumentsError: not a JSON object, a doubled key, NaN, or a value that does not fit the schema.
    """
    if not isinstance(text, str | Mapping):
        raise ArgumentsError([f"the arguments must be JSON text or an object, received {type(text).__name__}"])
    notes: list[str] = []
    guarded = bool(strict & set(schema.get("properties", {})))
    value = _plain(text) if isinstance(text, Mapping) else _loads(text, guarded, notes)
    if not isinstance(value, dict):
        raise ArgumentsError([f"the arguments must be one JSON object, received {_shown(value)}"])
    value = convert(value, schema, strict, notes)
    problems = violations(value, schema)
    if problems:
        raise ArgumentsError(problems)
    return ParsedArguments(value, tuple(notes))


def _loads(text: str, guarded: bool, notes: list[str]) -> Any:
    if not text.strip():
        notes.append("empty arguments read as {}")
        return {}
    try:
        value = loads_strict(text)
    except json.JSONDecodeError as error:
        place = f"{error.msg} at character {error.pos}"
        if guarded:
            raise ArgumentsError([f"the arguments are not valid JSON ({place}): {_shown_text(text)}"]) from error
        return _repaired(text, place, notes)
    except ValueError as error:
        raise ArgumentsError([f"the arguments are not usable: {error}"]) from error
    if value is None:  # what some models write for "no arguments"
        notes.append("null read as {}")
        return {}
    if isinstance(value, str) and not guarded:  # encoded twice
        try:
            inner = loads_strict(value)
        except ValueError:
            return value
        notes.append("arguments that were JSON inside a JSON string unpacked")
        return inner
    return value


def _repaired(text: str, place: str, notes: list[str]) -> Any:
    import json_repair

    try:
        value = json_repair.loads(text) if len(text) <= _MAX_REPAIRED_CHARS else None
        repaired = loads_strict(json.dumps(value))
    except (ValueError, RecursionError, TypeError):
        repaired = None
    if not isinstance(repaired, dict) or (not repaired and "{" not in text):
        raise ArgumentsError(
            [f"the arguments are not valid JSON ({place}): {_shown_text(text)}; write one JSON object"]
        )
    notes.append(f"broken JSON ({place}) repaired to {_shown(repaired)}")
    return repaired


def _plain(arguments: Mapping[str, Any]) -> Any:
    """Return a deep copy of arguments given as an object, made sure to be JSON."""
    try:
        return json.loads(json.dumps(dict(arguments), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentsError([f"the arguments are not plain JSON: {error}"]) from error


def _shown(value: Any) -> str:
    return _shown_text(json.dumps(value, ensure_ascii=False))


def _shown_text(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
