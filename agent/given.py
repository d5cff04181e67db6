"""What an Agent and its runs are given, held against what they take. It builds nothing and runs nothing.

A person who mixes two things up (a name for a model, a tool for a list) reads what to write; Python's own error would
come later, from somewhere inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from laploop.models import Model
from laploop.tools import Tool, ToolRegistry

from .approval import Approvals
from .errors import ConfigError

_SHOWN_CHARS = 80
Tools = ToolRegistry | Iterable[Tool | Callable[..., Any]]


def shown(value: object) -> str:
    """The value as an error names it, on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def check_model(model: object) -> None:
    """Raise ConfigError unless it is a model, or an object that answers as one does."""
    speaks = isinstance(getattr(model, "name", None), str) and callable(getattr(model, "stream", None))
    if isinstance(model, type) or not (isinstance(model, Model) or speaks):
        loading = model if isinstance(model, str) else "qwen3-1.7b"
        raise ConfigError(
            f'model is {shown(model)}; expected a loaded model, such as ChatModel.load("{loading}"), '
            "a ScriptedModel([…]), or an OpenAIModel(client, name)"
        )


def registry_of(tools: Tools) -> ToolRegistry:
    """The tools as a registry. Raises ConfigError for what is no list of them, ToolError for what is no tool."""
    if isinstance(tools, ToolRegistry):
        return tools
    if isinstance(tools, Tool) or callable(tools):
        name = tools.name if isinstance(tools, Tool) else getattr(tools, "__name__", "…")
        raise ConfigError(f"tools is one tool; expected a list of them: tools=[{name}]")
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools is {shown(tools)}; expected a list of tools or functions, [] for none")
    return ToolRegistry(tools)


def check_is(name: str, value: object, kind: type) -> None:
    """Raise ConfigError unless the argument called `name` is None or of this kind."""
    if value is None or isinstance(value, kind):
        return
    way = f"{kind.__name__}(…)"
    if kind is Approvals and callable(value):
        way = "Approvals(ask=…) around that function"
    raise ConfigError(f"{name} is {shown(value)}; expected {way}, or None")


def check_options(options: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise ConfigError for an option of a run that does not exist."""
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(
            f"a run has no option {unknown[0]!r}; it has {', '.join(sorted(known))}, all else is set on the Agent"
        )
