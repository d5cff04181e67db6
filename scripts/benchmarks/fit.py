"""Predicted against measured: peak memory of a load and a reply, and tokens per second after the calibration.

    python scripts/benchmarks/fit.py FOLDER [--no-speed | --no-memory] [--again] [--lock FILE]

FOLDER holds the models: tiny.gguf, the two qwen2.5-coder files, and syn-qwen3-1.7b-q4_k_m.gguf and -q8_0.gguf as
`write_synthetic` makes them; what is missing is left out. Each combination of model, context and KV type is loaded in a
process of its own, which answers a prompt of 700 tokens (tiny: a full context) with 16; its peak resident memory less
what it held before is compared with `estimate`. For the speed each model decodes 32 tokens behind a prompt of 256,
three times; the median counts. The calibration runs first (`--again`: whatever is known). With --lock each measurement
waits for that file. Prints two tables and one JSON line; exit code 1 where memory is off by more than 10 % or decoding
by more than 25 %. Prompts are shown, not judged.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laploop.engine import Engine, EngineConfig, SamplingParams, read_gguf
from laploop.engine.memory import estimate
from laploop.models.files.calibration import calibrate

TINY, SMALL, MIDDLE = "tiny", "qwen2.5-coder-0.5b-instruct-q4_k_m", "qwen2.5-coder-1.5b-instruct-q4_k_m"
LARGE_4, LARGE_8 = "syn-qwen3-1.7b-q4_k_m", "syn-qwen3-1.7b-q8_0"
COMBINATIONS = (
    (TINY, 512, "f16"),
    (TINY, 2048, "q8_0"),
    (SMALL, 4096, "f16"),
    (SMALL, 16384, "q8_0"),
    (SMALL, 32768, "f16"),
    (MIDDLE, 2048, "f16"),
    (MIDDLE, 8192, "q8_0"),
    (MIDDLE, 32768, "q4_0"),
    (LARGE_4, 4096, "f16"),
    (LARGE_4, 8192, "q8_0"),
    (LARGE_4, 32768, "f16"),
    (LARGE_8, 4096, "q8_0"),
)
FOR_SPEED = (SMALL, MIDDLE, LARGE_4, LARGE_8)
MEMORY_BAR, SPEED_BAR = 0.10, 0.25
N_PROMPT, N_REPLY = 700, 16
TINY_BYTES = 10_000_000
N_REPEATS = 3


def peak_bytes() -> int:
    """Most resident memory of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status does not tell the peak")


def use_memory(path: Path, n_ctx: int, kind: str) -> None:
    """Load, answer, and print what that took."""
    from laploop.engine import native

    native.start()
    before = peak_bytes()
    with Engine.load(path, EngineConfig(n_ctx=n_ctx, type_k=kind, type_v=kind)) as engine:
        n = (
            n_ctx - N_REPLY - 1
        )  # a mask is only touched as far as the context is filled: next to nothing of a large model
        n = n if path.stat().st_size < TINY_BYTES else min(N_PROMPT, n)
        tokens = [(100 + 7 * i) % (engine.vocabulary.n_tokens - 10) for i in range(n)]
        list(engine.generate(tokens, max_tokens=N_REPLY))
    print(json.dumps(peak_bytes() - before))


def measure_speed(path: Path) -> tuple[float, float]:
    """Tokens per second of decoding and of the prompt."""
    decodes, prompts = [], []
    with Engine.load(path, EngineConfig(n_ctx=1024, draft_max=0, prefix_cache_bytes=0)) as engine:
        sampling = SamplingParams(logit_bias=dict.fromkeys(engine.vocabulary.eog, -1e6), seed=1)
        list(engine.generate(list(range(100, 116)), sampling, max_tokens=4))
        for n in range(N_REPEATS):
            sequence = engine.prepare([200 + n, *range(300, 555)], sampling, None, 32)
            begun = [sequence.timings.generate_s for _ in engine.read(sequence)]
            decodes.append(statistics.mean(after - before for before, after in itertools.pairwise(begun)))
            prompts.append(sequence.timings.prompt_s / 256)
    return 1 / statistics.median(decodes), 1 / statistics.median(prompts)


@contextlib.contextmanager
def turn(lock: Path | None) -> Iterator[None]:
    """Hold the lock file of others who measure."""
    if lock is None:
        yield
        return
    import fcntl

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def memory_rows(folder: Path, lock: Path | None) -> Iterator[dict[str, Any]]:
    """A row for each combination whose model is there."""
    for name, n_ctx, kind in COMBINATIONS:
        path = folder / f"{name}.gguf"
        if not path.exists():
            continue
        predicted = estimate(read_gguf(path), EngineConfig(n_ctx=n_ctx, type_k=kind, type_v=kind)).total_bytes
        command = [sys.executable, __file__, str(folder), "--use", str(path), str(n_ctx), kind]
        with turn(lock):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = int(done.stdout.splitlines()[-1])
        yield {"model": name, "n_ctx": n_ctx, "kv": kind, "predicted_bytes": predicted, "measured_bytes": measured}


def speed_rows(folder: Path, lock: Path | None, again: bool) -> Iterator[dict[str, Any]]:
    """A row for each model that is there."""
    paths = {name: folder / f"{name}.gguf" for name in FOR_SPEED if (folder / f"{name}.gguf").exists()}
    headers = {name: read_gguf(path) for name, path in paths.items()}
    with turn(lock):
        speeds = calibrate(headers.values(), again=again)
    for name, header in headers.items():
        with turn(lock):
            decode, prompt = measure_speed(paths[name])
        yield {
            "model": name,
            "predicted_tokens_per_s": round(1 / speeds.decode_s(header), 2),
            "measured_tokens_per_s": round(decode, 2),
            "predicted_prompt_tokens_per_s": round(1 / speeds.prompt_s(header), 1),
            "measured_prompt_tokens_per_s": round(prompt, 1),
        }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--use", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.use:
        use_memory(Path(options.use[0]), int(options.use[1]), options.use[2])
        return 0
    memory, speed, missed = [], [], 0
    for row in () if options.no_memory else memory_rows(options.folder, options.lock):
        off = row["predicted_bytes"] / row["measured_bytes"] - 1
        missed += abs(off) > MEMORY_BAR
        mib = (row["predicted_bytes"] / 2**20, row["measured_bytes"] / 2**20)
        print(
            f"{row['model']:<36} {row['n_ctx']:>6} {row['kv']:<5} {mib[0]:>7.0f} / {mib[1]:>7.0f} MiB {off:+7.1%}",
            flush=True,
        )
        memory.append({**row, "off": round(off, 4)})
    for row in () if options.no_speed else speed_rows(options.folder, options.lock, options.again):
        off = row["predicted_tokens_per_s"] / row["measured_tokens_per_s"] - 1
        missed += abs(off) > SPEED_BAR
        prompts = f"{row['predicted_prompt_tokens_per_s']:.0f} / {row['measured_prompt_tokens_per_s']:.0f}"
        told = f"{row['predicted_tokens_per_s']:>6.1f} / {row['measured_tokens_per_s']:>6.1f} tokens/s {off:+7.1%}"
        print(f"{row['model']:<36} {told}, prompts {prompts}", flush=True)
        speed.append({**row, "off": round(off, 4)})
    print(json.dumps({"benchmark": "fit", "memory": memory, "speed": speed, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
