"""A real MCP server for tests, on the official SDK: `python mcp_server.py [PORT]`, over stdio or HTTP.

LAPLOOP_TEST_LOG names a file to which it appends what it does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("odd things")


def log(word: str) -> None:
    if path := os.environ.get("LAPLOOP_TEST_LOG"):
        with open(path, "a") as file:
            file.write(word + "\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def echo(text: str, times: int = 1) -> str:
    """Repeat a text, e.g. echo("a", 2) is "aa". Returns it."""
    return text * times


@server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False))
async def slow(seconds: float) -> str:
    """Wait."""
    log("slow begins")
    try:
        await anyio.sleep(seconds)
    except BaseException:
        log("slow was cancelled")
        raise
    return "waited"


@server.tool()
def die() -> str:
    """End the server in the middle of the call."""
    os._exit(7)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such thing as 42")


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """A picture with a line above it."""
    return [TextContent(type="text", text="see:"), ImageContent(type="image", data="AAAA" * 10, mime_type="image/png")]


@server.tool()
def table() -> dict[str, Any]:
    """Something structured."""
    return {"rows": [[1, "二"]], "n": 1}


@server.tool()
def environment() -> str:
    """Names of the variables that the server sees."""
    return " ".join(sorted(os.environ))


if __name__ == "__main__":
    log(f"start {os.getpid()}")
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
