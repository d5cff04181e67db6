"""Which models of the catalogue run on this machine, how fast, and which of them is the best choice.

What a file needs is read from its header, or from the header that a file of its shape would have; nothing is fetched.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from laploop.engine import EngineConfig
from laploop.engine.gguf import GGUFFile, read_gguf
from laploop.engine.memory import context_length, estimate, fitted

from .calibration import Calibration
from .catalogue import Catalogue, CatalogueEntry
from .resolve import on_disk
from .store import Store
from .synthetic import synthetic_header

ENOUGH_TOKENS_PER_S = 5.0  # slower than people read
LEAST_N_CTX = 2048


@dataclass(frozen=True, slots=True)
class Fit:
    """A model of the catalogue on this machine.

    Args:
        entry: which.
        path: where it lies; None if it is not here.
        n_ctx: the context that it gets; 0 if it does not fit.
        needed_bytes: memory for it, at that context or the least.
        tokens_per_s, prompt_tokens_per_s: as expected from the calibration; None without one.
    """

    entry: CatalogueEntry
    path: Path | None
    n_ctx: int
    needed_bytes: int
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it fits in memory."""
        return self.n_ctx > 0


def headers(catalogue: Catalogue, store: Store) -> dict[str, tuple[GGUFFile, Path | None]]:
    """Name → header and place of each model whose shape is known."""
    found: dict[str, tuple[GGUFFile, Path | None]] = {}
    for entry in catalogue.entries:
        if (path := on_disk(entry, store)) is not None:
            found[entry.name] = (read_gguf(path), path)
        elif entry.shape:
            found[entry.name] = (synthetic_header(f"{entry.shape}:{entry.quant}"), None)
    return found


def fits(
    catalogue: Catalogue,
    known: dict[str, tuple[GGUFFile, Path | None]],
    config: EngineConfig,
    speeds: Calibration | None,
    free_bytes: int | None,
) -> list[Fit]:
    """How each model of `known` fits.

    Args:
        catalogue: in whose order they come.
        known: from `headers`.
        config: how they would be loaded.
        speeds: what was measured; None leaves the speeds open.
        free_bytes: the memory there is; None if that is not known: then all fit.
    """
    rows = []
    for entry in catalogue.entries:
        if entry.name not in known:
            continue
        header, path = known[entry.name]
        loaded, runs = _loaded(header, config, free_bytes)
        rows.append(
            Fit(
                entry,
                path,
                context_length(header, loaded) if runs else 0,
                estimate(header, loaded).needed_bytes,
                1 / speeds.decode_s(header) if speeds else None,
                1 / speeds.prompt_s(header) if speeds else None,
            )
        )
    return rows


def _loaded(header: GGUFFile, config: EngineConfig, free_bytes: int | None) -> tuple[EngineConfig, bool]:
    """How the engine would load it, and whether it fits so; else the least that it would try."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says which context fits
        found = fitted(header, config, free_bytes)
    runs = free_bytes is None or estimate(header, found).needed_bytes <= free_bytes
    if not runs and config.n_ctx is None:
        found = replace(config, n_ctx=min(LEAST_N_CTX, context_length(header, config)))
    return found, runs


def best(rows: Sequence[Fit]) -> Fit | None:
    """The largest model that runs, knows tools and is quick enough; the quickest if none is; None if none runs.

    More parameters answer better, a finer quantisation of the same model too.
    """
    usable = [row for row in rows if row.runs and row.entry.has_tools] or [row for row in rows if row.runs]
    quick = [row for row in usable if (row.tokens_per_s or ENOUGH_TOKENS_PER_S) >= ENOUGH_TOKENS_PER_S]
    if quick:
        return max(quick, key=lambda row: (_billions(row.entry), row.entry.size_bytes or 0))
    return max(usable, key=lambda row: row.tokens_per_s or 0.0, default=None)


def _billions(entry: CatalogueEntry) -> float:
    number = entry.shape.rsplit("-", 1)[-1]
    return float(number[:-1]) / (1 if number.endswith("b") else 1000)
