"""The standard streams of the command, made fit for any text and any reader. It knows nothing of what is written."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class Dropping(io.FileIO):
    """A file whose reader may be gone, or whose disk full: what cannot be written is dropped."""

    def write(self, data: Any) -> int:
        """Write, or do as if."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Make the standard streams fit for any text, and closed ones exist.

    A stream that the caller has closed (`<&-`, `>&-`) is None in Python, and the next file that is opened, a model
    perhaps, would get its number: it becomes the null device. Where nobody reads stderr any more, the answer on stdout
    is given all the same.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - as long as the process
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Pipes and files: the same bytes everywhere. A terminal keeps its encoding; what that lacks becomes "?".
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper) and not sys.stderr.isatty():
        file = io.BufferedWriter(Dropping(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(file, encoding="utf-8", errors="replace", line_buffering=True)
