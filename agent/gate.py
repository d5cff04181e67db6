"""Does the question need a tool at all? Small models call one when none fits (mission, row 21). It runs no tool.

A policy with one method, asked before the first request of a run. Off by default: it costs a short reply.
"""

from __future__ import annotations

from typing import Protocol

from .aside import AsideError, ask_aside
from .run import Run

NONE = "none"


class Gate(Protocol):
    """Judges a question before the first request."""

    def wants_tools(self, run: Run) -> bool:
        """Whether the first reply may hold calls."""


class ModelGate:
    """Asks the model which tool the question needs first, with "none" among the names; greedy, a few tokens.

    The prompt is the run's own plus one sentence, so that nearly all of it is in the cache when the run goes on.
    """

    def wants_tools(self, run: Run) -> bool:
        """False only where the model says none; where it cannot be asked, calls stay possible."""
        schema = {
            "type": "object",
            "properties": {"tool": {"enum": [*run.tools.names(), NONE]}},
            "required": ["tool"],
            "additionalProperties": False,
        }
        try:
            value = ask_aside(run, run.messages, run.words.gate, schema, max_tokens=64)
        except AsideError:
            return True
        return not (isinstance(value, dict) and value.get("tool") == NONE)
