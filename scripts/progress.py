"""How far a model's bytes have come, on stderr: a bar on a terminal, now and then a line elsewhere.

Knows `Progress` and nothing of where bytes come from. Nothing goes to stdout.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from laploop.models.files.progress import Progress
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LINE_EVERY_S = 10.0
LINE_EVERY_PERCENT = 5
LINE_AT_LEAST_S = 1.0  # between two lines: a fast network would print twenty at once
FROM = {"hub": " from the hub", "pypi": " from the package index", "modelscope": " from ModelScope", "web": ""}


@contextlib.contextmanager
def progress_printer(stream: TextIO | None = None) -> Iterator[Callable[[Progress], None]]:
    """A function for `resolve_model(progress=…)` that writes to `stream` (default: stderr) in the block."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield ProgressLines(stream)
        return
    bars = ProgressBars(stream)
    try:
        yield bars
    finally:
        bars.close()


class ProgressLines:
    """For pipes and logs: a line when a fetch begins, as it advances, and at its end; messages as they are.

    A job on disk (checking a hash) speaks only if it takes long.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._description = ""
        self._percent = 0
        self._told_s = self._begun_s = 0.0
        self._begun_bytes = 0
        self._has_spoken = False

    def __call__(self, progress: Progress) -> None:
        """Take one report."""
        now, total = self._clock(), progress.total_bytes
        percent = 100 * progress.done_bytes // total if total else 0
        if progress.description != self._description:
            self._description, self._percent, self._has_spoken = progress.description, percent, False
            self._told_s = self._begun_s = now
            self._begun_bytes = progress.done_bytes
            if total is None and not progress.done_bytes:
                self._say(progress.description)  # a message, not a job
            elif progress.source in FROM:
                size = f" ({total / 1e6:,.0f} MB)" if total else ""
                self._say(f"fetching {progress.description}{FROM[progress.source]}{size}")
            return
        waited_s = now - self._told_s
        advanced = percent >= self._percent + LINE_EVERY_PERCENT and waited_s >= LINE_AT_LEAST_S
        ended = bool(total) and percent >= 100 > self._percent and self._has_spoken
        if advanced or waited_s >= LINE_EVERY_S or ended:
            self._percent, self._told_s = percent, now
            rate = (progress.done_bytes - self._begun_bytes) / 1e6 / max(now - self._begun_s, 1e-3)
            shown = f"{percent} %" if total else f"{progress.done_bytes / 1e6:,.0f} MB"
            left_s = (total - progress.done_bytes) / 1e6 / rate if total and rate else 0.0
            left = f", {_duration(left_s)} left" if left_s >= 1 else ""
            self._say(f"{progress.description}: {shown}, {rate:,.1f} MB/s{left}")

    def _say(self, text: str) -> None:
        self._has_spoken = True
        print(_clean(text), file=self._stream, flush=True)


class ProgressBars:
    """For a terminal: a bar with rate and time left for the job at hand; it goes away when the block ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._description = ""

    def __call__(self, progress: Progress) -> None:
        """Take one report."""
        bars = self._bars or self._start()
        if progress.total_bytes is None and not progress.done_bytes:
            if progress.description != self._description:
                bars.console.print(_clean(progress.description), markup=False, highlight=False)
        elif self._task is None or progress.description != self._description:
            if self._task is not None:
                bars.remove_task(self._task)
            # what was there before (a resumed part) is where the bar begins, and no part of the rate
            self._task = bars.add_task(
                _clean(progress.description), total=progress.total_bytes, completed=progress.done_bytes
            )
        else:
            bars.update(self._task, completed=progress.done_bytes)
        self._description = progress.description

    def close(self) -> None:
        """Wipe the bar."""
        if self._bars is not None:
            self._bars.stop()

    def _start(self) -> Bars:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        self._bars.start()
        return self._bars


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _clean(text: str) -> str:
    from .visible import clean

    return clean(text)
