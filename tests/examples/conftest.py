"""Examples as a user has them: one file, alone in an empty folder, run by `uv run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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
MODEL = os.environ.get("LAPLOOP_TEST_MODEL", "qwen2.5-coder-1.5b")

RunAlone = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def laploop_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of laploop's wheel, which stands in for a package index that has this very version."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    command = [sys.executable, "-I", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / "dist"


@pytest.fixture
def run_alone(laploop_wheel: Path, tmp_path: Path) -> RunAlone:
    """`run_alone("ask.py", "a question", VARIABLE="value")` is the finished process."""
    # scripts/test keeps the wheel of llama.cpp that it built: without it uv builds its own, in minutes
    kept = [path for path in Path(sys.prefix, "wheels").glob("*") if path.is_dir()]

    def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        alone = tmp_path / "alone"
        alone.mkdir()
        shutil.copy2(ROOT / "scripts" / "examples" / name, alone)
        environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        environment |= {
            "UV_FIND_LINKS": ",".join(path.as_uri() for path in [laploop_wheel, *kept]),
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "LAPLOOP_MODEL": MODEL,
            **variables,
        }
        command = [sys.executable, "-m", "uv", "run", name, *arguments]
        return subprocess.run(command, cwd=alone, env=environment, capture_output=True, text=True)

    return run
