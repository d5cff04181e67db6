"""kill -9 at random moments of saving and loading: is every answer right afterwards, and the store within its bound?

    python scripts/benchmarks/prefix_store_kill.py -m TINY.gguf [--kills 200] [--seed 0]

Two worker processes share one small store. Each answers prompts that begin in many ways, so that it loads, saves and
drives out states all the time, and is killed at a random moment; then another takes its place. Every answer is compared
with one computed without a store; the size of the folder is looked at all the while, half-written files included. At
the end a process that is not killed uses what is left. For the random-weight model of tests/support/tiny_model.py, on
which results are bit-equal whatever the batch. Prints counts and one JSON line; exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laploop.engine import Engine, EngineConfig, SamplingParams
from laploop.engine.prefix_store import PrefixStore

EXACT: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "flash_attn": "on", "type_k": "bf16", "type_v": "bf16"}
N_TEXTS = 30
MAX_BYTES = 2_000_000  # about ten states
N_WORKERS = 2
N_ANSWER = 8
LONGEST_LIFE_S = 0.4  # after the first answer


def prompt_of(number: int) -> tuple[list[int], int]:
    """A prompt and how many of its tokens are shareable: one of 30 texts, cut somewhere, and a question."""
    rng = random.Random(number)  # noqa: S311
    text = random.Random(rng.randrange(N_TEXTS))  # noqa: S311
    n = rng.randrange(80, 300)
    return [text.randrange(500) for _ in range(n)] + [rng.randrange(500) for _ in range(10)], n


def answer(engine: Engine, number: int) -> tuple[list[int], int]:
    """The greedy answer's tokens, and how many of the prompt's were loaded or cached."""
    prompt, n_shareable = prompt_of(number)
    never = dict.fromkeys(engine.vocabulary.eog, -1e9)
    sampling = SamplingParams(temperature=0, logit_bias=never)
    sequence = engine.prepare(prompt, sampling, None, N_ANSWER, n_shareable=n_shareable)
    tokens = [t for step in engine.read(sequence) for t in step.tokens]
    return tokens, sequence.timings.n_cached


def work(model: Path, folder: Path, seed: int, n: int | None) -> None:
    """Answer prompts, one line each, until killed (or `n` of them)."""
    warnings.simplefilter("always", UserWarning)
    rng = random.Random(seed)  # noqa: S311
    config = EngineConfig(**EXACT, prefix_cache_dir=folder, prefix_cache_bytes=MAX_BYTES)
    with Engine.load(model, config) as engine:
        while n is None or n > 0:
            number = rng.randrange(2000)
            tokens, n_cached = answer(engine, number)
            print(json.dumps([number, tokens, n_cached]), flush=True)
            n = n if n is None else n - 1


class Worker:
    """A worker process and the lines that it has printed."""

    def __init__(self, model: Path, folder: Path, seed: int, n: int = 0) -> None:
        command = [sys.executable, __file__, "-m", str(model), "--work", str(folder), str(seed), str(n)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.complaints: list[str] = []
        self._threads = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_err)]
        for thread in self._threads:
            thread.start()

    def _read_out(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)

    def _read_err(self) -> None:
        self.complaints += [line.rstrip() for line in self._process.stderr or ()]

    def first_answer(self) -> bool:
        """Wait for it; False if the process ended before."""
        while self._lines.empty():
            if self._process.poll() is not None:
                return False
            time.sleep(0.002)
        return True

    def kill(self) -> int:
        """kill -9; returns the exit code."""
        self._process.kill()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self._process.wait()
        for thread in self._threads:
            thread.join()
        return code

    def answers(self) -> Iterator[tuple[int, list[int], int]]:
        """What it printed, but for a line that was cut."""
        while not self._lines.empty():
            line = self._lines.get()
            if line.endswith("\n"):
                number, tokens, n_cached = json.loads(line)
                yield number, tokens, n_cached


def run(model: Path, folder: Path, n_kills: int, seed: int) -> dict[str, Any]:
    """The whole experiment; the result is what the JSON line holds."""
    rng, counts = random.Random(seed), Counter[str]()  # noqa: S311
    faults: list[str] = []
    plain = Engine.load(model, EngineConfig(**EXACT, prefix_cache_bytes=0))
    right: dict[int, list[int]] = {}
    done = threading.Event()
    largest = [0]
    saved: set[Path] = set()

    def look() -> None:
        store = PrefixStore(folder)
        while not done.is_set():
            largest[0] = max(largest[0], store.size_bytes())
            saved.update(folder.glob("*/*.kv"))
            time.sleep(0.002)

    def judge(worker: Worker, code: int, expected: int) -> None:
        for number, tokens, n_cached in worker.answers():
            counts["answers"] += 1
            counts["answers from a saved state"] += n_cached >= 64
            if number not in right:
                right[number] = answer(plain, number)[0]
            if tokens != right[number]:
                faults.append(f"prompt {number}: {tokens} instead of {right[number]} ({n_cached} tokens loaded)")
        if code != expected:
            faults.append(f"a worker ended with {code}: {' / '.join(worker.complaints[-3:])}")
        elif worker.complaints:
            faults.append(f"a worker complained: {worker.complaints[0]}")

    watcher = threading.Thread(target=look)
    watcher.start()
    workers = [Worker(model, folder, rng.randrange(2**30)) for _ in range(N_WORKERS)]
    try:
        for i in range(n_kills):
            worker = workers[i % N_WORKERS]
            if worker.first_answer():
                time.sleep(rng.uniform(0, LONGEST_LIFE_S))
            judge(worker, worker.kill(), -9)
            counts["half-written files"] += len(list(folder.glob("*/*.tmp")))
            counts["kills"] += 1
            workers[i % N_WORKERS] = Worker(model, folder, rng.randrange(2**30))
    finally:
        for worker in workers:
            worker.kill()
            list(worker.answers())
    last = Worker(model, folder, seed, n=40)
    judge(last, last.wait(), 0)
    done.set()
    watcher.join()
    plain.close()
    store = PrefixStore(folder)
    n_left = len(store.entries())
    if largest[0] > MAX_BYTES:
        faults.append(f"the store grew to {largest[0]:,} bytes")
    if list(folder.glob("*/*.tmp")):
        faults.append("half-written files are left after a whole save")
    return {
        "benchmark": "prefix_store_kill",
        "kills": counts["kills"],
        "answers": counts["answers"],
        "from_saved_states": counts["answers from a saved state"],
        "states_saved": len(saved),
        "half_written_seen": counts["half-written files"],
        "largest_bytes": largest[0],
        "bound_bytes": MAX_BYTES,
        "states_left": n_left,
        "faults": faults,
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        folder, seed, n = options.work
        work(options.model, Path(folder), int(seed), int(n) or None)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = run(options.model, Path(folder) / "prefixes", options.kills, options.seed)
    for fault in result["faults"]:
        print(fault)
    print(json.dumps(result))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
