"""Every block of the pages below is a program that runs; a tiny random-weight model stands in for the one that is
named. And the files that the docs name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    (page, number, code)
    for page in (
        "concurrency.md",
        "python-api.md",
        "schemas.md",
        "agent.md",
        "openai-client.md",
        "sessions.md",
        "traces.md",
    )
    for number, code in enumerate(BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))
]
FOLDERS = ("engine", "models", "tools", "agent", "scripts", "tests", "docs")
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`")


@pytest.mark.parametrize(("page", "number", "code"), PROGRAMS, ids=[f"{page}:{number}" for page, number, _ in PROGRAMS])
def test_the_program_runs(page: str, number: int, code: str, tiny_path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(code.replace('"qwen3-1.7b"', repr(str(tiny_path))), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(program)], capture_output=True, encoding="utf-8", cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert done.stderr == ""


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w./-]+\.\w+)\)", text)
    missing = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in links if not (page.parent / link).exists()]
    assert missing == []
