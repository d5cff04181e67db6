"""How many threads this process may use. Knows the machine, not the model."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from pathlib import Path


def n_threads(root: Path = Path("/")) -> int:
    """Threads to compute with: the least of affinity, cgroup quota and physical cores; at least 1.

    More threads than cores make llama.cpp slower, not faster: its threads spin while they wait.

    Args:
        root: where /sys and /proc are mounted.
    """
    limits = [_affinity(), _physical_cores(root)]
    if (quota := cgroup_quota(root)) is not None:
        limits.append(max(1, math.floor(quota)))
    return max(1, min(limit for limit in limits if limit))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Cores that the cgroup's CPU quota grants (may be a fraction); None without a quota. Reads v2, then v1."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        v1 = root / "sys/fs/cgroup/cpu"
        quota_us = int((v1 / "cpu.cfs_quota_us").read_text())
        return None if quota_us <= 0 else quota_us / int((v1 / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _physical_cores(root: Path) -> int:
    """Physical cores among those that this process may run on; on Apple silicon its performance cores; 0: unknown."""
    if platform.system() == "Darwin":
        for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
            found = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
            if found.stdout.strip().isdigit():
                return int(found.stdout)
        return 0
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            return 0
    return len(cores)
