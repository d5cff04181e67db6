"""What of a reply does not fit its schemas, its calls their tools' and its answer the response format's: the part that
sampling could not enforce.

It changes nothing and runs nothing. laploop.tools has its own judge, which words things for a small model; neither
package knows the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..parsing.message import ParsedOutput
from ..requests.request import Request

PATTERN_S = 0.5  # seconds that one comparison with a pattern may take
_MOST = 5  # violations of one call
_SHOWN_CHARS = 200


def call_violations(calls: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each fault of a call's arguments: id and name of the call, pointer (JSON pointer of the value), keyword, what
    was expected, what was received, and all of it in one line as message.

    Args:
        calls: in OpenAI form, arguments as JSON text.
        tools: in OpenAI form.
    """
    schemas = {t["function"]["name"]: t["function"].get("parameters") or {} for t in tools}
    found = []
    for call in calls:
        function = call["function"]
        name = function["name"]
        for pointer, keyword, expected, received in _faults(json.loads(function["arguments"]), schemas.get(name, {})):
            message = f"{name}: {pointer or '/'}: expected {expected}, received {received}"
            found.append({
                "id": call["id"], "name": name, "pointer": pointer, "keyword": keyword, "expected": expected,
                "received": received, "message": message,
            })  # fmt: skip
    return found


def answer_violations(content: str, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each fault of an answer that has to be JSON: pointer, keyword, expected, received and message, as above.

    Args:
        content: the whole answer.
        schema: the response format's.
    """
    try:
        faults = list(_faults(json.loads(content), schema))
    except (ValueError, RecursionError):
        faults = [("", "", "JSON", _shown(content))]
    return [
        {
            "pointer": pointer, "keyword": keyword, "expected": expected, "received": received,
            "message": f"response_format: {pointer or '/'}: expected {expected}, received {received}",
        }
        for pointer, keyword, expected, received in faults
    ]  # fmt: skip


def violations(parsed: ParsedOutput, request: Request) -> list[dict[str, Any]]:
    """All faults of a reply. What the token limit cut is not judged."""
    calls = parsed.message.get("tool_calls") or ()
    found = call_violations(calls, request.tools)
    if request.answer_schema is not None and not calls and parsed.finish_reason != "length":
        found += answer_violations(parsed.message.get("content") or "", request.answer_schema)
    return found


def _faults(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(pointer, keyword, expected, received) of the first faults."""
    from referencing.exceptions import Unresolvable

    judge = _judge_class()
    try:
        errors = judge(schema, format_checker=judge.FORMAT_CHECKER).iter_errors(value)
        for _, error in zip(range(_MOST), errors, strict=False):
            pointer = "".join(f"/{str(p).replace('~', '~0').replace('/', '~1')}" for p in error.absolute_path)
            expected = f"{error.validator} {_shown(error.validator_value)}" if error.validator else "nothing"
            yield pointer, str(error.validator), expected, _shown(error.instance)
    except Unresolvable as error:
        yield "", "$ref", f"a value that meets {error.ref!r}, which is in no document at hand", _shown(value)
    except (RecursionError, OverflowError, TimeoutError) as error:  # the last: of a pattern
        yield "", "", f"a value that can be judged ({type(error).__name__})", _shown(value)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


@lru_cache(maxsize=1)
def _judge_class() -> Any:
    """jsonschema's validator with patterns in ECMA's dialect, a time limit for them, and OpenAPI's `nullable`."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def matches(pattern: str, text: str) -> bool:
        import regex

        return regex.search(pattern, text, timeout=PATTERN_S) is not None

    def pattern(_: Any, wanted: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not matches(wanted, value):
            yield ValidationError(f"does not match {wanted!r}")

    def pattern_properties(judge: Any, wanted: Any, value: Any, _: Any) -> Iterator[ValidationError]:
        for key, item in value.items() if isinstance(value, dict) else ():
            for expression in [expression for expression in wanted if matches(expression, key)]:
                yield from judge.descend(item, wanted[expression], path=key, schema_path=expression)

    def additional(judge: Any, wanted: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        for key, item in value.items() if isinstance(value, dict) else ():
            known = schema.get("properties", ())
            if key in known or any(matches(expression, key) for expression in schema.get("patternProperties", ())):
                continue
            if wanted is False:
                yield ValidationError(f"{key!r} is not expected")
            else:
                yield from judge.descend(item, wanted, path=key)

    keywords: dict[str, Any] = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional,
    }
    make: Any = extend  # it has no types
    given = Draft202012Validator.VALIDATORS
    for keyword in ("type", "enum"):
        keywords[keyword] = _or_null(given[keyword])
    return make(Draft202012Validator, keywords)


def _or_null(rule: Any) -> Any:
    """A keyword's rule that lets null pass where the schema says `nullable`."""

    def or_null(judge: Any, wanted: Any, value: Any, schema: Mapping[str, Any]) -> Any:
        is_let_pass = value is None and schema.get("nullable") is True
        return () if is_let_pass else rule(judge, wanted, value, schema)

    return or_null
