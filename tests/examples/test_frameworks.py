"""Agents of four frameworks on a model in this process, each with no network but the package index beforehand.

All of them: `scripts/test -m "slow or live" tests/examples`. CI runs one; the others bring some hundred megabytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from laploop.models import resolve_model

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "scripts" / "examples").glob("*.py"))
# Ends the program at its first step out of the process, also where somebody would catch an exception.
NO_NETWORK = """
import os, sys

def guard(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        print("NETWORK", event, arguments, file=sys.stderr, flush=True)
        os._exit(97)

sys.addaudithook(guard)
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pydantic_ai_example.py", marks=pytest.mark.live),
        pytest.param("openai_agents_example.py", marks=pytest.mark.slow),
        pytest.param("langchain_example.py", marks=pytest.mark.slow),
        pytest.param("smolagents_example.py", marks=pytest.mark.slow),
    ],
)
def test_an_agent_answers_with_what_only_its_tool_can_know(
    name: str, tmp_path: Path, run_alone: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    model = resolve_model("qwen2.5-coder-1.5b").path
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    done = run_alone(name, LAPLOOP_MODEL=str(model), PYTHONPATH=str(guard))
    assert done.returncode == 0, done.stderr[-3000:]
    readings = re.findall(r"get_temperature\(.*\) = (\d+)", done.stderr)
    assert readings, done.stderr[-3000:]
    assert readings[0] in done.stdout, (readings, done.stdout)


def test_the_guard_guards(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    code = "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept BaseException:\n    pass"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.split()[0]) == (97, "NETWORK")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_says_what_it_needs(path: Path) -> None:
    """The header that `uv run` reads, with the llama.cpp that everything else here has, and its build."""
    text = path.read_text(encoding="utf-8")
    pin = re.search(r"^llama-cpp-python==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pin
    laploop = "laploop[openai]" if "openai_client" in text else "laploop"
    header = (
        "# /// script",
        '# requires-python = ">=3.10"',
        f'# dependencies = ["{laploop}", "{pin[0]}"',
        "#",
        "# [tool.uv.extra-build-variables]",
        '# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }',
        "# ///",
    )
    for line, wanted in zip(text.splitlines(), header, strict=False):
        assert line.startswith(wanted)
