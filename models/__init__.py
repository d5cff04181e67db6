"""Which model file, where from, and how its family speaks: catalogue, template, dialect, parser, ChatModel.

Knows templates, tool syntax and messages; does not know how a tool runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chat import ChatModel
    from .completion import accumulate
    from .context_use import ContextUse
    from .dialect import DIALECTS, Dialect
    from .errors import ModelError, ModelUnavailableError
    from .files.resolve import ResolvedModel, resolve_model
    from .grammar import tool_grammar
    from .model import Model
    from .openai_api.clients import async_openai_client, openai_client
    from .parsing.parser import OutputParser, ParsedOutput, parse_output
    from .requests.request import Request
    from .schemas.schema import schema_report
    from .scripted import ScriptedModel
    from .template import Prompt, render_prompt

_HOME = {
    "ChatModel": "chat",
    "ContextUse": "context_use",
    "DIALECTS": "dialect",
    "Dialect": "dialect",
    "Model": "model",
    "ModelError": "errors",
    "ModelUnavailableError": "errors",
    "OutputParser": "parsing.parser",
    "ParsedOutput": "parsing.parser",
    "Prompt": "template",
    "Request": "requests.request",
    "ResolvedModel": "files.resolve",
    "ScriptedModel": "scripted",
    "accumulate": "completion",
    "async_openai_client": "openai_api.clients",
    "openai_client": "openai_api.clients",
    "parse_output": "parsing.parser",
    "render_prompt": "template",
    "resolve_model": "files.resolve",
    "schema_report": "schemas.schema",
    "tool_grammar": "grammar",
}
__all__ = [
    "DIALECTS",
    "ChatModel",
    "ContextUse",
    "Dialect",
    "Model",
    "ModelError",
    "ModelUnavailableError",
    "OutputParser",
    "ParsedOutput",
    "Prompt",
    "Request",
    "ResolvedModel",
    "ScriptedModel",
    "accumulate",
    "async_openai_client",
    "openai_client",
    "parse_output",
    "render_prompt",
    "resolve_model",
    "schema_report",
    "tool_grammar",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
