"""What is in the wheel and in the sdist: every file of every package, and nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("engine", "models", "tools", "agent", "scripts")
DATA = (".typed", ".json", ".jinja", ".toml")
# Run from the checkout or copied alone, never imported from an installed laploop.
NOT_SHIPPED = (Path("scripts/bootstrap"), Path("scripts/examples"), Path("scripts/benchmarks"))


def package_files() -> set[str]:
    """Paths, relative to the root, of all files that an installed laploop consists of."""
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            relative = path.relative_to(ROOT)
            if any(part in relative.parents for part in NOT_SHIPPED) or "__pycache__" in relative.parts:
                continue
            if path.suffix in (".py", *DATA):
                found.add(relative.as_posix())
    return found


def test_the_wheel_holds_every_package_file_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    inside = {name.removeprefix("laploop/") for name in names}
    missing = sorted(package_files() - inside)
    assert not missing, f"list these folders in pyproject.toml's packages and package-dir, or package-data: {missing}"
    assert names == {f"laploop/{name}" for name in package_files()}


def test_each_package_carries_the_mark_of_typed_code(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [folder for folder in FOLDERS if f"laploop/{folder}/py.typed" not in names] == []


def test_the_wheel_tells_its_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())


def test_the_sdist_holds_what_a_build_needs(dist: Path) -> None:
    (path,) = dist.glob("laploop-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() | {"pyproject.toml", "README.md", "LICENSE"} <= names
