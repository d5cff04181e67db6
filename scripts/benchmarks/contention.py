"""What decoding loses beside others who want the processor: waiting threads that sleep or spin, all cores or one less.

    python scripts/benchmarks/contention.py [-m qwen2.5-coder-0.5b] [--repeats 3] [--seconds 4]
                                            [--waiting passive,10000,active] [--threads 2,1]

Each measurement is a process of its own that decodes for some seconds: alone; beside a thread of its own that is busy
in Python, as a tool's may be; beside a busy process; beside a second such process, where the figure is one of both.
How threads wait for each other (GNU's OpenMP): "passive" sleeps, "active" spins, a number is that of the rounds that a
thread spins before it sleeps, "laploop" is what engine/native.py chooses. Measured in turns; prints a table of medians
in tokens a second, and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from laploop.engine import Engine, EngineConfig, SamplingParams
from laploop.engine.hardware import n_threads
from laploop.models import resolve_model

BESIDE = ("alone", "thread", "process", "laploop")
N_WARM = 4


def decode(path: str, threads: int, seconds: float, *, busy_thread: bool) -> None:
    """The measured process: says that it is ready, waits for a line, decodes, tells tokens a second."""
    with Engine.load(path, EngineConfig(n_ctx=2048, n_threads=threads, draft_max=0, prefix_cache_bytes=0)) as engine:
        never = dict.fromkeys(engine.vocabulary.eog, -1e9)
        steps = engine.generate([100, 200, 300], SamplingParams(temperature=0, logit_bias=never))
        for _ in range(N_WARM):
            next(steps)
        print("ready", flush=True)
        sys.stdin.readline()
        over = threading.Event()
        if busy_thread:
            threading.Thread(target=_work, args=(over,), daemon=True).start()
        began, n_tokens = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            n_tokens += len(next(steps).tokens)
        over.set()
    print(json.dumps(n_tokens / elapsed), flush=True)


def _work(over: threading.Event) -> None:
    n = 0
    while not over.is_set():
        n += 1


def measure(path: str, waiting: str, threads: int, beside: str, seconds: float) -> float:
    """Tokens a second of one process under these conditions."""
    asked = {} if waiting == "laploop" else {"OMP_WAIT_POLICY": waiting if waiting == "active" else "passive"}
    if waiting.isdecimal():
        asked["GOMP_SPINCOUNT"] = waiting
    command = [sys.executable, __file__, "-m", path, "--seconds", str(seconds), "--decode", str(threads)]
    if beside == "thread":
        command.append("--busy-thread")
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")} | asked
    measured = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2 if beside == "laploop" else 1)
    ]
    busy = None
    try:
        for process in measured:
            assert process.stdout and process.stdout.readline() == "ready\n"
        if beside == "process":
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for process in measured:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        rates = [float(process.communicate()[0]) for process in measured]
    finally:
        for process in [*measured, *([busy] if busy else [])]:
            process.kill()
            process.wait()
    return statistics.mean(rates)


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--waiting", default="laploop,passive,active")
    parser.add_argument("--threads", help="numbers; all cores and one less if not given")
    parser.add_argument("--decode", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--busy-thread", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decode:
        decode(options.model, options.decode, options.seconds, busy_thread=options.busy_thread)
        return 0
    path, all_cores = str(resolve_model(options.model, offline=True).path), n_threads()
    threads = sorted({all_cores, max(1, all_cores - 1)}, reverse=True)
    if options.threads:
        threads = [int(n) for n in options.threads.split(",")]
    ways = options.waiting.split(",")
    rates: defaultdict[tuple[str, int, str], list[float]] = defaultdict(list)
    for _ in range(options.repeats):
        for waiting in ways:
            for n in threads:
                for beside in BESIDE:
                    rates[waiting, n, beside].append(measure(path, waiting, n, beside, options.seconds))
    print("{:<10}{:>8}".format("waiting", "threads") + ("{:>10}" * len(BESIDE)).format(*BESIDE))
    rows: list[dict[str, Any]] = []
    for waiting in ways:
        for n in threads:
            medians = {beside: round(statistics.median(rates[waiting, n, beside]), 2) for beside in BESIDE}
            rows.append({"waiting": waiting, "n_threads": n, **medians})
            print(f"{waiting:<10}{n:>8}" + "".join(f"{rate:>10.2f}" for rate in medians.values()), flush=True)
    print(json.dumps({"benchmark": "contention", "model": options.model, "repeats": options.repeats, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
