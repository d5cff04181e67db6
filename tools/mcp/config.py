"""Which MCP servers there are: the `mcpServers` JSON that other programs use, read and checked. It starts nothing.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
                    "wiki": {"url": "https://wiki.example/mcp", "headers": {"Authorization": "Bearer ${WIKI_TOKEN}"}}}}

`${NAME}` and `${NAME:-default}` in values are replaced from the environment. Keys of laploop's own: `timeout_s` and
`effects` (which say more than a server's annotations, because they are the person's). Keys that other programs add for
themselves are kept as notes; unknown ones are errors.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..definition import EFFECTS
from ..errors import ToolError

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")
_STDIO = ("command", "args", "env", "cwd")
_HTTP = ("url", "headers")
_OWN = ("timeout_s", "effects")
_OF_OTHERS = (  # Claude, VS Code, Cursor, Cline, Windsurf; nothing that would make a server do more
    "type", "transport", "transportType", "disabled", "autoApprove", "alwaysAllow", "timeout", "description", "gallery",
    "envFile", "trust", "name", "icon",
)  # fmt: skip


class McpError(ToolError):
    """A server that is not set up rightly, does not start, or has gone."""


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """One server: a command that speaks over its standard streams, or the address of one that speaks HTTP.

    Args:
        name: what its tools' names begin with.
        command: the program of a stdio server; "" for HTTP.
        args: its arguments.
        env: variables that it gets beside PATH, HOME and the like; the rest of the environment it does not get.
        cwd: its working folder.
        url: the address of a streamable HTTP server; "" for stdio.
        headers: sent with every request to it.
        timeout_s: seconds for one call, and for starting.
        effects: of all its tools, instead of what its annotations say; None for those.
        notes: what the configuration says that laploop does not follow.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    effects: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise McpError(f"MCP server {self.name!r}: give either `command` (stdio) or `url` (streamable HTTP)")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise McpError(f"MCP server {self.name!r}: url is {self.url!r}; it must start with http:// or https://")
        if not self.timeout_s > 0:
            raise McpError(f"MCP server {self.name!r}: timeout_s is {self.timeout_s}; give seconds above 0")
        if self.effects is not None and (not self.effects or not self.effects <= EFFECTS):
            raise McpError(
                f"MCP server {self.name!r}: effects are {', '.join(sorted(self.effects)) or 'none'}; "
                f"choose from {', '.join(sorted(EFFECTS))}"
            )


def read_servers(
    source: Path | str | Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> list[McpServerConfig]:
    """The servers of a configuration, without disabled ones.

    Args:
        source: a JSON file, or what is in one; the servers may stand under `mcpServers`, `servers` (VS Code), or bare.
        environ: for `${NAME}`; by default the process's own.

    Raises:
        McpError: not JSON, a wrong value or key, a variable that is not set; names the server.
    """
    environ = os.environ if environ is None else environ
    data = _loaded(source)
    servers = data.get("mcpServers", data.get("servers", data))
    if not isinstance(servers, Mapping):
        raise McpError(f"mcpServers is {type(servers).__name__}; expected an object of servers by name")
    found = [_server(name, _expanded(name, entry, environ)) for name, entry in servers.items()]
    return [config for config in found if config is not None]


def _loaded(source: Path | str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if path.exists() and not path.is_file():  # a pipe would be waited for, a device never ends
        raise McpError(f"{path} is no file; give a file with mcpServers as JSON")
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise McpError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(data, dict):
        raise McpError(f'{path} holds no object; expected {{"mcpServers": {{…}}}}')
    return data


def _expanded(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    """A value with its variables replaced, also inside lists and objects."""
    if isinstance(value, Mapping):
        return {key: _expanded(name, item, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(name, item, environ) for item in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        found = environ.get(match[1], match[2])
        if found is None:
            raise McpError(f"MCP server {name!r}: the variable {match[1]} is not set")
        return found

    return _VARIABLE.sub(replaced, value)


def _server(name: str, entry: Any) -> McpServerConfig | None:
    where = f"MCP server {name!r}"
    if not isinstance(entry, Mapping):
        raise McpError(f"{where}: expected an object with `command` or `url`, not {type(entry).__name__}")
    if unknown := sorted(set(entry) - {*_STDIO, *_HTTP, *_OWN, *_OF_OTHERS}):
        raise McpError(f"{where}: {unknown[0]!r} is not known; known are {', '.join((*_STDIO, *_HTTP, *_OWN))}")
    if entry.get("disabled") is True:
        return None
    kind = str(entry.get("type", entry.get("transport", ""))).lower()
    if kind == "sse":
        raise McpError(f"{where}: the old SSE transport is not spoken; ask for the server's streamable HTTP address")
    for key, wanted in (("command", str), ("url", str), ("cwd", str), ("args", list), ("env", dict), ("headers", dict)):
        if key in entry and not isinstance(entry[key], wanted):
            raise McpError(f"{where}: {key} is {entry[key]!r}; expected a {wanted.__name__}")
    timeout_s = entry.get("timeout_s", 30.0)
    effects = entry.get("effects")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise McpError(f"{where}: timeout_s is {timeout_s!r}; give seconds")
    if effects is not None and not (isinstance(effects, list) and all(isinstance(item, str) for item in effects)):
        raise McpError(f'{where}: effects is {effects!r}; expected a list such as ["read"]')
    ignored = sorted(
        set(entry) & {*_OF_OTHERS} - {"type", "transport", "transportType", "disabled", "name", "description"}
    )
    return McpServerConfig(
        name=name,
        command=entry.get("command", ""),
        args=tuple(str(item) for item in entry.get("args", [])),
        env={key: str(value) for key, value in entry.get("env", {}).items()},
        cwd=entry.get("cwd"),
        url=entry.get("url", ""),
        headers={key: str(value) for key, value in entry.get("headers", {}).items()},
        timeout_s=float(timeout_s),
        effects=None if effects is None else frozenset(effects),
        notes=tuple(f"{name}: {key} is another program's setting; it is not followed" for key in ignored),
    )
