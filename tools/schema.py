"""A Python function → JSON Schema of its arguments, as OpenAI's tool lists want it. It knows no models and
runs nothing.

Types are pydantic's business (one `TypeAdapter` a parameter, shared `$defs`); what this module adds is the
object around them: which parameters are seen, which are required, where descriptions come from, and errors
that name the parameter.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .docstring import read_docstring
from .errors import SchemaError
from .schema_faults import BY_NAME, LIST, ONE, faults
from .signature import Parameter, describe, read_parameters

# Formats of JSON Schema 2020-12. Others (pydantic's "path", "binary", …) say nothing that could be checked.
_FORMATS = frozenset(
    [
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uuid",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    ]
)


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """What a function gives to a tool. `strict`: parameters whose type is a path or a URL."""

    name: str
    summary: str
    description: str
    parameters: dict[str, Any]
    strict: frozenset[str]


def schema_from_function(function: Callable[..., Any]) -> dict[str, Any]:
    """Return `{"name", "description", "parameters"}` of a function, method, partial or callable object.

    Types come from the hints, descriptions from the docstring (Google, NumPy, reST), `Annotated[str, "text"]`
    or pydantic's `Field(description=…)`, the last two first. `description` is the docstring's text without
    its sections; the `@tool` decorator adds what it says about the result.

    Raises:
        SchemaError: a parameter without a type, or with one that JSON Schema cannot express; names the
            parameter.
    """
    read = read_function(function)
    return {"name": read.name, "description": read.summary, "parameters": read.parameters}


def read_function(function: Callable[..., Any]) -> FunctionSchema:
    """Return all that a tool needs to know of `function`; raises as `schema_from_function`."""
    parameters = read_parameters(function)
    doc = read_docstring(function)
    name = describe(function)
    properties, definitions = _schemas(name, parameters)
    for parameter in parameters:
        schema = properties[parameter.name]
        said = parameter.description or doc.parameters.get(parameter.name)
        if said and not (set(schema) - {"default"} == {"$ref"} and "description" in schema):
            schema.setdefault("description", said)
        _add_default(schema, parameter)
    result: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }
    if definitions:
        result["$defs"] = definitions
    strict = frozenset(item.name for item in parameters if _is_path_or_url(item.hint))
    return FunctionSchema(name, doc.summary, doc.description, result, strict)


def check_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    """Check that `parameters` is a valid schema of an object, by JSON Schema 2020-12, with references inside
    itself that come to an end.

    Raises:
        SchemaError: names the tool, the place (a JSON pointer) and the fault.
    """
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError as InvalidSchema

    kind = parameters.get("type") if isinstance(parameters, Mapping) else None
    if not isinstance(kind, str) or kind != "object":  # what is no text (an array of numpy) may not be comparable
        raise SchemaError(f'{name}: parameters must be a JSON Schema of type "object", such as {{"type": "object", …}}')
    try:
        formats = FormatChecker(
            Draft202012Validator.FORMAT_CHECKER.checkers.keys() - {"regex"}
        )  # Python's; ours: faults
        Draft202012Validator.check_schema(parameters, format_checker=formats)
        json.dumps(parameters, allow_nan=False, ensure_ascii=False).encode("utf-8")
        fault = next(faults(parameters), "")
    except RecursionError as error:
        raise SchemaError(f"{name}: parameters are nested too deeply") from error
    except UnicodeEncodeError as error:
        raise SchemaError(f"{name}: parameters hold half a surrogate pair, which is no text: {error}") from error
    except InvalidSchema as error:
        pointer = "/" + "/".join(str(step) for step in error.absolute_path)
        keyword = error.absolute_path[-1] if error.absolute_path else error.validator
        raise SchemaError(f"{name}: parameters{pointer}: '{keyword}' is not valid: {error.message}") from error
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{name}: parameters are not plain JSON: {error}") from error
    if fault:
        raise SchemaError(f"{name}: parameters{fault}")


def _schemas(name: str, parameters: tuple[Parameter, ...]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the schema of each parameter and the definitions that they share."""
    if not parameters:
        return {}, {}
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    adapters: list[tuple[str, typing.Literal["validation"], TypeAdapter[Any]]] = []
    for parameter in parameters:
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(parameter.hint)
            adapter.json_schema()
        except (PydanticUserError, TypeError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise SchemaError(
                f"{name}: parameter '{parameter.name}': JSON Schema cannot express "
                f"{_spelled(parameter.hint)} ({reason}); "
                "use str, int, float, bool, Literal, Enum, list, dict, TypedDict or a dataclass"
            ) from error
        adapters.append((parameter.name, "validation", adapter))
    by_key, shared = TypeAdapter.json_schemas(adapters)
    definitions = {key: _clean(schema) for key, schema in shared.get("$defs", {}).items()}
    return {key: _clean(schema) for (key, _), schema in by_key.items()}, definitions


def _add_default(schema: dict[str, Any], parameter: Parameter) -> None:
    """Put the default in, where JSON can say it; `null` is left out, as leaving the argument out means the
    same."""
    schema.pop("default", None)
    if parameter.required or parameter.default is None:
        return
    from pydantic import TypeAdapter
    from pydantic_core import PydanticSerializationError

    try:
        default = TypeAdapter(parameter.hint).dump_python(parameter.default, mode="json", warnings=False)
        json.dumps(default, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError):
        return  # a sentinel object, NaN, …: the argument stays optional, only its default is not shown
    schema["default"] = default


def _clean(schema: Any) -> Any:
    """Return a copy without titles (they repeat the names) and without formats that nobody checks."""
    if not isinstance(schema, dict):
        return schema
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" or (key == "format" and value not in _FORMATS):
            continue
        if key in ONE:
            value = _clean(value)
        elif key in LIST:
            value = [_clean(item) for item in value]
        elif key in BY_NAME:
            value = {name: _clean(item) for name, item in value.items()}
        cleaned[key] = value
    return cleaned


def _is_path_or_url(hint: Any) -> bool:
    """Whether a hint is a path or a URL type, alone, annotated or optional: such values are never
    converted."""
    if isinstance(hint, type):
        return issubclass(hint, PurePath) or (hint.__module__.startswith("pydantic") and hint.__name__.endswith("Url"))
    arguments = [item for item in typing.get_args(hint) if item is not type(None)]
    if typing.get_origin(hint) is typing.Annotated:
        arguments = arguments[:1]
    return bool(arguments) and typing.get_origin(hint) is not typing.Literal and any(map(_is_path_or_url, arguments))


def _spelled(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
