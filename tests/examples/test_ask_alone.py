"""The single-file example, copied alone into an empty folder, installs and answers under `uv run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCE = (
    ".git",
    ".venv",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".tmp",
)


def laploop_wheel(folder: Path) -> Path:
    """Build laploop's wheel, which stands in for a package index that has this very version."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    command = [
        sys.executable,
        "-I",
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
    ]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / "dist"


@pytest.mark.live
def test_ask_answers_through_its_own_tool_from_an_empty_folder(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy2(ROOT / "scripts" / "examples" / "ask.py", alone)
    # scripts/test keeps the wheel of llama.cpp that it built: without it uv builds its own, in minutes
    links = [
        laploop_wheel(tmp_path),
        *(path for path in Path(sys.prefix, "wheels").glob("*") if path.is_dir()),
    ]
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {
        "UV_FIND_LINKS": ",".join(path.as_uri() for path in links),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "LAPLOOP_MODEL": os.environ.get("LAPLOOP_TEST_MODEL", "qwen2.5-coder-1.5b"),
    }
    command = [sys.executable, "-m", "uv", "run", "ask.py", "What is 23 times 17? Use the tool."]
    done = subprocess.run(command, cwd=alone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"multiply\(.*\) = 391", done.stderr)
    assert "391" in done.stdout
