"""A long chat: does the process grow?

    python scripts/benchmarks/long_chat.py -m TINY.gguf [--turns 1000] [--every 50] [-c 2048]
    python scripts/benchmarks/long_chat.py -m qwen2.5-coder-0.5b --turns 50 --every 10

One agent with a tool, one session, so many turns: questions of varying length, in two languages, with results that are
cut to their budget. The context overflows again and again, so that the agent compacts. Every so many turns the session
is saved with its state and loaded again in its place (with `--reload` every second time into a model that is loaded
anew). Resident memory is read every ten turns as it is; after the warm-up (turn 100, or a fifth of the turns) greatest
and least reading must lie within 5 %. Prints the readings and one JSON line; exit code 1 if they do not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from laploop.agent import Agent, Compaction, ResultCut, RunFinished, Session
from laploop.agent.session import state_path
from laploop.engine import EngineConfig
from laploop.models import ChatModel
from laploop.tools import tool

WORDS = [
    "a",
    "call",
    "is",
    "the",
    "answer",
    "sunny",
    "fox",
    "jumps",
    "over",
    "dog",
    "and",
    "今天",
    "北京",
    "天气",
    "很好",
]
WARM_TURN = 100
MOST_GROWTH = 0.05


def rss_bytes() -> int:
    """Resident memory of this process, in bytes (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


@tool
def look_up(topic: str) -> str:
    """Return what is known about a topic, as text of any length."""
    rng = random.Random(topic)  # noqa: S311
    return " ".join(rng.choices(WORDS, k=rng.randrange(5, 400)))


def question(rng: random.Random) -> str:
    """A few words, sometimes many."""
    return " ".join(rng.choices(WORDS, k=rng.choice((3, 8, 20, 60))))


class LongChat:
    """The chat and what was seen of it.

    Args:
        options: of the command line.
        folder: where the session is kept.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.path = folder / "chat.json"
        self.config = EngineConfig(n_ctx=options.n_ctx, n_threads=options.threads, prefix_cache_dir=folder / "prefixes")
        self.counts: Counter[str] = Counter()
        self.readings: list[tuple[int, int]] = []  # (turn, bytes)
        self.rng = random.Random(0)  # noqa: S311
        self.model = ChatModel.load(options.model, config=self.config)
        self.session = Session()

    def run(self) -> None:
        """All turns."""
        for turn in range(1, self.options.turns + 1):
            self.ask(turn)
            if turn % 10 == 0:
                self.readings.append((turn, rss_bytes()))
                print(f"turn {turn:>5}  {self.readings[-1][1] / 1e6:8.1f} MB  {dict(self.counts)}", flush=True)
            if turn % self.options.every == 0:
                self.save_and_load(turn)
        self.model.close()

    def ask(self, turn: int) -> None:
        """One turn; every seventh must call the tool."""
        choice = "required" if turn % 7 == 0 else "auto"
        agent = Agent(
            self.model, [look_up], max_rounds=2, max_tokens=self.options.max_tokens, tool_choice=choice, seed=turn,
            enable_thinking=False,
        )  # fmt: skip
        for event in agent.stream(question(self.rng), self.session):
            if isinstance(event, Compaction):
                self.counts["compactions"] += 1
                self.counts[f"summaries by {event.by}"] += 1
            elif isinstance(event, ResultCut):
                self.counts["results cut"] += 1
            elif isinstance(event, RunFinished):
                self.counts["rounds"] += event.result.rounds
                self.counts["most tokens of a prompt"] = max(
                    self.counts["most tokens of a prompt"], agent.context(self.session).n_used
                )

    def save_and_load(self, turn: int) -> None:
        """Put the session through its files, and see that nothing is lost."""
        before = list(self.session.messages)
        self.session.save(self.path, self.model)
        self.counts["state bytes, most"] = max(self.counts["state bytes, most"], state_path(self.path).stat().st_size)
        if self.options.reload and turn // self.options.every % 2 == 0:
            self.model.close()
            self.model = ChatModel.load(self.options.model, config=self.config)
        self.session = Session.load(self.path, self.model)
        if self.session.messages != before:
            raise AssertionError("a loaded session is not what was saved")
        self.counts["loads"] += 1
        self.counts["tokens restored"] += self.session.n_restored


def judge(readings: list[tuple[int, int]], turns: int) -> dict[str, Any]:
    """The greatest and the least reading after the warm-up, and what lies between them."""
    warm = min(WARM_TURN, turns // 5)
    late = [size for turn, size in readings if turn >= warm]
    first = late[0]
    return {
        "warm_turn": warm,
        "rss_at_warm_turn": first,
        "rss_max": max(late),
        "rss_min": min(late),
        "rss_last": late[-1],
        "growth": round(max(late) / first - 1, 4),
        "spread": round(max(late) / min(late) - 1, 4),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="save and load after so many turns")
    parser.add_argument("-c", "--n-ctx", type=int, default=2048)
    parser.add_argument("-n", "--max-tokens", type=int, default=40)
    parser.add_argument("-t", "--threads", type=int, default=None)
    parser.add_argument("--reload", action="store_true", help="load every second time into a model loaded anew")
    options = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        chat = LongChat(options, Path(folder))
        chat.run()
    figures = judge(chat.readings, options.turns)
    good = figures["spread"] <= MOST_GROWTH and chat.counts["compactions"] > 0
    print(
        json.dumps(
            {
                "benchmark": "long_chat",
                "model": Path(options.model).name,
                "turns": options.turns,
                "n_ctx": options.n_ctx,
                "seconds": round(time.perf_counter() - started, 1),
                **figures,
                **chat.counts,
                "good": good,
            },
            ensure_ascii=False,
        )
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
