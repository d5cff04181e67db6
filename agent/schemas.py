"""The schemas of an agent's tools, held against what a grammar can enforce, when the agent is built.

A Tool is valid JSON Schema already; laploop.tools imports no model code, so it cannot know what a grammar
expresses.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from laploop.models import schema_report
from laploop.tools import Tool

from .errors import ConfigError

log = logging.getLogger("laploop.agent")


def check_schemas(tools: Iterable[Tool]) -> None:
    """Raise ConfigError, naming tool, place and keyword, for a schema that nothing can enforce.

    A keyword that the grammar cannot express is checked after generation instead: one warning per tool.
    """
    for tool in tools:
        report = schema_report(tool.parameters)
        if rejected := [(pointer, keyword) for pointer, keyword, how in report if how == "rejected"]:
            pointer, keyword = rejected[0]
            raise ConfigError(
                f'tool {tool.name}: "{keyword}" at {pointer or "/"} of its parameters cannot be used; '
                "remove it or write the schema another way"
            )
        if later := sorted({keyword for _, keyword, how in report if how == "validated"}):
            log.warning("tool %s: checked only after generation: %s", tool.name, ", ".join(later))
