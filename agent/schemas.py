"""The schemas of an agent's tools, checked when it is built and not when a model first calls one.

(laploop.tools imports no model code, so it cannot know what a grammar expresses; here both are known.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from laploop.models import schema_report
from laploop.tools import Tool

from .errors import ConfigError

log = logging.getLogger("laploop.agent")


def check_schemas(tools: Iterable[Tool]) -> None:
    """Raise ConfigError, naming tool, place and keyword, for a schema that is invalid or that nothing can
    enforce.

    A keyword that is valid but that the grammar cannot express is checked after generation instead: one
    warning in the log per tool.
    """
    for tool in tools:
        _check_valid(tool)
        report = schema_report(tool.parameters)
        if rejected := [(pointer, keyword) for pointer, keyword, how in report if how == "rejected"]:
            pointer, keyword = rejected[0]
            raise ConfigError(
                f'tool {tool.name}: "{keyword}" at {pointer or "/"} of its parameters cannot be used; '
                "remove it or write the schema another way"
            )
        if later := sorted({keyword for _, keyword, how in report if how == "validated"}):
            log.warning("tool %s: checked only after generation: %s", tool.name, ", ".join(later))


def _check_valid(tool: Tool) -> None:
    from jsonschema import Draft202012Validator, SchemaError  # slow to import

    schema: Any = tool.parameters
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        pointer = "/" + "/".join(str(p) for p in error.path)
        keyword = error.path[-1] if error.path else "schema"
        raise ConfigError(
            f'tool {tool.name}: bad "{keyword}" at {pointer} of its parameters: {error.message}'
        ) from error
