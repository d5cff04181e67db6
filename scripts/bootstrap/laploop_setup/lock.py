"""One set-up at a time in one checkout. Knows no step of it.

An operating-system lock on an open file, since that ends with the processes that hold it, whatever killed
them. The programs that set-up starts inherit it: a pip that outlives a killed set-up keeps others out.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from .places import say

_POLL_S = 0.2


def _try_lock(descriptor: int) -> bool:
    if os.name == "nt":
        import msvcrt

        # attributes of msvcrt exist for type checkers on Windows only
        locking, no_wait = getattr(msvcrt, "locking"), getattr(msvcrt, "LK_NBLCK")  # noqa: B009
        try:
            locking(descriptor, no_wait, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold the lock at `path`, waiting with one line of notice if need be; yields its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        told = False
        while True:
            try:
                if _try_lock(descriptor):
                    break
            except OSError as error:  # a file system without locks (some network drives)
                say(f"cannot lock {path} ({error}): do not start two set-ups at once here")
                break
            if not told:
                say("another set-up is running in this folder; waiting for it")
                told = True
            time.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)
