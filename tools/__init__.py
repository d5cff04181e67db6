"""What the agent can do: `Tool`, `@tool`, schemas from functions, argument checking, a registry, the built-in
tools.

It imports no other part of laploop. Names are loaded on first use, so that `import laploop.tools` costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import ParsedArguments, parse_arguments
    from .builtin import builtin_tools
    from .builtin.database import database_tools
    from .builtin.documents import document_tool
    from .builtin.edits import edit_tools
    from .builtin.files import file_tools
    from .definition import Tool, ToolResult, tool
    from .description_lint import lint_description
    from .errors import ArgumentsError, FileAccessError, RegistryError, SchemaError, ToolError, WebError
    from .invocation import given_up
    from .mcp import McpServers
    from .registry import ToolRegistry
    from .result_text import to_text
    from .schema import schema_from_function
    from .web import WebConfig

# No module here may be called `tool`: importing it would set the package's attribute of that name to the
# module.
_HOME = {
    "ArgumentsError": "errors",
    "FileAccessError": "errors",
    "McpServers": "mcp",
    "ParsedArguments": "arguments",
    "RegistryError": "errors",
    "SchemaError": "errors",
    "Tool": "definition",
    "ToolError": "errors",
    "ToolRegistry": "registry",
    "ToolResult": "definition",
    "WebConfig": "web",
    "WebError": "errors",
    "builtin_tools": "builtin",
    "database_tools": "builtin.database",
    "document_tool": "builtin.documents",
    "edit_tools": "builtin.edits",
    "file_tools": "builtin.files",
    "given_up": "invocation",
    "lint_description": "description_lint",
    "parse_arguments": "arguments",
    "schema_from_function": "schema",
    "to_text": "result_text",
    "tool": "definition",
}

__all__ = [
    "ArgumentsError",
    "FileAccessError",
    "McpServers",
    "ParsedArguments",
    "RegistryError",
    "SchemaError",
    "Tool",
    "ToolError",
    "ToolRegistry",
    "ToolResult",
    "WebConfig",
    "WebError",
    "builtin_tools",
    "database_tools",
    "document_tool",
    "edit_tools",
    "file_tools",
    "given_up",
    "lint_description",
    "parse_arguments",
    "schema_from_function",
    "to_text",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
