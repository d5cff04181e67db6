"""Where the time of a constrained token goes: microseconds for each token and each decode step, item by item.

    python scripts/benchmarks/token_cost.py [-m qwen2.5-coder-0.5b] [--repeats 5] [-t 2]

Required calls with the eight built-in tools, greedy, from the second step on. Each item is measured around the
functions named in ITEMS, less what they call of one another; "other" is the rest of the time: the engine's loop and the
hand-overs between its two threads. Medians over the repeats; prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import laploop.engine.matcher as matcher_module
from laploop.engine import EngineConfig
from laploop.engine.config import GREEDY
from laploop.engine.matcher import Matcher
from laploop.engine.native import NativeContext, NativeSampler
from laploop.engine.vocabulary import Vocabulary
from laploop.models import ChatModel, OutputParser, render_prompt, tool_grammar
from laploop.tools import builtin_tools

ITEMS: tuple[tuple[str, Any, str], ...] = (
    ("decode", NativeContext, "decode"),
    ("logits", NativeContext, "logits"),
    ("mask", Matcher, "allowed"),
    ("apply", matcher_module, "apply_bitmask"),
    ("sample", NativeSampler, "sample"),
    ("accept", NativeSampler, "accept"),
    ("consume", Matcher, "consume"),
    ("forced", Matcher, "forced"),
    ("way out", Matcher, "way_out"),
    ("detokenize", Vocabulary, "bytes_of"),
    ("parse", OutputParser, "feed"),
)


class Meter:
    """Adds up the time in the functions of ITEMS."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inner = threading.local()
        for label, owner, name in ITEMS:
            setattr(owner, name, self._measured(label, getattr(owner, name)))

    def _measured(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - started
                self.seconds[label] += elapsed - self._inner.seconds
                self.calls[label] += 1
                self._inner.seconds = outer + elapsed

        return measured

    def reset(self) -> None:
        """Start anew."""
        self.seconds.clear()
        self.calls.clear()


def call(model: ChatModel, meter: Meter, question: str) -> dict[str, float]:
    """Seconds by item of one reply, from its second step on."""
    tools = [t.to_openai() for t in builtin_tools(root=Path.cwd())]
    grammar = tool_grammar(tools, "required", dialect=model.dialect or "qwen3")
    prompt = render_prompt(model.template, [{"role": "user", "content": question}], tools)
    steps = model.engine.generate(model.engine.tokenize(str(prompt)), GREEDY, grammar, max_tokens=80)
    parser = OutputParser(tools=tools, dialect=model.dialect or "qwen3")
    parser.feed(next(steps).text)
    meter.reset()
    started = time.perf_counter()
    for step in steps:
        parser.feed(step.text)
    wall = time.perf_counter() - started
    return {**meter.seconds, "other": wall - sum(meter.seconds.values())}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int)
    given = parser.parse_args()
    meter, rows, counts = Meter(), list[dict[str, float]](), list[dict[str, int]]()
    with ChatModel.load(given.model, config=EngineConfig(n_ctx=4096, n_threads=given.threads)) as model:
        for i in range(given.repeats):
            rows.append(call(model, meter, f"What is the weather in Rome, and what is {i} * 17?"))
            counts.append(dict(meter.calls))
    n_steps = statistics.median(c.get("decode", 0) for c in counts)
    labels = [label for label, _, _ in ITEMS] + ["other"]
    us = {label: statistics.median(row.get(label, 0.0) for row in rows) * 1e6 for label in labels}
    total = sum(us.values())
    print(f"{'item':12}{'calls':>7}{'µs a step':>11}{'share':>8}   ({n_steps:.0f} steps)")
    for label in labels:
        calls = statistics.median(c.get(label, 0) for c in counts)
        print(f"{label:12}{calls:7.0f}{us[label] / max(n_steps, 1):11.1f}{us[label] / total:8.1%}")
    print(json.dumps({
        "benchmark": "token_cost", "model": Path(given.model).stem, "repeats": given.repeats, "steps": n_steps,
        "us_per_step": {label: round(value / max(n_steps, 1), 1) for label, value in us.items()},
        "load": round(os.getloadavg()[0], 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
