"""The tools of an agent, by name, in the order they were added. It runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .definition import Tool, tool
from .errors import RegistryError


class ToolRegistry:
    """An ordered set of tools with unique names.

    Args:
        tools: tools, or functions (made into tools by `@tool`).

    Raises:
        RegistryError: two tools of one name.
        SchemaError: a function that cannot become a tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self.add(item)

    def add(self, item: Tool | Callable[..., Any]) -> Tool:
        """Add one tool or function and return the tool; raises as the class does."""
        added = item if isinstance(item, Tool) else tool(item)
        if added.name in self._tools:
            raise RegistryError(f"two tools are named {added.name!r}; rename one of them with @tool(name=…)")
        self._tools[added.name] = added
        return added

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def names(self) -> list[str]:
        """Return the names in the order of adding."""
        return list(self._tools)

    def to_openai(self) -> list[dict[str, Any]]:
        """Return the tool list as OpenAI's chat completions take it."""
        return [item.to_openai() for item in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools
