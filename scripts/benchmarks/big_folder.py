"""How long list_files and search_files take in a folder of 100,000 small files and one of 2 GB, and what memory.

    python scripts/benchmarks/big_folder.py [--flat] [FOLDER]

The files lie in 100 folders, or with --flat in one. They are made if they are not there (half a minute), by default
below the system's temporary folder. Each tool runs in a
process of its own, so that its peak memory is its own; times are the second of two runs (the first reads the disk).
Ends with one JSON line.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_FILES, HUGE_BYTES = 100_000, 2_000_000_000
CALLS = {
    "list": ("list_files", {}),
    "list_one_folder": ("list_files", {"path": "d00"}),
    "list_pattern": ("list_files", {"pattern": "*f00999.txt"}),
    "search_absent": ("search_files", {"query": "needle that is nowhere"}),
    "search_one_hit": ("search_files", {"query": "NOTE 99999 "}),
    "search_every_file": ("search_files", {"query": "second line"}),
    "read_huge": ("read_file", {"path": "huge.bin"}),
}


def make(root: Path, n_folders: int) -> None:
    """Fill the folder."""
    per_folder = N_FILES // n_folders
    for number in range(N_FILES):
        folder, file = divmod(number, per_folder)
        below = root / f"d{folder:02}"
        if not file:
            below.mkdir(parents=True)
        (below / f"f{file:05}.txt").write_text(f"note {number} \nthe second line\n一行中文\n", "utf-8")
    with open(root / "huge.bin", "wb") as huge:  # noqa: PTH123
        huge.write(b"needle that is somewhere\n")
        huge.truncate(HUGE_BYTES)  # sparse: it takes no room on the disk
    (root / "made").touch()


def measure(root: Path, name: str) -> dict[str, float | int | bool]:
    """One call in this process: seconds, and megabytes at the peak."""
    from laploop.tools import builtin_tools

    tool_name, arguments = CALLS[name]
    (chosen,) = [item for item in builtin_tools(root=root) if item.name == tool_name]
    for _ in range(2):
        started = time.perf_counter()
        result = chosen.invoke(arguments)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_mb = peak / (1_000_000 if sys.platform == "darwin" else 1_000)
    return {"s": round(seconds, 3), "peak_mb": round(peak_mb), "chars": len(result.content), "error": result.is_error}


def main() -> None:
    """Make the folder, run each call, print."""
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[1] in CALLS:
        print(json.dumps(measure(Path(arguments[0]), arguments[1])))
        return
    flat = "--flat" in arguments
    given = [Path(word) for word in arguments if word != "--flat"]
    root = given[0] if given else Path(tempfile.gettempdir()) / f"laploop-big-folder{'-flat' * flat}"
    if not (root / "made").exists():
        make(root, 1 if flat else 100)
    found = {}
    for name in CALLS:
        ran = subprocess.run([sys.executable, __file__, str(root), name], check=True, capture_output=True, text=True)
        found[name] = json.loads(ran.stdout)
        print(f"{name:20} {found[name]['s']:7.3f} s {found[name]['peak_mb']:5} MB", file=sys.stderr)
    print(json.dumps({"n_files": N_FILES, "flat": flat, "huge_bytes": HUGE_BYTES, **found}))


if __name__ == "__main__":
    main()
