"""Several conversations at once on one loaded model, beside a bare `llama_decode` of as many tokens.

    python scripts/benchmarks/many_at_once.py [-m qwen2.5-coder-0.5b] [--sizes 1,2,4,8,16] [--repeats 3] [--exact]
                                            [--same 8] [--server PATH]

Each conversation is a thread that reads `ChatModel.stream`, as an application would have it. "steady" is the rate of
all of them together while all decode: from the start of one batch to the start of a later one, whatever laploop does in
between. "bare" is a loop of `llama_decode` over the same weights, batch size, depths and context settings that chooses
nothing. Both are measured in turns. "whole" counts from the first request to the last token, prompts in the cache.

`--same N` puts N conversations through at once and then each one alone on an emptied cache, and compares all logits of
all places (identity.py): with `--exact` on Q8_0 weights they must be equal bit by bit. `--server` is a llama-server,
which gets the same requests with as many slots. Prints a row a size and one JSON line; drafts are off.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp as C
import numpy as np
from identity import EXACT, Comparison, compare, recorded, together
from laploop.engine import Engine, EngineConfig, SamplingParams
from laploop.engine.config import KV_TYPES
from laploop.models import ChatModel, resolve_model
from laploop.models.requests.request import Request

N_WARM = 3  # steps at either end of a run that do not count


def question(i: int, n_words: int) -> list[dict[str, Any]]:
    """Conversation `i`: a shared system prompt, and a text of its own."""
    words = " ".join(
        f"{'abcdefghijklmnopqrstuvwxyz'[(i * 7 + k * 3) % 26]}{(i + 1) * (k + 3) % 97}" for k in range(n_words)
    )
    return [
        {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
        {"role": "user", "content": f"Conversation {i}. Here is a list: {words}. Tell me a story about it."},
    ]


def prompt(model: ChatModel, i: int, n_words: int) -> list[int]:
    """The tokens of conversation `i`."""
    request = Request.of(question(i, n_words), {"enable_thinking": False})
    return model.engine.tokenize(model.render(request).pieces)


# -- laploop ----------------------------------------------------------------------------------------------------------


@contextmanager
def timed(engine: Engine) -> Iterator[list[tuple[float, float, list[int]]]]:
    """Within the block: when each batch began and how long it took, in seconds, and the lengths of its runs."""
    steps: list[tuple[float, float, list[int]]] = []
    decode = engine.context.decode

    def timing(runs: Sequence[tuple[int, int, Sequence[int], int]]) -> bool:
        begun = time.perf_counter()
        finished = decode(runs)
        steps.append((begun, time.perf_counter() - begun, [len(run[2]) for run in runs]))
        return finished

    engine.context.decode = timing  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        del engine.context.decode


def converse(model: ChatModel, n: int, n_tokens: int, n_words: int) -> tuple[float, float, float]:
    """`n` conversations at once; tokens a second of all together, steady and whole, and the share of the steady time
    that was spent in `llama_decode`."""
    never = dict.fromkeys(model.engine.vocabulary.eog, -100)

    def talk(i: int) -> int:
        reply = list(
            model.stream(question(i, n_words), max_tokens=n_tokens, seed=i, logit_bias=never, enable_thinking=False)
        )
        return int(reply[-1]["usage"]["completion_tokens"])

    with timed(model.engine) as steps, ThreadPoolExecutor(n) as pool:
        started = time.perf_counter()
        total = sum(pool.map(talk, range(n)))
        whole_s = time.perf_counter() - started
    full = [(begun, lasted) for begun, lasted, lengths in steps if lengths == [1] * n][N_WARM:-N_WARM]
    if len(full) < 2:
        return math.nan, total / whole_s, math.nan
    steady_s = full[-1][0] - full[0][0]
    return n * (len(full) - 1) / steady_s, total / whole_s, sum(lasted for _, lasted in full[:-1]) / steady_s


# -- llama_decode alone -----------------------------------------------------------------------------------------------


class Bare:
    """A context of our own over an engine's weights, set up as the engine's is.

    Args:
        engine: whose weights and settings.
        n_seq: sequences.
    """

    def __init__(self, engine: Engine, n_seq: int) -> None:
        config = engine.config
        params = C.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = engine.n_ctx, config.n_batch, config.n_ubatch
        params.n_seq_max, params.kv_unified, params.no_perf = n_seq, True, True
        params.n_threads = params.n_threads_batch = engine.n_threads
        params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[config.flash_attn]
        params.type_k, params.type_v = KV_TYPES[config.type_k], KV_TYPES[config.type_v]
        self._context = C.llama_init_from_model(engine.model.pointer, params)
        self._memory = C.llama_get_memory(self._context)
        self._batch = C.llama_batch_init(config.n_batch, 0, 1)
        self._n_batch, self._n_vocab = config.n_batch, engine.vocabulary.n_tokens
        self._depths: list[int] = []

    def close(self) -> None:
        """Free it."""
        C.llama_batch_free(self._batch)
        C.llama_free(self._context)

    def _decode(self, runs: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        at = 0
        for seq_id, position, tokens in runs:
            for i, token in enumerate(tokens):
                self._batch.token[at], self._batch.pos[at] = token, position + i
                self._batch.n_seq_id[at], self._batch.seq_id[at][0] = 1, seq_id
                self._batch.logits[at] = i == len(tokens) - 1
                at += 1
        self._batch.n_tokens = at
        if code := C.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode: {code}")

    def rate(self, depths: Sequence[int], n_tokens: int) -> float:
        """Tokens a second of all sequences together, from these depths on."""
        rng = np.random.default_rng(0)
        for seq_id, depth in enumerate(depths):
            have = self._depths[seq_id] if seq_id < len(self._depths) else 0
            C.llama_memory_seq_rm(self._memory, seq_id, depth, -1)
            for start in range(min(have, depth), depth, self._n_batch):
                n = min(self._n_batch, depth - start)
                self._decode([(seq_id, start, rng.integers(0, 300, n).tolist())])
        for seq_id in range(len(depths), len(self._depths)):
            C.llama_memory_seq_rm(self._memory, seq_id, 0, -1)
        self._depths = list(depths)
        begun = []
        for i in range(n_tokens):
            begun.append(time.perf_counter())
            self._decode([(s, d + i, [int(rng.integers(0, 300))]) for s, d in enumerate(depths)])
        full = begun[N_WARM:-N_WARM]
        return len(depths) * (len(full) - 1) / (full[-1] - full[0])


# -- llama-server -----------------------------------------------------------------------------------------------------


@contextmanager
def served(program: Path, model: Path, n_slots: int, n_ctx: int, n_threads: int) -> Iterator[str]:
    """Within the block a llama-server runs; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "-m", str(model), "--port", str(port), "-np", str(n_slots), "-c", str(n_ctx)]
    command += ["-t", str(n_threads), "--no-webui", "-lv", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health"):  # noqa: S310 - our own server
                    break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None:
                    raise RuntimeError(f"{program} ended with {process.returncode}") from None
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def ask_server(address: str, n: int, n_tokens: int, n_words: int) -> tuple[float, float]:
    """As `converse`; a batch of the server is taken to begin when all have got their next token."""
    arrivals: list[list[float]] = [[] for _ in range(n)]

    def talk(i: int) -> int:
        body = {
            "messages": question(i, n_words), "max_tokens": n_tokens, "seed": i, "stream": True, "ignore_eos": True,
            "cache_prompt": True, "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip
        request = urllib.request.Request(  # noqa: S310
            f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:  # noqa: S310
            for line in reply:
                if line.startswith(b"data: {") and b'"content":' in line:
                    arrivals[i].append(time.perf_counter())
        return n_tokens

    started = time.perf_counter()
    with ThreadPoolExecutor(n) as pool:
        total = sum(pool.map(talk, range(n)))
    whole_s = time.perf_counter() - started
    begin = max(times[N_WARM] for times in arrivals)
    end = min(times[-N_WARM] for times in arrivals)
    return sum(begin < t <= end for times in arrivals for t in times) / (end - begin), total / whole_s


# -- identity ---------------------------------------------------------------------------------------------------------


def same(model: ChatModel, n: int, n_tokens: int, n_words: int) -> tuple[int, Comparison]:
    """How many of `n` texts are those of their conversations alone, and the logits of both ways held together."""
    engine = model.engine
    never = dict.fromkeys(engine.vocabulary.eog, -100.0)
    asked = []
    for i in range(n):
        sampling = SamplingParams(temperature=0.7 if i % 2 else 0.0, seed=i, logit_bias=never)
        asked.append((prompt(model, i, n_words), sampling))

    def read(sequence: Any) -> list[int]:
        return [t for step in engine.read(sequence) for t in step.tokens]

    engine.clear_cache()
    with recorded(engine) as crowd:
        sequences = [engine.prepare(*job, None, n_tokens) for job in asked]
        with ThreadPoolExecutor(n) as pool:
            texts = list(pool.map(read, sequences))
    n_same, comparisons = 0, []
    for i, job in enumerate(asked):
        engine.clear_cache()
        with recorded(engine) as own:
            n_same += read(engine.prepare(*job, None, n_tokens)) == texts[i]
        if n_same <= i:  # another text: compare along the crowd's
            engine.clear_cache()
            with recorded(engine, iter([texts[i]])) as own:
                read(engine.prepare(*job, None, n_tokens))
        comparisons.append(compare([c.logits for c in crowd[i].choices], [c.logits for c in own[0].choices]))
    return n_same, together(comparisons)


# -- all together -----------------------------------------------------------------------------------------------------


def median(values: Sequence[float]) -> float:
    """Rounded to what matters."""
    return round(statistics.median(values), 2)


def measure(options: argparse.Namespace, model: ChatModel, path: Path) -> list[dict[str, Any]]:
    """A row for each size."""
    engine, n_words = model.engine, options.words
    bare = Bare(engine, max(options.sizes))
    depths = [
        len(engine.tokenize(model.render(Request.of(question(i, n_words), {})).pieces))
        for i in range(max(options.sizes))
    ]
    rows = []
    for n in options.sizes:
        ours, whole, shares, alone = [], [], [], []
        converse(model, n, 1, n_words)  # prompts into the cache
        for _ in range(options.repeats):
            steady, all_in_all, share = converse(model, n, options.tokens, n_words)
            ours.append(steady)
            whole.append(all_in_all)
            shares.append(share)
            alone.append(bare.rate(depths[:n], options.tokens))
        row = {
            "n": n,
            "steady": median(ours),
            "bare": median(alone),
            "ratio": round(statistics.median(a / b for a, b in zip(ours, alone, strict=True)), 3),
            "in_decode": round(statistics.median(shares), 3),
            "whole": median(whole),
        }
        rows.append(row)
        print("".join(f"{name} {row[name]:>8}   " for name in row), flush=True)
    bare.close()
    return rows


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b")
    sizes: Callable[[str], list[int]] = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser.add_argument("--sizes", type=sizes, default=[1, 2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=40)
    parser.add_argument("--words", type=int, default=30, help="length of a prompt")
    parser.add_argument("-c", "--n-ctx", type=int, default=8192)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--exact", action="store_true", help="a cache of bf16 with flash attention: for Q8_0 weights")
    parser.add_argument("--same", type=int, default=0, metavar="N", help="compare N conversations with each one alone")
    parser.add_argument("--server", type=Path, help="a llama-server to measure beside")
    options = parser.parse_args()
    path = resolve_model(options.model, offline=True).path
    config = EngineConfig(
        n_ctx=options.n_ctx, n_seq_max=max(*options.sizes, options.same), n_threads=options.threads, draft_max=0,
        prefix_cache_bytes=0, **(EXACT if options.exact else {}),
    )  # fmt: skip
    result: dict[str, Any] = {"benchmark": "many_at_once", "model": path.name, "exact": options.exact}
    good = True
    with ChatModel.load(path, config=config) as model:
        result["n_threads"] = n_threads = model.engine.n_threads
        result["rows"] = measure(options, model, path)
        if options.same:
            n_same, identity = same(model, options.same, options.tokens, options.words)
            good = identity.explained and (not options.exact or (n_same == options.same and identity.difference == 0))
            result["same"] = {"texts": n_same, "of": options.same, **identity.to_json()}
            print(f"same as alone: {n_same} of {options.same} texts; {identity.to_json()}", flush=True)
    if options.server:
        result["server"] = []
        for n in options.sizes:
            with served(options.server, path, n, options.n_ctx, n_threads) as address:
                ask_server(address, n, N_WARM + 1, options.words)
                runs = [ask_server(address, n, options.tokens, options.words) for _ in range(options.repeats)]
            row = {"n": n, "steady": median([r[0] for r in runs]), "whole": median([r[1] for r in runs])}
            result["server"].append(row)
            print(f"llama-server with {n} slots: {row}", flush=True)
    print(json.dumps(result))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
