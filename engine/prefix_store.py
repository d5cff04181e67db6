"""Saved KV states on disk, found again by the tokens they were computed from.

    <cache>/prefixes/KEY/TOKENS.kv      one state; KEY and TOKENS are digests
    <cache>/prefixes/KEY/TOKENS.tmp     one being written, by whoever holds the lock
    <cache>/prefixes/lock               held while a state is saved; readers need none

Readers see whole files or none, since a file gets its name when it is complete; one that is damaged all the same is
reported, removed and not used. Knows bytes and tokens, not what llama.cpp makes of a state, nor whose text the tokens
are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .folders import cache_dir
from .state_file import DIGEST_BYTES, DamagedError, StateKey, file_parts, open_file, read_file, read_head, write_file

MAX_BYTES = 2_000_000_000
#: Fewer tokens are computed sooner than they are worth a file.
MIN_TOKENS = 64

_LOCK_WAIT_S = 10.0


class SavedPrefix(NamedTuple):
    """A state that was read and checked.

    Args:
        tokens: what it holds.
        n_shared: how many of them the wanted tokens begin with.
        state: llama.cpp's bytes.
        path: where it was.
    """

    tokens: list[int]
    n_shared: int
    state: bytearray
    path: Path


class EntryInfo(NamedTuple):
    """A file of the store, as its head tells; `model` and `n_tokens` are None where the head is unreadable."""

    path: Path
    size_bytes: int
    used_s: float  # seconds since the epoch
    model: str | None
    n_tokens: int | None


class PrefixStore:
    """The folder. Thread safe, and safe beside other processes that use it.

    Args:
        folder: where it is, or will be.
        max_bytes: most bytes of all files together; the least recently used go first.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._tokens: dict[Path, NDArray[np.int32]] = {}  # of files seen; a file never changes
        self._reported: set[Path] = set()
        self._lock = Lock()

    @classmethod
    def default(cls, max_bytes: int = MAX_BYTES) -> PrefixStore:
        """The store in laploop's cache folder."""
        return cls(cache_dir() / "prefixes", max_bytes)

    # -- reading --------------------------------------------------------------------------------------------------

    def longest(self, key: StateKey, tokens: Sequence[int], *, more_than: int = 0) -> SavedPrefix | None:
        """The state that shares the longest prefix with `tokens`, read and checked; None if none shares enough.

        Args:
            key: what the state must be of.
            tokens: the wanted tokens; a state may hold others behind the shared ones.
            more_than: tokens that must be exceeded for a state to be of use.
        """
        wanted = np.asarray(tokens, dtype=np.int32)
        found = []
        for path, held in self._of(key):
            n_shared = _n_shared(held, wanted)
            if n_shared > more_than:
                found.append((-n_shared, len(held), path))
        for minus_shared, _, path in sorted(found):
            with self._guarded(path):
                held, state, _ = read_file(path, key)
                if not np.array_equal(held[:-minus_shared], wanted[:-minus_shared]):
                    continue  # replaced since its head was read
                with contextlib.suppress(OSError):  # a store that may only be read
                    os.utime(path)
                return SavedPrefix([int(t) for t in held], -minus_shared, state, path)
        return None

    def covers(self, key: StateKey, tokens: Sequence[int]) -> bool:
        """Whether a state begins with all of `tokens`; it then counts as used."""
        wanted = np.asarray(tokens, dtype=np.int32)
        for path, held in self._of(key):
            if _n_shared(held, wanted) == len(wanted):
                with contextlib.suppress(FileNotFoundError):
                    with contextlib.suppress(PermissionError):  # a store that may only be read
                        os.utime(path)
                    return True
        return False

    def entries(self) -> list[EntryInfo]:
        """All states, the latest used first."""
        infos = []
        for path in self._files("*.kv"):
            with contextlib.suppress(FileNotFoundError):  # removed by another process
                stat = path.stat()
                try:
                    with open_file(path) as file:
                        head, held = read_head(file, stat.st_size)
                    infos.append(EntryInfo(path, stat.st_size, stat.st_mtime, str(head["model"]), len(held)))
                except FileNotFoundError:
                    continue
                except (DamagedError, OSError):
                    infos.append(EntryInfo(path, stat.st_size, stat.st_mtime, None, None))
        return sorted(infos, key=lambda info: -info.used_s)

    def size_bytes(self) -> int:
        """Bytes of all files, half-written ones too."""
        return sum(size for _, _, size in self._by_age())

    # -- writing --------------------------------------------------------------------------------------------------

    def save(self, key: StateKey, tokens: Sequence[int], state: bytes | bytearray, model: str = "") -> bool:
        """Save a state, atomically; make room for it first.

        A saved state that `tokens` begin with is replaced if it is more than half as long: the new one serves for it. A
        much shorter one stays, being quicker to load.

        Args:
            key: what it is of.
            tokens: what it holds.
            state: llama.cpp's bytes.
            model: a name, for lists.

        Returns:
            False if there is nothing to save: fewer than MIN_TOKENS, saved already, or larger than the whole store.

        Raises:
            OSError: the folder cannot be written, or another process kept its lock for ten seconds.
        """
        if len(tokens) < MIN_TOKENS or self.covers(key, tokens):
            return False
        held = np.asarray(tokens, dtype=np.int32)
        folder = self.folder / key.digest
        path = folder / f"{hashlib.blake2b(held.astype('<i4').tobytes(), digest_size=16).hexdigest()}.kv"
        parts = file_parts(key, held, state, model)
        size_bytes = sum(len(part) for part in parts) + DIGEST_BYTES
        with self._writing():
            if self.covers(key, tokens):
                return False
            for other, shorter in self._of(key):
                if len(held) // 2 < len(shorter) == _n_shared(shorter, held):
                    _remove(other)
            if not self._make_room(size_bytes):
                return False
            folder.mkdir(mode=0o700, exist_ok=True)
            path.with_suffix(".tmp").unlink(missing_ok=True)
            try:
                write_file(path.with_suffix(".tmp"), parts)
                path.with_suffix(".tmp").replace(path)
            finally:
                path.with_suffix(".tmp").unlink(missing_ok=True)
            _sync_folder(folder)
        with self._lock:
            self._tokens[path] = held
        return True

    def clear(self) -> tuple[int, int]:
        """Remove everything; returns how many states and how many bytes that were. Raises OSError like `save`."""
        if not self.folder.is_dir():
            return 0, 0
        n_files = n_bytes = 0
        with self._writing():
            for _, path, size in self._by_age():
                if _remove(path):
                    n_files += path.suffix == ".kv"
                    n_bytes += size
            for folder in self.folder.iterdir():
                if folder.is_dir():
                    with contextlib.suppress(OSError):  # holds something else
                        folder.rmdir()
        return n_files, n_bytes

    def _make_room(self, size_bytes: int) -> bool:
        """Remove what was used longest ago until `size_bytes` more fit; half-written files of killed processes first.

        With the lock held, nobody else is writing.
        """
        if size_bytes > self.max_bytes:
            return False
        files = self._by_age()
        total = sum(size for _, _, size in files)
        for _, path, size in sorted(files, key=lambda f: (f[1].suffix != ".tmp", f[0])):
            if (path.suffix == ".tmp" or total + size_bytes > self.max_bytes) and _remove(path):
                total -= size
        return total + size_bytes <= self.max_bytes

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the one who writes; the lock is free again when its holder dies."""
        from filelock import FileLock

        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.folder / "lock", timeout=_LOCK_WAIT_S, mode=0o600):
            yield

    # -- files ----------------------------------------------------------------------------------------------------

    def _files(self, pattern: str) -> list[Path]:
        return list(self.folder.glob(f"*/{pattern}"))

    def _by_age(self) -> list[tuple[int, Path, int]]:
        """(last use in ns, path, bytes) of all files, the oldest use first."""
        files = []
        for path in [*self._files("*.kv"), *self._files("*.tmp")]:
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, path, stat.st_size))
        return sorted(files)

    def _of(self, key: StateKey) -> list[tuple[Path, NDArray[np.int32]]]:
        """The files for `key`, each with the tokens that its head names; heads are read once."""
        folder = self.folder / key.digest
        paths = sorted(folder.glob("*.kv"))
        with self._lock:
            known = {path: self._tokens[path] for path in paths if path in self._tokens}
        for path in paths:
            if path not in known:
                with self._guarded(path), open_file(path) as file:
                    known[path] = read_head(file, os.fstat(file.fileno()).st_size)[1]
        with self._lock:
            self._tokens = {p: held for p, held in self._tokens.items() if p.parent != folder} | known
        return list(known.items())

    @contextlib.contextmanager
    def _guarded(self, path: Path) -> Iterator[None]:
        """Read `path` inside: one that is gone is passed over, a damaged one removed with a warning."""
        try:
            yield
        except FileNotFoundError:
            self._forget(path)
        except DamagedError as error:
            self.discard(path, f"is {error}")
        except OSError as error:
            self._forget(path)
            self._report(path, f"a saved prompt state cannot be read ({error.strerror or error}): {path}")

    def discard(self, path: Path, fault: str) -> None:
        """Remove a state that cannot be used, with a warning.

        Args:
            path: where it is.
            fault: what is wrong with it, as the end of a sentence: "is damaged".
        """
        self._forget(path)
        done = "was removed" if _remove(path) else "cannot be removed"
        self._report(path, f"a saved prompt state {fault} and {done}: {path}")

    def _forget(self, path: Path) -> None:
        with self._lock:
            self._tokens.pop(path, None)

    def _report(self, path: Path, message: str) -> None:
        """Warn, once for each file."""
        with self._lock:
            known = path in self._reported
            self._reported.add(path)
        if not known:
            warnings.warn(message, stacklevel=2)


def _n_shared(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def _remove(path: Path) -> bool:
    """Delete a file; False if it is gone already, or open on a system that keeps open files."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut, where a folder can be synced."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
