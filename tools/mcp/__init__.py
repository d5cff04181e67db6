"""Tools of MCP servers (the Model Context Protocol) as laploop's own; needs the extra `mcp`."""

from .config import McpError, McpServerConfig, read_servers
from .servers import McpServers

__all__ = ["McpError", "McpServerConfig", "McpServers", "read_servers"]
