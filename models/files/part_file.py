"""A file while it grows: its bytes on disk, and the SHA-256 of them.

Knows nothing of where the bytes come from. What is on disk stays there when the process ends, however it
ends.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ..errors import ChecksumError
from .progress import Progress, ProgressFunction, silent
from .store import HASH_CHUNK_BYTES


class PartFile:
    """Opens `path` for growing from its first `keep_bytes` (None: all there are), which are hashed first."""

    def __init__(self, path: Path, keep_bytes: int | None = None, progress: ProgressFunction = silent) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.n_bytes = 0
        self._digest = hashlib.sha256()
        self._file = path.open("r+b" if path.exists() else "w+b")
        try:
            keep = path.stat().st_size if keep_bytes is None else keep_bytes
            while self.n_bytes < keep:
                chunk = self._file.read(min(HASH_CHUNK_BYTES, keep - self.n_bytes))
                if not chunk:
                    break
                self._digest.update(chunk)
                self.n_bytes += len(chunk)
                progress(Progress(f"checking what is there of {path.name}", self.n_bytes, keep, "disk"))
            self._file.truncate(self.n_bytes)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append `chunk`."""
        self._file.write(chunk)
        self._digest.update(chunk)
        self.n_bytes += len(chunk)

    def restart(self) -> None:
        """Drop everything."""
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self.n_bytes = 0

    def sync(self) -> None:
        """Make what was written survive a crash of the machine."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def sha256(self) -> str:
        """The hash of all bytes so far."""
        return self._digest.hexdigest()

    def finish(
        self,
        target: Path,
        size_bytes: int | None,
        sha256: str | None,
        what: str,
        fault: Callable[[Path], str] | None = None,
    ) -> None:
        """Check the whole against `size_bytes` and `sha256` (where known) and give it its final name at once.

        `fault` looks at the file where no hash is known: it says what is wrong with it, nothing if nothing is.
        Wrong bytes are deleted: `ChecksumError` says what came, what was expected, and from where.
        """
        self.sync()
        self._file.close()
        wrong = ""
        if size_bytes is not None and self.n_bytes != size_bytes:
            wrong = f"has {self.n_bytes:,} bytes, expected {size_bytes:,}"
        elif sha256 is not None and self.sha256() != sha256:
            wrong = f"has SHA-256 {self.sha256()}, expected {sha256}"
        elif sha256 is None and fault is not None:
            wrong = fault(self.path)
        if wrong:
            self.path.unlink()
            raise ChecksumError(
                f"{what} is not the published file: it {wrong}. It was deleted; "
                "try again, and if this repeats distrust the source (a mirror or a proxy may alter files)."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        self.path.replace(target)
