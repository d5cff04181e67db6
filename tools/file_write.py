"""Replacing a file below a root, whole or not at all. It knows no diffs and asks nobody.

The new content is written beside the file under a hidden name, flushed, and renamed over it, all in a folder that was
entered name by name (`beneath`). Never written: hidden files and what lies in hidden folders (.git, .ssh), and what is
not a regular file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from .beneath import BY_DESCRIPTOR, entered
from .errors import FileAccessError
from .file_root import FileRoot

MAX_WRITTEN_BYTES = 2_000_000


def check_writable(root: FileRoot, path: str) -> Path:
    """The real path of a file that may be written; it need not exist.

    Raises:
        FileAccessError: outside the root, hidden, or there and not a regular file.
    """
    real = root.resolve(path)
    parts = real.relative_to(root.path).parts
    if not parts or path.endswith(("/", os.sep)):
        raise FileAccessError(f"{path[:200]!r} is a folder; give the path of a file in it")
    if any(part.startswith(".") for part in parts):
        raise FileAccessError(f"{path[:200]!r} is hidden; files and folders that start with a dot are not written")
    with contextlib.suppress(OSError):  # it is not there yet
        if not stat.S_ISREG(os.lstat(real).st_mode):
            raise FileAccessError(f"{path[:200]!r} is a folder or a device, not a file that can be written")
    return real


def replace_file(root: FileRoot, path: str, data: bytes) -> None:
    """Make `data` the content of the file `path`, with the folders above it where they are missing.

    Raises:
        FileAccessError: as `check_writable`; too much data; the system refuses.
    """
    real = check_writable(root, path)
    if len(data) > MAX_WRITTEN_BYTES:
        raise FileAccessError(f"{len(data):,} bytes are too many for one file; at most {MAX_WRITTEN_BYTES:,}")
    try:
        with _parent(root.path, real.parent) as folder:
            _write_beside(real, folder, data)
    except OSError as error:
        raise FileAccessError(f"cannot write {path[:200]!r}: {error.strerror or 'refused'}") from error


@contextlib.contextmanager
def _parent(root: Path, folder: Path) -> Iterator[int | None]:
    """The folder of a file, by descriptor where that is possible; made if it is missing."""
    if BY_DESCRIPTOR:
        with entered(root, folder, create=True) as descriptor:
            yield descriptor
        return
    folder.mkdir(parents=True, exist_ok=True)
    yield None


def _write_beside(real: Path, folder: int | None, data: bytes) -> None:
    def at(name: str) -> str | Path:
        return name if folder is not None else real.with_name(name)

    new = at(f".{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(new, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(OSError, AttributeError):  # not there yet, or a system without modes
                os.fchmod(
                    descriptor, stat.S_IMODE(os.stat(at(real.name), dir_fd=folder, follow_symlinks=False).st_mode)
                )
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, at(real.name), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
