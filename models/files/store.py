"""laploop's own model folder: where files, parts, locks and the memory of checked hashes lie.

    <cache>/models/NAME.gguf           a whole, checked file of a package
    <cache>/models/modelscope/OWNER/REPO/NAME.gguf, web/HOST/HASH/NAME.gguf      of ModelScope, of another address
    <cache>/models/NAME.gguf.part      one being fetched, with NAME.gguf.part.json (what of it is whole)
    <cache>/models/NAME.gguf.work/     package archives on their way into the part
    <cache>/models/locks/              one lock a file: a second process waits and then finds it
    <cache>/models/verified/           which files have been hashed, here or in the hub's cache

Knows nothing of where files come from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laploop.engine.folders import cache_dir

from ..errors import DiskSpaceError, ModelUnavailableError
from .progress import Progress, ProgressFunction, silent

HASH_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Store:
    """The folder `root` and the names in it."""

    root: Path

    @classmethod
    def default(cls) -> Store:
        """The store in laploop's cache folder."""
        return cls(cache_dir() / "models")

    def path(self, file: str) -> Path:
        """Where the whole `file` lies, or would."""
        return self.root / file

    def part(self, file: str) -> Path:
        """Where `file` grows while it is fetched; the one place that is never taken for the model."""
        return self.root / f"{file}.part"

    def journal(self, file: str) -> Path:
        """What is known to be whole in the part."""
        return self.root / f"{file}.part.json"

    def work(self, file: str) -> Path:
        """A folder for archives on their way into the part."""
        return self.root / f"{file}.work"

    @contextlib.contextmanager
    def lock(self, name: str, progress: ProgressFunction = silent) -> Iterator[None]:
        """Hold the lock of `name` across processes; says once that it waits. Freed when the process dies.

        Raises `ModelUnavailableError` where the folder cannot be written.
        """
        from filelock import FileLock, Timeout

        folder = self.root / "locks"
        lock = FileLock(folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:  # filelock's, an OSError too
            progress(Progress(f"waiting for another process that fetches {name}", 0, None, "disk"))
            lock.acquire()
        except OSError as error:
            raise ModelUnavailableError(
                f"{name} cannot be fetched: the model folder {self.root} cannot be written "
                f"({error.strerror or error}). Set LAPLOOP_CACHE_DIR to a folder that can."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def files(self) -> list[Path]:
        """The whole models that lie here."""
        return sorted(path for path in self.root.rglob("*.gguf") if path.is_file())

    def name_of(self, path: Path) -> str:
        """The name by which `path(name)` is that file."""
        return path.relative_to(self.root).as_posix()

    def remove(self, file: str) -> list[tuple[Path, int]]:
        """Delete `file`, its part and its archives; returns each path that was deleted with its bytes."""
        removed = []
        for path in (self.path(file), self.part(file), self.journal(file), self.work(file)):
            if path.is_dir():
                removed.append((path, sum(item.stat().st_size for item in path.rglob("*") if item.is_file())))
                shutil.rmtree(path)
            elif path.exists():
                removed.append((path, path.stat().st_size))
                path.unlink()
        return removed

    def is_verified(self, path: Path, sha256: str) -> bool:
        """Whether this very file (size and time unchanged) has been hashed before and was `sha256`."""
        return self.recorded(path) == self._facts(path, sha256)

    def recorded(self, path: Path) -> dict[str, Any]:
        """What was noted when the file was hashed last (`size_bytes`, `mtime_ns`, `sha256`); or nothing."""
        try:
            record = json.loads(self._record(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # never hashed, or a damaged record: hashing again is the remedy for both
        return record if isinstance(record, dict) else {}

    def remember(self, path: Path, sha256: str) -> None:
        """Note that `path` as it is now hashes to `sha256`, so that later starts need not read it whole.

        Where the folder cannot be written, which a model on disk does not need, that is a warning.
        """
        try:
            write_json(self._record(path), self._facts(path, sha256))
        except OSError as error:
            warnings.warn(
                f"{self.root} cannot be written ({error.strerror or error}), so that {path.name} is read and checked "
                "at every start; LAPLOOP_CACHE_DIR can name another folder",
                stacklevel=2,
            )

    def _record(self, path: Path) -> Path:
        key = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
        return self.root / "verified" / f"{key}.json"

    @staticmethod
    def _facts(path: Path, sha256: str) -> dict[str, Any]:
        stat = path.stat()
        return {
            "path": str(path.resolve()),
            "size_bytes": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "sha256": sha256,
        }


def write_json(path: Path, value: Any) -> None:
    """Write `value` so that a crash leaves either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def sha256_of(path: Path, progress: ProgressFunction = silent) -> str:
    """The SHA-256 of a file, read in pieces."""
    total, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(Progress(f"checking {path.name}", done, total, "disk"))
    return digest.hexdigest()


def check_disk_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Raise `DiskSpaceError` unless `needed_bytes` are free where `folder` is, or will be."""
    there = folder
    while not there.exists():
        there = there.parent
    free_bytes = shutil.disk_usage(there).free
    if needed_bytes > free_bytes:
        raise DiskSpaceError(
            f"Not enough disk space for {what}: {needed_bytes:,} bytes are needed in {folder} and "
            f"{free_bytes:,} are free. Free some, or set HF_HOME and LAPLOOP_CACHE_DIR to another disk."
        )
