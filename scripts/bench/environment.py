"""What a figure depends on beside model and flags: recorded with it. Names neither the machine nor its user."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any


def environment(root: Path = Path("/")) -> dict[str, Any]:
    """Processor, memory, governor, build of llama.cpp, threads, and how busy the machine was at the start.

    Args:
        root: where /sys and /proc are mounted.

    Returns:
        None, "" or an empty list for what is not known.
    """
    from laploop.engine.machine import machine_facts

    facts = machine_facts(root)
    del facts["gpu"]  # told in gpu_info and backends
    facts["power"] = facts["power"] or "not on battery"
    return {
        **facts,
        "virtual_machine": "hypervisor" in _first(root / "proc/cpuinfo", "flags").split() or None,
        "governors": sorted(set(_read_all(root, "cpufreq/scaling_governor"))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "llama_cpp_python": version("llama-cpp-python"),
        "load_average": _load(),
        "openmp": {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ},
    }


def _read_all(root: Path, name: str) -> Iterator[str]:
    for path in root.glob(f"sys/devices/system/cpu/cpu[0-9]*/{name}"):
        with contextlib.suppress(OSError):
            yield path.read_text().strip()


def _first(path: Path, key: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((value for name, _, value in (line.partition(":") for line in lines) if name.strip() == key), "")


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
