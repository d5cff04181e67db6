"""What a person wants to know of the machine before choosing a model. Facts for reading; nothing is decided by them."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

from .hardware import allowed_processors, cgroup_quota, efficiency_cores, n_threads, physical_cores, processor_name
from .memory import available_bytes, memory_bytes


def machine_facts(root: Path = Path("/")) -> dict[str, Any]:
    """Processor, cores, memory, instruction sets and back ends of this build, battery.

    Args:
        root: where /sys and /proc are mounted.

    Returns:
        "…_bytes" in bytes; None, "" or an empty list for what is not known or not there.
    """
    from . import native

    sets, devices = native.system_info(), native.supports_gpu()
    return {
        "processor": processor_name(root),
        "logical_cores": allowed_processors(),
        "physical_cores": physical_cores(root) or None,
        "efficiency_cores": len(efficiency_cores(root)) or None,
        "cgroup_cores": cgroup_quota(root),
        "threads": n_threads(root),
        "memory_bytes": memory_bytes(root),
        "free_memory_bytes": available_bytes(root),
        "instruction_sets": re.findall(r"(\w+) = 1", sets),
        "gpu": "this build can use it" if devices else "this build has no back end for one",
        "power": _power(root),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _power(root: Path) -> str:
    """A note for laptops: on battery the processor is slower, and the measurement with it."""
    states = [(path / "status").read_text().strip() for path in root.glob("sys/class/power_supply/BAT*")]
    return "on battery: speeds are lower than on mains" if "Discharging" in states else ""
