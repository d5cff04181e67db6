"""Decode steps and time of whole calls: token by token, with jump-forward, and with drafts from the context.

    python scripts/benchmarks/call_steps.py [-m qwen2.5-coder-1.5b] [--repeats 10] [--identity]

Four calls of an agent with the eight built-in tools: two weathers, news, a page whose link stands in the news' result,
a calculation. The three ways of generating take turns, in an order that rotates, on the same prompt, whose cache is
warm; links and numbers are drawn anew for each repeat. Prints medians over the repeats, ratios to the first way taken
pair by pair where both wrote the same text, and one JSON line. Steps are decodes; time is from the evaluated prompt to
the last token.

--identity asks how far the three ways are the same text. On K-quants llama.cpp rounds batches of 4 and more unlike
single tokens; the tokens of the first way are then put through once more, one by one and in batches of 8, and each
place where the most probable token differs is shown with its top-2 gap and the greatest difference of logits.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from identity import compare, together
from laploop.agent.prompts import system_prompt
from laploop.engine import EngineConfig
from laploop.engine.config import GREEDY
from laploop.models import ChatModel, OutputParser
from laploop.models.grammar import reply_grammar
from laploop.models.opening import end_bias
from laploop.models.requests.request import Request
from laploop.tools import builtin_tools

WAYS = {"single": (False, False), "jump": (True, False), "jump+draft": (True, True)}
BATCH = 8


@dataclass(frozen=True)
class Task:
    """A question whose answer begins with a call."""

    name: str
    calls: tuple[str, ...]  # expected tools

    def messages(self, rng: random.Random) -> list[dict[str, Any]]:
        """The conversation up to the call."""
        if self.name == "weathers":
            pair = rng.sample(["北京", "上海", "广州", "成都", "西安", "武汉"], 2)
            return [{"role": "user", "content": f"{pair[0]}和{pair[1]}今天哪里更热？"}]
        if self.name == "news":
            topic = rng.choice(["AI", "新能源", "航天", "芯片"])
            return [{"role": "user", "content": f"今天有什么{topic}新闻？"}]
        if self.name == "calculator":
            a, b, c = rng.randint(100, 999), rng.randint(11, 99), rng.randint(2, 9)
            return [{"role": "user", "content": f"帮我算一下 ({a} + {b}) * {c} 等于多少？"}]
        return _after_news(rng)


TASKS = (
    Task("weathers", ("get_weather", "get_weather")),
    Task("news", ("get_news",)),
    Task("read_url", ("read_url",)),
    Task("calculator", ("calculator",)),
)


_WORDS = ("open", "model", "laptop", "energy", "robot", "chip", "cloud", "school", "hospital", "market")


def _after_news(rng: random.Random) -> list[dict[str, Any]]:
    items = [
        {
            "title": f"{rng.choice(['开源', '国产', '新一代'])}模型在{rng.choice(['杭州', '深圳', '合肥'])}发布第{i}版",
            "link": f"https://news.example.org/technology/articles/{rng.choice(_WORDS)}-{rng.choice(_WORDS)}"
            f"/detail_forward_{rng.randint(10**5, 10**6)}.html",
        }
        for i in range(1, 6)
    ]
    arguments = '{"topic": "人工智能"}'
    call = {"id": "call_1", "type": "function", "function": {"name": "get_news", "arguments": arguments}}
    return [
        {"role": "user", "content": "帮我看看今天 AI 新闻里第一条的正文。"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": json.dumps(items, ensure_ascii=False)},
    ]


class Run(NamedTuple):
    """One generation."""

    tokens: list[int]
    text: str
    n_steps: int
    wall_s: float
    n_drafted: int
    n_accepted: int
    calls: list[str]
    canonical: bool  # its tokens are those of tokenizing its text as a whole


class Bench:
    """The model and its tools."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        tools = builtin_tools()
        self.tools = [tool.to_openai() for tool in tools]
        self.system = {"role": "system", "content": system_prompt(tools, "zh")}

    def run(self, messages: list[dict[str, Any]], way: str) -> Run:
        """Generate one reply, greedily, as ChatModel does once it has weighed that it is a call."""
        jump, draft = WAYS[way]
        engine = self.model.engine
        request = Request.of([self.system, *messages], {"tools": self.tools}).calling()
        prompt = engine.tokenize(self.model.render(request).pieces)
        assert self.model.dialect
        sampling = replace(GREEDY, fork_bias=end_bias(engine.vocabulary, self.model.dialect))
        sequence = engine.prepare(prompt, sampling, reply_grammar(request, self.model.dialect, "none"), 300)
        sequence.jump_forward = jump
        if not draft:
            sequence.drafter = None
        started = time.perf_counter()
        steps = list(engine.read(sequence))
        wall_s = time.perf_counter() - started - sequence.timings.prompt_s
        text = b"".join(step.text for step in steps).decode("utf-8", "replace")
        parser = OutputParser(tools=self.tools, enable_thinking=False, dialect=self.model.dialect)
        parser.feed(text)
        parser.finish()
        calls = [c["function"]["name"] for c in parser.result().message.get("tool_calls", [])]
        timings = sequence.timings
        tokens = sequence.tokens[sequence.n_prompt :]
        canonical = tokens == engine.vocabulary.tokenize(text, add_bos=False)
        return Run(tokens, text, timings.n_steps, wall_s, timings.n_drafted, timings.n_accepted, calls, canonical)


