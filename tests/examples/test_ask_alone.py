"""The single-file example installs and answers under `uv run`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest


@pytest.mark.live
def test_ask_answers_through_its_own_tool_from_an_empty_folder(
    run_alone: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_alone("ask.py", "What is 23 times 17? Use the tool.")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"multiply\(.*\) = 391", done.stderr)
    assert "391" in done.stdout
