"""What the last set-up finished, and whether that still fits the checkout. Runs no program: quick to ask."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .places import Places

FORMAT = 1
PACKAGE_FOLDERS = ("engine", "models", "tools", "agent", "scripts")
PACKAGE_SUFFIXES = (".py", ".typed", ".json", ".jinja", ".toml")


@dataclass(frozen=True)
class Stamp:
    """What is in `.venv`; an empty field means that the step was not finished."""

    interpreter: str = ""  # real path of the Python behind it: when that is replaced, all breaks
    python: str = ""
    gpu: str = ""
    llama: str = ""  # version of llama-cpp-python that imports
    extras: tuple[str, ...] = ()
    dependencies: str = ""  # hash of pyproject.toml and constraints.txt
    files: str = ""  # hash of the list of package files

    def save(self, path: Path) -> None:
        """Write atomically: a kill at any moment leaves the old stamp or the new one."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1), encoding="utf-8")
        temporary.replace(path)

    def with_changes(self, **changes: object) -> Stamp:
        """Return a copy with these fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]  # field names are checked by replace itself


def load(path: Path) -> Stamp:
    """Read a stamp; a missing, damaged or older one counts as nothing done: set-up repeats, which is safe."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("format", None) != FORMAT:
            return Stamp()
        data["extras"] = tuple(data.get("extras", ()))
        return Stamp(**data)
    except (OSError, ValueError, TypeError, AttributeError):
        return Stamp()


def dependencies_hash(places: Places) -> str:
    """Hash what decides which packages are installed."""
    digest = hashlib.sha256()
    for path in (places.pyproject, places.constraints):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def files_hash(places: Places) -> str:
    """Hash the list of package files: the strict editable install links each, so a new one needs another.

    Where links are hard links (Windows without the right to make symbolic ones) an editor that replaces a
    file cuts it off from its link, so there size and time of change count too.
    """
    digest = hashlib.sha256()
    for folder in PACKAGE_FOLDERS:
        for path in _files(str(places.root / folder)):
            digest.update(os.path.relpath(path, places.root).encode("utf-8", "surrogateescape") + b"\0")
            if os.name == "nt":
                status = Path(path).stat()
                digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _files(folder: str) -> list[str]:
    found: list[str] = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [os.path.join(where, name) for name in sorted(names) if name.endswith(PACKAGE_SUFFIXES)]
    return found


def venv_works(places: Places, stamp: Stamp) -> bool:
    """Tell whether the environment was made to its end and its Python is still the one it was made from."""
    return places.python.exists() and os.path.realpath(places.python) == stamp.interpreter


def missing(places: Places, stamp: Stamp, gpu: str | None, extras: tuple[str, ...]) -> list[str]:
    """Name the steps that are still to do, in order: "venv", "llama", "packages", "link".

    `gpu` None keeps the backend that is there. "link": only files of laploop came or went.
    """
    if not venv_works(places, stamp):
        return ["venv", "llama", "packages"]
    other_backend = gpu is not None and gpu != stamp.gpu
    if other_backend or stamp.llama != pinned(places, "llama-cpp-python"):
        return ["llama", "packages"]
    if not set(extras) <= set(stamp.extras) or stamp.dependencies != dependencies_hash(places):
        return ["packages"]
    linked = any((places.root / "build").glob("__editable__.laploop-*"))
    if stamp.files != files_hash(places) or not linked or not places.program("laploop").exists():
        return ["link"]
    return []


def pinned(places: Places, name: str) -> str:
    """Return the version that constraints.txt fixes for a package."""
    for line in places.constraints.read_text(encoding="utf-8").splitlines():
        package, separator, version = line.partition("==")
        if separator and package.strip() == name:
            return version.split(";")[0].strip()
    raise ValueError(f"constraints.txt does not pin {name}")
