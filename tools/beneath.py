"""Opening below a folder, one name after the other: a folder that is swapped for a link between a check and its use
leads nowhere. It judges no paths (see `file_root`) and reads no content.

Each name is opened relative to the folder before it and never as a link (openat(2), O_NOFOLLOW). Where the system
cannot do that (Windows), the path is opened as a whole, and what stands between check and use is a matter of trust in
whoever may write there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_DIRECTORY")


def _flags(*names: str) -> int:
    """Those of the flags that this system has."""
    return sum(getattr(os, name, 0) for name in names)


READ_FILE = os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # a FIFO is not waited for
_ENTER = _flags("O_PATH") or os.O_RDONLY  # a folder that may be entered but not listed is entered
_FOLDER = _flags("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")


@contextlib.contextmanager
def entered(root: Path, folder: Path, *, create: bool = False) -> Iterator[int]:
    """A descriptor of `folder`, which is `root` or lies below it, to open names in; closed at the end.

    Args:
        create: make the folders that are missing.

    Raises:
        OSError: a name on the way is missing, is no folder, or has become a link.
    """
    descriptor = os.open(root, _ENTER | _flags("O_DIRECTORY", "O_CLOEXEC"))
    try:
        for name in folder.relative_to(root).parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            inner = os.open(name, _ENTER | _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_beneath(root: Path, real: Path, flags: int = READ_FILE) -> int:
    """A descriptor of the file or folder `real`, which lies below `root` or is it; raises OSError as `entered`."""
    if not BY_DESCRIPTOR or real == root:
        return os.open(real, flags)
    with entered(root, real.parent) as folder:
        return os.open(real.name, flags, dir_fd=folder)


@contextlib.contextmanager
def listed(root: Path, folder: Path) -> Iterator[tuple[int | None, list[os.DirEntry[str]]]]:
    """The entries of a folder, unsorted, and a descriptor to open them by (None where there are no such).

    Raises:
        OSError: as `entered`, or the folder may not be listed.
    """
    if not BY_DESCRIPTOR:
        with os.scandir(folder) as entries:
            yield None, list(entries)
        return
    descriptor = open_beneath(root, folder, os.O_RDONLY | _FOLDER)
    try:
        with os.scandir(descriptor) as entries:
            yield descriptor, list(entries)
    finally:
        os.close(descriptor)
