"""Errors of `laploop.tools`. They know nothing of models, messages or the loop.

    ToolError                  anything below, caught with one name
    ├── SchemaError            a function or a schema that cannot become a tool (the author's mistake)
    ├── RegistryError          a bad or doubled tool name (the author's mistake)
    ├── ArgumentsError         arguments that do not fit the schema (the model's mistake)
    ├── WebError               a request that failed or was refused
    └── FileAccessError        a path that is missing, unreadable or outside the root folder

The texts of the last three are written for the model: they say what was wrong, what was expected and what to
do next.
"""

from __future__ import annotations

from collections.abc import Sequence


class ToolError(Exception):
    """Base of all errors that this package raises."""


class SchemaError(ToolError):
    """A function cannot be described as JSON Schema, or a given schema is not a valid one."""


class RegistryError(ToolError):
    """A tool name that is not allowed or is taken already."""


class ArgumentsError(ToolError):
    """Arguments that are not JSON or do not fit the schema; `problems` holds one sentence for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class WebError(ToolError):
    """A request failed, or the address is one that may not be read."""


class FileAccessError(ToolError):
    """A path that is missing, unreadable, of the wrong kind, or outside the root folder."""
