"""`McpServers`: the tools of MCP servers as laploop's tools. What a model sees of them is what the servers say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..definition import Tool, ToolResult
from ..errors import ToolError
from ..result_text import to_text
from .config import McpError, McpServerConfig, read_servers
from .connection import McpConnection

if TYPE_CHECKING:
    import mcp.types

_MAX_NAME_CHARS = 64
_MAX_RESULT_CHARS = 200_000  # the agent cuts further; this is for memory
_MAX_DESCRIPTION_CHARS = 2_000


class McpServers:
    """Several servers, each started when it is first needed.

    Args:
        servers: configurations, or what `read_servers` reads: a JSON file, or an object in the form of one.

    Raises:
        McpError: the configuration is wrong, or the extra `mcp` is not installed.
    """

    def __init__(self, servers: Iterable[McpServerConfig] | Path | str | Mapping[str, Any]) -> None:
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise McpError("MCP servers need the official SDK: pip install 'laploop[mcp]'") from error
        read = isinstance(servers, (Path, str, Mapping))
        configs: list[McpServerConfig] = read_servers(servers) if read else list(servers)  # type: ignore[arg-type]
        self._connections = [McpConnection(config) for config in configs]
        notes = [note for config in configs for note in config.notes]
        if read and not configs:
            notes.append("the configuration of MCP servers names none that is switched on")
        self._notes = tuple(notes)
        self.problems: tuple[str, ...] = self._notes

    def tools(self) -> list[Tool]:
        """The tools of all servers as they are now, named `server_tool`.

        A server that does not start, and a tool that cannot be one here, hinders no other: `problems` tells of it.
        """
        found: dict[str, Tool] = {}
        problems = list(self._notes)
        for connection in self._connections:
            try:
                listed = connection.list_tools()
            except McpError as error:
                problems.append(str(error))
                continue
            for item in listed:
                try:
                    made = _tool(connection, item)
                except ToolError as error:
                    problems.append(f"MCP server {connection.config.name!r}: {error}")
                    continue
                if made.name in found:
                    problems.append(f"MCP server {connection.config.name!r}: two tools would be named {made.name!r}")
                else:
                    found[made.name] = made
        self.problems = tuple(problems)
        return list(found.values())

    def close(self) -> None:
        """End all servers."""
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> McpServers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tool(connection: McpConnection, listed: mcp.types.Tool) -> Tool:
    config = connection.config
    description = (listed.description or listed.title or listed.name).strip()
    if len(description) > _MAX_DESCRIPTION_CHARS:
        description = description[:_MAX_DESCRIPTION_CHARS].rstrip() + " …"
    return Tool(
        tool_name(config.name, listed.name),
        description,
        listed.input_schema,
        _function(connection, listed.name),
        effects=effects_of(listed.annotations) if config.effects is None else config.effects,
        timeout_s=config.timeout_s,
        group=config.name,
    )


def tool_name(server: str, name: str) -> str:
    """`server_tool`, in letters that every template and grammar can write; long ones end in a hash."""
    whole = re.sub(r"[^\w-]", "_", f"{server}_{name}")
    if not re.match(r"[^\W\d]", whole):
        whole = f"_{whole}"
    if len(whole) <= _MAX_NAME_CHARS:
        return whole
    return f"{whole[: _MAX_NAME_CHARS - 7]}_{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def effects_of(annotations: mcp.types.ToolAnnotations | None) -> frozenset[str]:
    """What a tool touches, by its annotations; where it says nothing, the specification's (worst) defaults hold.

    They are the server's own words: a person who has started a server trusts it with more than this. What they do not
    say waits for a yes; `effects` in the configuration says it in their place.
    """
    read_only = annotations is not None and annotations.read_only_hint is True
    additive = annotations is not None and annotations.destructive_hint is False
    closed = annotations is not None and annotations.open_world_hint is False
    touched = {"read"} if read_only else {"read", "write"} if additive else {"read", "irreversible"}
    return frozenset(touched if closed else touched | {"network"})


def _function(connection: McpConnection, name: str) -> Callable[..., ToolResult]:
    def call(**arguments: Any) -> ToolResult:
        return as_tool_result(connection.call(name, arguments))

    return call


def as_tool_result(result: mcp.types.CallToolResult) -> ToolResult:
    """The text of a result; what is no text (pictures, sound) as one line that says what it was."""
    parts = [_shown(block) for block in result.content]
    text = "\n".join(part for part in parts if part)
    structured = result.structured_content
    if not text and structured is not None:
        text = to_text(structured)
    if len(text) > _MAX_RESULT_CHARS:
        text = f"{text[:_MAX_RESULT_CHARS]}… [cut: {_MAX_RESULT_CHARS:,} of {len(text):,} characters]"
    value = None if result.is_error else (structured if structured is not None else text)
    return ToolResult(to_text(text or "(no content)"), is_error=bool(result.is_error), value=value)


def _shown(block: Any) -> str:
    kind = getattr(block, "type", "")
    if kind == "text":
        return str(block.text)
    if kind in ("image", "audio"):
        return f"({block.mime_type}, {len(block.data) * 3 // 4:,} bytes)"
    if kind == "resource_link":
        return f"({block.name}: {block.uri})"
    if kind == "resource":
        held = block.resource
        return str(held.text) if hasattr(held, "text") else f"({held.mime_type or 'bytes'}, {held.uri})"
    return f"({kind or type(block).__name__})"
