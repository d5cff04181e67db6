"""Traces on disk: one file a run, written line by line while the run goes on. It knows files, not what happened.

A line is in the operating system's hands as soon as its event is over, so that a process that is killed leaves all of
it but, at worst, a last half line (`Trace.read` says so). The folder is bounded: the oldest traces go first.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import TraceError
from .json_text import dumps
from .redaction import Redaction
from .trace import HEAD

SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class TraceFolder:
    """Where an agent writes its traces.

    Args:
        path: the folder; it is made when it is needed, for the user alone.
        max_bytes: of all traces; the oldest go before a new one begins.
        max_traces: how many are kept.
        max_trace_bytes: of one trace; what comes then is left out, and a last record says so.
        redaction: what is taken out before anything is written.
    """

    path: str | Path
    max_bytes: int = 200_000_000
    max_traces: int = 1_000
    max_trace_bytes: int = 20_000_000
    redaction: Redaction = field(default_factory=Redaction)

    @property
    def _folder(self) -> Path:
        return Path(self.path)

    def begin(self) -> TraceFile | None:
        """A new file; None, and a warning, where none can be written: a run goes on without its trace."""
        when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
        target = self._folder / f"{when}-{uuid.uuid4().hex[:8]}{SUFFIX}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room()
            return TraceFile(target, self.redaction, self.max_trace_bytes)
        except OSError as error:
            warnings.warn(f"no trace is written to {target}: {error.strerror or error}", stacklevel=2)
            return None

    def traces(self) -> list[Path]:
        """The files, the latest first."""
        with contextlib.suppress(OSError):
            return sorted(self._folder.glob(f"*{SUFFIX}"), reverse=True)
        return []

    def find(self, name: str = "") -> Path:
        """The trace whose name begins, or ends (without its suffix), with `name`; the latest for "".

        Raises:
            TraceError: none or several are meant.
        """
        traces = self.traces()
        if not traces:
            raise TraceError(f"there are no traces in {self._folder}")
        fitting = [t for t in traces if t.name.startswith(name) or t.name.removesuffix(SUFFIX).endswith(name)]
        if len(fitting) == 1 or (fitting and not name):
            return fitting[0]
        what = "no trace is" if not fitting else f"{len(fitting)} traces are"
        raise TraceError(f"{what} meant by {name!r}; `laploop trace list` names them")

    def _make_room(self) -> None:
        n_bytes = 0
        for number, path in enumerate(self.traces(), 1):
            with contextlib.suppress(OSError):  # another process was quicker, or still has it open (Windows)
                n_bytes += path.stat().st_size
                if number >= self.max_traces or n_bytes > self.max_bytes:
                    path.unlink()


class TraceFile:
    """One trace that is being written.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path, redaction: Redaction, max_bytes: int) -> None:
        self.path = path
        self._redaction = redaction
        self._n_left = max_bytes
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._handle: int | None = os.open(path, flags, 0o600)
        self._put(HEAD)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record and hand it to the operating system at once. After a fault, which a warning tells, or past
        the bound nothing more is written."""
        if self._handle is None:
            return
        try:
            self._put(record)
        except OSError as error:
            warnings.warn(f"the trace {self.path} ends here: {error.strerror or error}", stacklevel=2)
            self.close()

    def close(self) -> None:
        """End the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()

    def _put(self, record: Mapping[str, Any]) -> None:
        assert self._handle is not None, "write() looks"
        line = (dumps(self._redaction.value(dict(record))) + "\n").encode("utf-8")
        if len(line) > self._n_left:
            note = {"type": "trace_full", "t_s": record.get("t_s"), "left_out": record.get("type")}
            line = (dumps(note) + "\n").encode("utf-8")
            _write_all(self._handle, line)
            self.close()
            return
        self._n_left -= len(line)
        _write_all(self._handle, line)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