def measure(bench: Bench, n_repeats: int, seed: int) -> list[dict[str, Any]]:
    """A row for each task and way."""
    rows = []
    ways = list(WAYS)
    for task in TASKS:
        rng = random.Random(f"{seed} {task.name}")  # noqa: S311 - no secret
        runs: dict[str, list[Run]] = {way: [] for way in ways}
        for repeat in range(n_repeats):
            messages = task.messages(rng)
            bench.run(messages, "jump")  # the prompt comes into the cache
            for i in range(len(ways)):
                way = ways[(repeat + i) % len(ways)]
                runs[way].append(bench.run(messages, way))
        for way in ways:
            pairs = list(zip(runs[way], runs["single"], strict=True))
            same = [(run, single) for run, single in pairs if run.text == single.text]
            rows.append(
                {
                    "task": task.name,
                    "way": way,
                    "tokens": statistics.median(len(run.tokens) for run, _ in pairs),
                    "steps_per_token": statistics.median(run.n_steps / len(run.tokens) for run, _ in pairs),
                    "wall_ms": 1000 * statistics.median(run.wall_s for run, _ in pairs),
                    # Another text is another amount of work.
                    "wall_ratio": statistics.median(run.wall_s / single.wall_s for run, single in same)
                    if same
                    else None,
                    "drafted": sum(run.n_drafted for run, _ in pairs),
                    "accepted": sum(run.n_accepted for run, _ in pairs),
                    "as_expected": sum(tuple(run.calls) == task.calls for run, _ in pairs),
                    "same_text": len(same),
                    "canonical": sum(run.canonical for run, _ in pairs),
                    "runs": len(pairs),
                }
            )
    return rows


def identity(bench: Bench, seed: int) -> dict[str, Any]:
    """Teacher-force the first way's tokens one by one and in batches; compare logits and most probable tokens."""
    engine, context = bench.model.engine, bench.model.engine.context
    n_vocab, comparisons = engine.vocabulary.n_tokens, []
    for task in TASKS:
        messages = task.messages(random.Random(f"{seed} {task.name}"))  # noqa: S311 - no secret
        request = Request.of([bench.system, *messages], {"tools": bench.tools})
        prompt = engine.tokenize(bench.model.render(request).pieces)
        reply = bench.run(messages, "single").tokens
        engine.clear_cache()
        logits: dict[int, list[Any]] = {1: [], BATCH: []}
        for size in logits:
            context.forget(0, 0)
            for start in range(0, len(prompt), 512):
                context.decode([(0, start, prompt[start : start + 512], 0)])
            for start in range(0, len(reply), size):
                part = reply[start : start + size]
                context.decode([(0, len(prompt) + start, part, len(part))])
                logits[size] += [context.logits(i, n_vocab).copy() for i in range(len(part))]
        context.forget(0, 0)
        comparisons.append(compare(logits[1], logits[BATCH]))
    return together(comparisons).to_json()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draft-max", type=int, default=15)
    parser.add_argument("--identity", action="store_true")
    options = parser.parse_args()
    with ChatModel.load(options.model, config=EngineConfig(n_ctx=4096, draft_max=options.draft_max)) as model:
        bench = Bench(model)
        rows = measure(bench, options.repeats, options.seed)
        same = identity(bench, options.seed) if options.identity else None
    head = (
        "task",
        "way",
        "tokens",
        "steps/token",
        "wall ms",
        "ratio",
        "drafted",
        "right",
        "expected",
        "same text",
        "canonical",
    )
    print(("{:<11}{:<12}" + "{:>12}" * 9).format(*head))
    for row in rows:
        n, ratio = row["runs"], row["wall_ratio"] or float("nan")
        print(
            f"{row['task']:<11}{row['way']:<12}{row['tokens']:>12.0f}{row['steps_per_token']:>12.2f}"
            f"{row['wall_ms']:>12.0f}{ratio:>12.2f}{row['drafted']:>12}{row['accepted']:>12}"
            f"{row['as_expected']:>9}/{n:<2}{row['same_text']:>9}/{n:<2}{row['canonical']:>9}/{n:<2}"
        )
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        share = sum(row["steps_per_token"] * row["tokens"] for row in mine) / sum(row["tokens"] for row in mine)
        print(f"all tasks  {way:<12}{share:>24.2f}")
    if same:
        print(f"teacher-forced: {same}", file=sys.stderr)
    print(json.dumps({"benchmark": "call_steps", "model": options.model, "rows": rows, "identity": same}))


if __name__ == "__main__":
    main()
