"""The Python in README and docs: it compiles, its laploop names exist, and the README's ten lines run."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


ALL = [(page.relative_to(ROOT).as_posix(), number, code) for page in PAGES for number, code in enumerate(blocks(page))]


@pytest.mark.parametrize(("page", "number", "code"), ALL, ids=[f"{page}:{number}" for page, number, _ in ALL])
def test_a_block_compiles_and_imports_only_names_that_exist(page: str, number: int, code: str) -> None:
    missing = []
    for node in ast.walk(ast.parse(code, f"{page}, block {number}")):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "laploop":
            module = importlib.import_module(node.module or "")
            missing += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
    assert missing == []


def test_both_readmes_show_the_same_program() -> None:
    assert blocks(ROOT / "README.md") == blocks(ROOT / "README.zh-CN.md")


@pytest.mark.live
def test_the_readmes_program_answers_with_the_sum(tmp_path: Path) -> None:
    """As printed, but for the model: LAPLOOP_TEST_MODEL, or the one that travels in packages."""
    code, count = re.subn(
        r'"qwen3-1.7b"',
        repr(os.environ.get("LAPLOOP_TEST_MODEL", "qwen2.5-coder-1.5b")),
        blocks(ROOT / "README.md")[0],
    )
    assert count == 1
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "5555" in done.stdout.replace(",", "")
