"""One wheel and one source archive of laploop, built from a copy of the checkout, for all packaging tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_NOT_SOURCE = (
    ".git",
    ".venv",
    ".ci",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".tmp",
)


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with laploop's sdist, and the wheel that was built from that sdist."""
    # a copy, since setuptools writes into build/, where the editable install has its links
    source = tmp_path_factory.mktemp("source") / "laploop"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*_NOT_SOURCE))
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-I", "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    absent = re.findall(r"Package '([\w.]+)' is absent", done.stdout + done.stderr)
    assert not absent, f"list in pyproject.toml's packages and package-dir: {sorted(set(absent))}"
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel of laploop."""
    (found,) = dist.glob("laploop-*.whl")
    return found
