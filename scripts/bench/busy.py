"""How busy the rest of the machine was while something was measured. Knows the kernel's counters, not the test."""

from __future__ import annotations

import os
import time
from pathlib import Path


class BusyMeter:
    """Adds up, over the `with` blocks it guards, what other processes and the hypervisor took.

    Args:
        root: where /proc is mounted. Without it (macOS, Windows) both figures are None.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._stat = root / "proc/stat"
        self._wall_s = self._others_s = self._stolen_s = 0.0
        self._is_known = True
        self._begun: tuple[float, float, tuple[float, float] | None] = (0.0, 0.0, None)

    def __enter__(self) -> BusyMeter:
        self._begun = (time.perf_counter(), time.process_time(), self._counters())
        return self

    def __exit__(self, *_: object) -> None:
        wall_s, own_s, before = self._begun
        after = self._counters()
        if before is None or after is None:
            self._is_known = False
            return
        self._wall_s += time.perf_counter() - wall_s
        own_s = time.process_time() - own_s
        self._others_s += after[0] - before[0] - own_s
        self._stolen_s += after[1] - before[1]

    @property
    def others_cores(self) -> float | None:
        """Cores that other processes kept busy; None where it is not known, or too little was measured: the kernel
        counts in hundredths of a second."""
        return self._per_wall(self._others_s)

    @property
    def stolen_cores(self) -> float | None:
        """Cores that a hypervisor gave to somebody else; None likewise."""
        return self._per_wall(self._stolen_s)

    def _per_wall(self, seconds: float) -> float | None:
        return round(max(0.0, seconds / self._wall_s), 3) if self._is_known and self._wall_s >= 0.2 else None

    def _counters(self) -> tuple[float, float] | None:
        """Seconds that all processors worked, and that were stolen (proc_stat(5))."""
        try:
            fields = self._stat.read_text().split("\n", 1)[0].split()
            user, nice, system, _, _, irq, softirq, stolen = (int(field) for field in fields[1:9])
        except (OSError, ValueError):
            return None
        tick = os.sysconf("SC_CLK_TCK")
        return (user + nice + system + irq + softirq) / tick, stolen / tick
