"""Tools of MCP servers (the Model Context Protocol), as laploop's own: extra `mcp`."""
