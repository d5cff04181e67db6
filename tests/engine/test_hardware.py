"""How many threads: affinity, cgroup quota, physical cores; each from files as a kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from laploop.engine.hardware import cgroup_quota, efficiency_cores, largest_cache_bytes, n_threads, processor_name
from laploop.engine.machine import machine_facts


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
    ],
)
def test_cgroup_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)
    assert cgroup_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "threads"), [("50000 100000", 1), ("100000 100000", 1), ("max 100000", None)])
def test_the_least_of_the_limits_counts(tmp_path: Path, quota: str, threads: int | None) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu.max", quota)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert 1 <= n_threads(tmp_path) <= allowed
    if threads:
        assert n_threads(tmp_path) == threads


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="reads Linux's files")
def test_two_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu in os.sched_getaffinity(0):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", "0-255\n")
    assert n_threads(tmp_path) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="sets Linux's affinity")
def test_affinity_counts() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert n_threads() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="reads Linux's files")
def test_efficiency_cores_do_not_compute(tmp_path: Path) -> None:
    """Intel's hybrids list them, Arm's kernels give them a small capacity; where there are no others they do."""
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu}\n")
    assert efficiency_cores(tmp_path) == set() and n_threads(tmp_path) == len(cpus)
    write(tmp_path, "sys/devices/cpu_atom/cpus", f"{cpus[-1]},4000-4003\n")
    assert efficiency_cores(tmp_path) == {cpus[-1]}
    assert n_threads(tmp_path) == max(1, len(cpus) - 1)
    write(tmp_path, "sys/devices/cpu_atom/cpus", "\n")
    for cpu in cpus:
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", "1024\n" if cpu == cpus[0] else "400\n")
    assert efficiency_cores(tmp_path) == set(cpus[1:]) and n_threads(tmp_path) == 1


def test_the_processor_and_its_caches(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name\t: A Fast One\n")
    for n, size in enumerate(("48K", "2048K", "32M", "odd")):
        write(tmp_path, f"sys/devices/system/cpu/cpu0/cache/index{n}/size", size + "\n")
    assert largest_cache_bytes(tmp_path) == 32 * 2**20
    assert largest_cache_bytes(tmp_path / "none") == 2**25
    assert processor_name(tmp_path) in ("A Fast One", processor_name())


def test_facts_of_a_laptop_on_battery(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/power_supply/BAT0/status", "Discharging\n")
    write(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    facts = machine_facts(tmp_path)
    assert "on battery" in facts["power"] and facts["memory_bytes"] == 1_024_000
    assert facts["threads"] >= 1 and facts["instruction_sets"]
    assert machine_facts()["logical_cores"] >= machine_facts()["threads"]
