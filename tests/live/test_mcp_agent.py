"""An agent on a real model uses two servers that others wrote: mcp-server-time from PyPI, the filesystem server from
npm (installed here by npm, where there is one)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from laploop.agent import Agent, check_history
from laploop.models import ChatModel

pytest.importorskip("mcp")
pytest.importorskip("mcp_server_time")

from laploop.tools.mcp import McpServerConfig, McpServers

MODEL = "qwen2.5-coder-1.5b"
N_CTX = 8192
PACKAGE = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(scope="module")
def filesystem(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of npm's server."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no node")
    place = tmp_path_factory.mktemp("npm")
    installed = subprocess.run([npm, "install", "--no-audit", "--no-fund", PACKAGE], cwd=place, capture_output=True)
    if installed.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}")
    return [node, str(place / "node_modules" / PACKAGE / "dist" / "index.js")]


def test_the_time_server_is_asked(model: ChatModel) -> None:
    config = McpServerConfig(
        "time",
        command=sys.executable,
        args=("-m", "mcp_server_time", "--local-timezone", "UTC"),
        effects=frozenset({"read"}),
    )
    with McpServers([config]) as servers:
        result = Agent(model, servers.tools(), temperature=0, seed=1).run("What time is it in Asia/Tokyo right now?")
    check_history(result.messages)
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert any("+09:00" in answer for answer in answers), result.messages
    assert result.answer


def test_the_filesystem_server_is_asked(model: ChatModel, filesystem: list[str], tmp_path: Path) -> None:
    (tmp_path / "shopping.txt").write_text("oat milk\nthree lemons\n", "utf-8")
    config = McpServerConfig("files", command=filesystem[0], args=(filesystem[1], str(tmp_path)))
    with McpServers([config]) as servers:
        tools = [item for item in servers.tools() if item.name in ("files_read_text_file", "files_list_directory")]
        question = f"Read the file {tmp_path}/shopping.txt and tell me what I have to buy."
        result = Agent(model, tools, temperature=0, seed=1).run(question)
    check_history(result.messages)
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert any("three lemons" in answer for answer in answers), result.messages
    assert result.answer is not None and "lemons" in result.answer
