"""What a second process gains from the first: time to the first token, with the system prompt and tools on disk.

    python scripts/benchmarks/second_process.py [-m qwen2.5-coder-1.5b] [--runs 5]

In each run a process with an empty cache asks one question, then a second process, with the same system prompt and the
same eight built-in tools, another one. Measured are the time from the request to the first token (the prompt rendered,
the grammar built, the state loaded, the rest of the prompt evaluated, one token chosen) and the time from the start of
the process to it. Prints a row a process, then the medians as one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

QUESTIONS = (
    "What is the weather in Rome tomorrow?",
    "Which files in this folder are larger than a megabyte?",
)


def ask(model: str, question: str, n_ctx: int) -> dict[str, Any]:
    """In a process of its own: load the model, ask for one token as an agent asks, tell the times."""
    from laploop.agent import Agent
    from laploop.engine import EngineConfig
    from laploop.models import ChatModel, ScriptedModel
    from laploop.tools import builtin_tools

    scripted = ScriptedModel(["ok"])  # takes down what an agent asks a model
    Agent(scripted, builtin_tools()).run(question)
    request = scripted.requests[0]
    with ChatModel.load(model, config=EngineConfig(n_ctx=n_ctx), offline=True) as chat:
        asked = time.time()
        reply = chat.create(list(request.messages), tools=list(request.tools), max_tokens=1, temperature=0.0)
        answered = time.time()
    usage = reply["usage"]
    return {
        "request_s": answered - asked,
        "answered": answered,
        "closed_s": time.time() - answered,
        "n_tools": len(request.tools),
        "n_prompt": usage["prompt_tokens"],
        "n_cached": usage["prompt_tokens_details"]["cached_tokens"],
    }


def run(model: str, question: str, n_ctx: int, cache: Path) -> dict[str, Any]:
    """One process; adds the time from its start to the first token."""
    command = [sys.executable, __file__, "-m", model, "-c", str(n_ctx), "--ask", question]
    started = time.time()
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LAPLOOP_CACHE_DIR": str(cache)}
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    row["start_s"] = row.pop("answered") - started
    return row


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("-c", "--ctx-size", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(ask(options.model, options.ask, options.ctx_size)))
        return 0
    from laploop.models import resolve_model

    path = str(resolve_model(options.model, offline=True).path)  # its own cache folder may hold the model
    rows: list[list[dict[str, Any]]] = [[], []]
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as cache:
            for which, question in enumerate(QUESTIONS):
                row = run(path, question, options.ctx_size, Path(cache))
                rows[which].append(row)
                print(
                    f"{('first', 'second')[which]:<7} request {row['request_s']:7.3f} s,",
                    f"process {row['start_s']:7.3f} s,",
                    f"{row['n_cached']} of {row['n_prompt']} tokens from disk, closed in {row['closed_s']:.3f} s",
                    flush=True,
                )

    def median(which: int, name: str) -> float:
        return round(float(statistics.median(row[name] for row in rows[which])), 3)

    print(
        json.dumps(
            {
                "benchmark": "second_process",
                "model": options.model,
                "runs": options.runs,
                "n_tools": rows[0][0]["n_tools"],
                "prompt_tokens": [rows[which][0]["n_prompt"] for which in (0, 1)],
                "cached_tokens": [rows[which][0]["n_cached"] for which in (0, 1)],
                "request_to_first_token_s": [median(which, "request_s") for which in (0, 1)],
                "ratio": round(median(1, "request_s") / median(0, "request_s"), 4),
                "start_to_first_token_s": [median(which, "start_s") for which in (0, 1)],
                "close_s": [median(which, "closed_s") for which in (0, 1)],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
