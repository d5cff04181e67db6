"""How many threads this process may use, and what the processor is. Knows the machine, not the model."""

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
    limits = [allowed_processors(), physical_cores(root)]
    if (quota := cgroup_quota(root)) is not None:
        limits.append(max(1, math.floor(quota)))
    return max(1, min(limit for limit in limits if limit))


def allowed_processors() -> int:
    """Logical processors that this process may run on."""
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


def physical_cores(root: Path) -> int:
    """Physical cores among those that this process may run on, without efficiency cores; 0: unknown.

    A step waits for its slowest thread, so that slow cores make all of them slow.
    """
    if platform.system() == "Darwin":
        for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
            found = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
            if found.stdout.strip().isdigit():
                return int(found.stdout)
        return 0
    slow = efficiency_cores(root)
    cores = set()
    for cpu in _allowed() - slow or slow:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            return 0
    return len(cores)


def efficiency_cores(root: Path = Path("/")) -> set[int]:
    """Logical processors on efficiency cores, of those that this process may run on: Intel's hybrids name them, Arm's
    kernels give each processor a capacity of at most 1024."""
    named = _cpu_list(next(iter(_lines(root / "sys/devices/cpu_atom/cpus")), ""))
    capacities = {
        cpu: int(line)
        for cpu in _allowed()
        for line in _lines(root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity")[:1]
        if line.isdigit()
    }
    most = max(capacities.values(), default=0)
    return (named & _allowed()) | {cpu for cpu, capacity in capacities.items() if capacity < most / 2}


def _allowed() -> set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cpu_list(text: str) -> set[int]:
    """Numbers of the kernel's form "0-3,8"."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def processor_name(root: Path = Path("/")) -> str:
    """What the processor calls itself; its architecture where it does not say."""
    if platform.system() == "Darwin":
        told = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        return told.stdout.strip() or platform.machine()
    for line in _lines(root / "proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def largest_cache_bytes(root: Path = Path("/")) -> int:
    """Size of the largest cache of the first processor; 32 MiB where the system does not tell."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [line for path in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size") for line in _lines(path)]
    return max(
        (int(size[:-1]) * units[size[-1]] for size in sizes if size[:-1].isdigit() and size[-1] in units), default=2**25
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
