"""What the code imports is what pyproject.toml declares, and what docs/dependencies.md gives a reason for."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
EXTRA = {
    canonicalize_name(Requirement(text).name) for extra in PROJECT["optional-dependencies"].values() for text in extra
} - {"laploop"}
# pydantic's own half; the packages of extras, and the HTTP client that mcp takes
PART_OF_OTHERS = {"pydantic-core", "openai", "pypdf", "mcp", "httpx2"}
# Imported by nobody here: data that zoneinfo finds by itself, and what trafilatura needs but pip before 23.3
# overlooks.
NOT_IMPORTED = {"tzdata", "lxml-html-clean", *({"tomli"} if sys.version_info >= (3, 11) else ())}


def import_names() -> dict[str, str]:
    """Import name → the distribution that installs it, from the lists of installed files.

    `importlib.metadata.packages_distributions` overlooks some on Python 3.10.
    """
    found = {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        for file in distribution.files or ():
            if file.suffix == ".py":
                found[file.parts[0].removesuffix(".py")] = name
    return found


def imported_distributions() -> dict[str, str]:
    """Distribution → one file that imports it, for all third-party imports of the package's folders."""
    home = import_names()
    found = {}
    for folder in ("engine", "models", "tools", "agent", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            if {"bootstrap", "benchmarks", "examples"} & set(path.parts):  # examples declare theirs in their headers
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                for name in {name.partition(".")[0] for name in names} - {"laploop"} - sys.stdlib_module_names:
                    found[home.get(name, name)] = f"{path.relative_to(ROOT)} ({name})"
    return found


def test_every_imported_package_is_declared() -> None:
    undeclared = {
        name: where for name, where in imported_distributions().items() if name not in DECLARED | PART_OF_OTHERS
    }
    assert undeclared == {}


def test_every_core_dependency_is_imported() -> None:
    assert DECLARED - NOT_IMPORTED - set(imported_distributions()) == set()


def test_every_dependency_has_its_reason_in_the_docs() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = {canonicalize_name(word) for line in rows for word in re.findall(r"[\w-]+", line)}
    assert (DECLARED | EXTRA) - named == set()
