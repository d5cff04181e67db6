"""Mutated GGUF heads: does the reader refuse or read each one, in time and memory, and does llama.cpp live with what it
takes?

    python scripts/benchmarks/gguf_fuzz.py -m TINY.gguf [--heads 100000] [--loads 500] [--seed 0]

Each head is the tiny model's with one to four changes: bytes, counts and lengths, types, a piece cut out, doubled or
moved, values of a few keys. The reader runs in a process whose memory may grow by 64 MB and whose every read may take a
second (by an alarm). Of what it takes a sample is loaded by llama.cpp, each in a process of its own with a limit of
time and memory, and decodes a token; a process that dies is a fault, an error is none. Prints counts, the faults with
their seeds (`--show SEED` writes that file), and one JSON line; exit code 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from laploop.engine import BadModelFileError, Engine, EngineConfig, EngineError
from laploop.engine.gguf import read_gguf

READER_BYTES = 64 * 2**20
READ_S = 1.0
LOAD_S = 60
LOAD_BYTES = 8 * 2**30  # of address space
ODD = (0, 1, 2, 3, 7, 31, 255, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(whole: bytes, head_bytes: int, seed: int) -> bytes:
    """The file with a damaged head; the weights stay, moved where the head became longer or shorter."""
    rng = random.Random(seed)  # noqa: S311
    head = bytearray(whole[:head_bytes])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(8, len(head))
        kind = rng.randrange(8)
        if kind == 0:
            head[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            head[at : at + 1] = rng.randbytes(1)
        elif kind in (2, 3):
            form = rng.choice("IQ")
            odd = rng.choice(ODD) % 2 ** (8 * struct.calcsize(form))
            head[at : at + struct.calcsize(form)] = struct.pack("<" + form, odd)
        elif kind == 4:
            _change_value(head, rng)
        elif kind == 5:
            del head[at : at + rng.choice((1, 8, 32, 200))]
        elif kind == 6:
            head[at:at] = head[at : at + rng.choice((1, 8, 32, 200))]
        else:
            other = rng.randrange(8, len(head))
            head[at : at + 8] = head[other : other + 8]
    return bytes(head) + whole[head_bytes:]


def _change_value(head: bytearray, rng: random.Random) -> None:
    """Another number behind a key: what a random byte seldom hits, and what llama.cpp computes with."""
    keys = [key for key in NUMBER_KEYS if key in head]
    at = head.find(key := rng.choice(keys)) + len(key) if keys else -1
    if at > 0 and len(head) >= at + 8:
        head[at + 4 : at + 8] = struct.pack("<I", rng.choice(ODD) % 2**32)


NUMBER_KEYS = tuple(
    key.encode()
    for key in (
        "general.alignment",
        "qwen3.block_count",
        "qwen3.context_length",
        "qwen3.embedding_length",
        "qwen3.feed_forward_length",
        "qwen3.attention.head_count",
        "qwen3.attention.head_count_kv",
        "qwen3.attention.key_length",
        "qwen3.attention.value_length",
        "qwen3.attention.layer_norm_rms_epsilon",
        "qwen3.rope.freq_base",
        "qwen3.rope.dimension_count",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.padding_token_id",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    )
)


def read_all(model: Path, first: int, n: int) -> None:
    """Read `n` mutants one after the other; a line of JSON for each that was taken, and one at the end."""
    whole, head_bytes = model.read_bytes(), read_gguf(model).data_offset
    counts, slowest_s = Counter[str](), 0.0

    def too_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_late)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        for seed in range(first, first + n):
            path.write_bytes(mutated(whole, head_bytes, seed))
            begun = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, READ_S)
            try:
                read_gguf(path)
                outcome = "taken"
                print(json.dumps({"taken": seed}), flush=True)
            except BadModelFileError:
                outcome = "refused"
            except TimeoutError:
                outcome = "hung"
                print(json.dumps({"fault": f"seed {seed}: no answer in {READ_S} s"}), flush=True)
            except Exception as error:  # noqa: BLE001  (any other error is what is looked for)
                outcome = "raised"
                print(json.dumps({"fault": f"seed {seed}: {type(error).__name__}: {error}"[:300]}), flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            counts[outcome] += 1
            slowest_s = max(slowest_s, time.perf_counter() - begun)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps({"counts": counts, "slowest_s": slowest_s, "grown_bytes": grown}), flush=True)


def load(path: Path) -> None:
    """Load a file and decode a token; leaves with 3 if it was refused."""
    resource.setrlimit(resource.RLIMIT_AS, (LOAD_BYTES, LOAD_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with Engine.load(path, EngineConfig(n_ctx=128, n_threads=1, prefix_cache_bytes=0)) as engine:
            list(engine.generate([1, 2, 3], max_tokens=2))
    except (EngineError, MemoryError):
        os._exit(3)
    os._exit(0)


def try_load(data: bytes, folder: Path) -> str:
    """ "loaded", "refused", or a fault in words: how the process died and its last line."""
    path = folder / "m.gguf"
    path.write_bytes(data)
    try:
        done = subprocess.run(
            [sys.executable, __file__, "-m", str(path), "--load"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {LOAD_S} s"
    if done.returncode in (0, 3):
        return "loaded" if done.returncode == 0 else "refused"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assertion = next((line for line in lines if "GGML_ASSERT" in line or "terminate" in line or "what():" in line), "")
    return f"exit {done.returncode}: {assertion or (lines or [''])[-1]}"[:300]


def run(model: Path, n_heads: int, n_loads: int, first: int) -> dict[str, Any]:
    """Both halves; the result is what the JSON line holds."""
    taken: list[int] = []
    faults: list[str] = []
    command = [sys.executable, __file__, "-m", str(model), "--read", str(first), str(n_heads)]
    told: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        for line in reader.stdout or ():
            told = json.loads(line)
            if "taken" in told:
                taken.append(told["taken"])
            elif "fault" in told:
                faults.append(told["fault"])
    if "counts" not in told:
        faults.append(f"the reader's process ended with {reader.returncode}")
    elif told["grown_bytes"] > READER_BYTES:
        faults.append(f"the reader took {told['grown_bytes']:,} bytes")
    whole, head_bytes = model.read_bytes(), read_gguf(model).data_offset
    sample = random.Random(first).sample(taken, min(n_loads, len(taken)))  # noqa: S311
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in sample:
            outcome = try_load(mutated(whole, head_bytes, seed), Path(folder))
            outcomes[outcome if outcome in ("loaded", "refused") else "died"] += 1
            if outcome not in ("loaded", "refused"):
                faults.append(f"seed {seed}: {outcome}")
    return {
        "benchmark": "gguf_fuzz",
        "heads": n_heads,
        "read": told.get("counts"),
        "slowest_s": round(told.get("slowest_s", 0.0), 4),
        "reader_grown_bytes": told.get("grown_bytes"),
        "given_to_llama_cpp": dict(outcomes),
        "faults": faults,
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--heads", type=int, default=100_000)
    parser.add_argument("--loads", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, help="write the mutant of this seed to shown.gguf")
    parser.add_argument("--read", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options.model)
    if options.read:
        read_all(options.model, *options.read)
        return 0
    if options.show is not None:
        whole, head_bytes = options.model.read_bytes(), read_gguf(options.model).data_offset
        Path("shown.gguf").write_bytes(mutated(whole, head_bytes, options.show))
        return 0
    result = run(options.model, options.heads, options.loads, options.seed)
    for fault in result["faults"]:
        print(fault)
    print(json.dumps(result))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
