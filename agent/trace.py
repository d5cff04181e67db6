"""The record of a run: one JSON object per thing that happened, in order of time. It never calls a model.

Record types: run_started (question, system prompt, tools, settings), then the events of laploop.agent.events
under their names in snake_case (deltas and CallBegun are left out: round_finished holds all of them), run_finished
(run_failed after an error, run_broken_off where the caller left). aside_finished is the model's reply to a question of
the loop's own (a summary); tokens_counted what the model counted, so that a replay without it counts alike. With a
sink, each record is written as it is added.
Every record has `type` and `t_s`, seconds on a monotonic clock since the run began.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from .errors import TraceError
from .events import CallBegun, Event, ReasoningDelta, RunFinished, TextDelta
from .json_text import dumps

SCHEMA_VERSION = 1
HEAD = {"type": "trace", "schema_version": SCHEMA_VERSION}


class Sink(Protocol):
    """Where records go while the run goes on; it never raises for want of space."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Take one record."""

    def close(self) -> None:
        """There are no more."""


@dataclass
class Trace:
    """Records of one run, oldest first. Equality is equality of the records.

    Attributes:
        records: the head (format and version) is not among them.
        sink: where they are also written.
        is_cut: it was read from a file that ends in the middle of a line.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    sink: Sink | None = field(default=None, repr=False, compare=False)
    is_cut: bool = field(default=False, repr=False, compare=False)
    _t0_s: float = field(default_factory=time.monotonic, repr=False, compare=False)

    def add(self, kind: str, **values: Any) -> None:
        """Append one record of type `kind`; the values must be JSON-able."""
        t_s = round(time.monotonic() - self._t0_s, 6)
        self.records.append({"type": kind, "t_s": t_s, **values})
        if self.sink is not None:
            self.sink.write(self.records[-1])

    def close(self) -> None:
        """End the sink."""
        if self.sink is not None:
            self.sink.close()

    def add_event(self, event: Event) -> None:
        """Append what an event says; deltas and RunFinished are not recorded (the run adds its own last
        record).
        """
        if isinstance(event, (ReasoningDelta, TextDelta, CallBegun, RunFinished)):
            return
        values = {f.name: getattr(event, f.name) for f in fields(event)}
        self.add(_snake_case(type(event).__name__), **{k: _plain(v) for k, v in values.items()})

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The records of one type, in order."""
        return [r for r in self.records if r["type"] == kind]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def to_jsonl(self) -> str:
        """One JSON object a line; the first names the format and its version."""
        return "".join(dumps(r) + "\n" for r in [HEAD, *self.records])

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """Read a trace file as far as it is whole: a process that was killed may leave half a line at its end.

        Raises:
            TraceError: it cannot be read, or is no trace.
        """
        source = Path(path)
        try:
            if not source.is_file():
                raise TraceError(f"cannot read the trace {source}: there is no such file")
            data = source.read_bytes()
        except OSError as error:
            raise TraceError(f"cannot read the trace {source}: {error.strerror or error}") from error
        whole = data[: data.rfind(b"\n") + 1]
        try:
            trace = cls.from_jsonl(whole.decode("utf-8"))
        except (TraceError, UnicodeDecodeError) as error:
            raise TraceError(f"{source}: {error}") from error
        trace.is_cut = len(whole) < len(data)
        return trace

    @classmethod
    def from_jsonl(cls, text: str) -> Trace:
        """Read what to_jsonl wrote. Raises TraceError with the number of the line that is at fault."""
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        records = [_read_line(n, line) for n, line in lines]
        if not records or records[0]["type"] != "trace":
            raise TraceError('not a laploop trace: the first line must be {"type": "trace", "schema_version": …}')
        version = records[0].get("schema_version")
        if version != SCHEMA_VERSION:
            raise TraceError(
                f"trace has schema_version {version!r}; this laploop reads {SCHEMA_VERSION}. "
                "Record the run again, or read it with the version of laploop that wrote it"
            )
        return cls(records[1:])


def _read_line(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"trace line {number} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise TraceError(f'trace line {number} is not a record: expected an object with a "type"')
    return record


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _plain(value: Any) -> Any:
    """Tuples become lists, so that a trace read back equals the one that was written."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
