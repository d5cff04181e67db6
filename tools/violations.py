"""What is wrong with a value under a JSON Schema, in sentences a small model can act on. It changes nothing.

Each sentence names the place (a JSON pointer), what was expected and what was received; for a name that does
not exist, the allowed ones.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .validator import PATTERN_S, validator_of

if TYPE_CHECKING:
    from jsonschema import ValidationError

_MAX_PROBLEMS = 5
_SHOWN_CHARS = 60
_SHOWN_LIMIT_CHARS = 200  # of a pattern or another limit, which a model needs whole to meet it
_MAX_LISTED = 20
_LIMITS = ("minimum", "maximum", "pattern", "format", "required")


def violations(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the faults of `value`, most important first, at most five; an empty list if it is valid.

    Raises:
        nothing for faults of the value. A schema whose references lead nowhere counts as a fault too: it
        cannot be met.
    """
    from referencing.exceptions import Unresolvable

    try:
        errors = sorted(
            validator_of(schema).iter_errors(value), key=lambda error: (len(error.absolute_path), _rank(error))
        )
    except Unresolvable as error:
        return [f"the tool's schema has a reference that leads nowhere: {error}"]
    except RecursionError:
        return ["the arguments are nested too deeply"]
    except OverflowError:
        return ["a number is too large to be checked"]
    sentences = list(dict.fromkeys(sentence for error in errors for sentence in _sentences(error)))
    more = len(sentences) - _MAX_PROBLEMS
    return sentences if more <= 0 else [*sentences[:_MAX_PROBLEMS], f"and {more} more"]


def fits(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether `value` is valid under `schema`, a part of `root` (whose `$defs` its references point into)."""
    from referencing.exceptions import Unresolvable

    try:
        whole = validator_of(root)
        # evolve keeps the root's resolver, so that the part's references still lead into the whole
        return bool((whole if schema is root else whole.evolve(schema=schema)).is_valid(value))
    except (Unresolvable, RecursionError, OverflowError):
        return False


def _rank(error: ValidationError) -> int:
    return 0 if error.validator == "additionalProperties" else 1


def _sentences(error: ValidationError) -> Iterable[str]:
    pointer = "".join(f"/{step}" for step in error.absolute_path)
    prefix = f"{pointer}: " if pointer else ""
    noun = "key" if pointer else "argument"
    value: Any = error.instance
    schema: Any = error.schema
    wanted: Any = error.validator_value
    if error.validator == "additionalProperties" and wanted is False:
        allowed = _listed(schema.get("properties", {})) or "none"
        known = schema.get("properties", {})
        return [f"{prefix}unknown {noun} {name!r}; allowed: {allowed}" for name in value if name not in known]
    if error.validator == "required":
        properties = schema.get("properties", {})
        missing = [name for name in wanted if name not in value]
        return [f"{prefix}missing {noun} {name!r}{_about(properties.get(name))}" for name in missing]
    expected = _expected(error)
    return [f"{prefix}expected {expected}, received {_received(value)}"]


def _expected(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    simple = {
        "minimum": "a number of at least {}",
        "maximum": "a number of at most {}",
        "exclusiveMinimum": "a number greater than {}",
        "exclusiveMaximum": "a number less than {}",
        "multipleOf": "a multiple of {}",
        "minLength": "a string of at least {} characters",
        "maxLength": "a string of at most {} characters",
        "minItems": "an array of at least {} items",
        "maxItems": "an array of at most {} items",
        "minProperties": "an object of at least {} keys",
        "maxProperties": "an object of at most {} keys",
        "pattern": "a string that matches the pattern {}",
        "format": "a string in the format {}",
    }
    keyword = str(error.validator)
    if isinstance(error.cause, TimeoutError):
        shown = _cut(json.dumps(wanted, ensure_ascii=False), _SHOWN_LIMIT_CHARS)
        return f"a text that can be compared with the pattern {shown} within {PATTERN_S} s"
    if keyword == "None":  # the schema `false`
        return "nothing here (leave it out)"
    if keyword == "type":
        return " or ".join([wanted] if isinstance(wanted, str) else wanted)
    if keyword == "enum":
        return _choices(wanted, error.instance)
    if keyword == "const":
        return json.dumps(wanted, ensure_ascii=False)
    if keyword == "uniqueItems":
        return "an array without repeated items"
    if keyword in ("anyOf", "oneOf"):
        kinds = list(dict.fromkeys(_kind(branch, error) for branch in wanted))
        more = [f"one of {len(kinds) - _MAX_LISTED} others"] if len(kinds) > _MAX_LISTED else []
        return " or ".join(kinds[:_MAX_LISTED] + more)
    if keyword in simple:
        return simple[keyword].format(_cut(str(wanted), _SHOWN_LIMIT_CHARS))
    return f"a value that meets {keyword} {_cut(json.dumps(wanted, ensure_ascii=False))}"


def _kind(branch: Any, error: ValidationError) -> str:
    """Name one branch of a union: the reason it failed where there is a plain one, else its type."""
    if isinstance(branch, Mapping):
        if "enum" in branch:
            return _choices(branch["enum"], error.instance)
        if "const" in branch:
            return json.dumps(branch["const"], ensure_ascii=False)
        if "type" in branch:
            kind = branch["type"]
            limits = {key: branch[key] for key in _LIMITS if key in branch}
            name = kind if isinstance(kind, str) else " or ".join(kind)
            return f"{name} {_cut(json.dumps(limits))}" if limits else name
        if "$ref" in branch:
            return str(branch["$ref"]).rsplit("/", 1)[-1]
    return _cut(json.dumps(branch, ensure_ascii=False))


def _about(schema: Any) -> str:
    """Return " (string: name of the city)" for a missing argument."""
    if not isinstance(schema, Mapping):
        return ""
    kind = schema.get("type", "")
    parts = [kind if isinstance(kind, str) else " or ".join(kind), str(schema.get("description", ""))]
    said = ": ".join(part for part in parts if part)
    return f" ({_cut(said)})" if said else ""


def _received(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    kind = names.get(type(value), "null")
    return kind if value is None else f"{kind} {_cut(json.dumps(value, ensure_ascii=False))}"


def _choices(values: Sequence[Any], received: Any) -> str:
    """Name the values of an enum: all, or of many those that are nearest to what was received."""
    if not values:
        return "nothing (the schema allows no value here)"
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    if len(texts) > _MAX_LISTED and isinstance(received, str):
        wanted = json.dumps(received[:_SHOWN_LIMIT_CHARS], ensure_ascii=False)
        texts = list(dict.fromkeys([*difflib.get_close_matches(wanted, texts, n=5), *texts]))
    return f"one of {_listed(texts)}"


def _listed(texts: Iterable[str]) -> str:
    """The first of some texts, and how many more there are."""
    texts = list(texts)
    more = f" and {len(texts) - _MAX_LISTED} others" if len(texts) > _MAX_LISTED else ""
    return ", ".join(_cut(text, _SHOWN_LIMIT_CHARS) for text in texts[:_MAX_LISTED]) + more


def _cut(text: str, n_most: int = _SHOWN_CHARS) -> str:
    return text if len(text) <= n_most else text[: n_most - 1] + "…"
