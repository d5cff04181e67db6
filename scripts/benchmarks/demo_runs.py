"""The demo's five questions, greedy and with seeds, each run with sample data drawn anew: is the tool path right, and
does the answer state what the tools returned?

    python scripts/benchmarks/demo_runs.py [-m qwen2.5-coder-1.5b] [--seeds 0 1 2 3 4] [--temperature 0.3]

Seed 0 is greedy. Prints a row a run and one JSON line at the end. The judges read the tools' values of the run itself;
no value is known beforehand.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from typing import Any

from laploop.agent import Agent, RunResult
from laploop.engine import EngineConfig
from laploop.models import ChatModel
from laploop.scripts.demo import QUESTIONS, tool_path
from laploop.scripts.sample_services import SampleServices
from laploop.tools import builtin_tools

_WARMER, _COLDER = re.compile("热|高|暖"), re.compile("冷|低|凉")


def calls_of(result: RunResult) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of every call, in order."""
    return [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for m in result.messages
        for c in m.get("tool_calls") or ()
    ]


def judge_hotter(result: RunResult, data: SampleServices) -> list[str]:
    """Two weather calls in one round; both temperatures in the answer."""
    faults = [] if tool_path(result)[:1] == [["get_weather"] * 2] else ["not two weather calls in one round"]
    here = {city: data.weather(city).temperature_c for city in ("北京", "上海")}
    return faults + [f"{city}'s {t} is missing" for city, t in here.items() if not has_number(result.answer, t)]


def concludes(result: RunResult, data: SampleServices) -> bool:
    """Whether the first question's answer calls the right city the hotter one, in every clause that compares."""
    here = {city: data.weather(city).temperature_c for city in ("北京", "上海")}
    claims = set()
    for clause in re.split(r"[，。；,;\n]|但|而", result.answer):
        cities = re.findall("北京|上海", clause)
        if cities and (_WARMER.search(clause) or _COLDER.search(clause)):
            other = "上海" if cities[0] == "北京" else "北京"
            claims.add(cities[0] if _WARMER.search(clause) else other)
    return claims == {max(here, key=lambda c: here[c])}


def judge_news(result: RunResult, data: SampleServices) -> list[str]:
    """get_news, then read_url with the first link of its result; the page's number stands in the answer."""
    calls = calls_of(result)
    names = [name for name, _ in calls]
    if names[:2] != ["get_news", "read_url"]:
        return [f"called {names}"]
    first = data.news(calls[0][1]["topic"])[0]
    faults = [] if calls[1][1]["url"] == first.link else ["read another link than the first"]
    return faults if has_number(result.answer, first.fact) else [*faults, f"the page's {first.fact} is missing"]


def judge_two_things(result: RunResult, data: SampleServices) -> list[str]:
    """Weather of Shanghai and the product; both values in the answer."""
    calls = calls_of(result)
    faults = []
    if ("get_weather", {"city": "上海"}) not in calls:
        faults.append("no weather call for 上海")
    if "calculator" not in [name for name, _ in calls]:
        faults.append("no calculator call")
    values = (data.weather("上海").temperature_c, 23 * 17)
    faults += [f"{value} is missing" for value in values if not has_number(result.answer, value)]
    return faults


def judge_time(result: RunResult, data: SampleServices) -> list[str]:
    """get_time; its hour, of 24 or of 12, and its minute in the answer."""
    times = [
        json.loads(m["content"])["time"] for m in result.messages if m["role"] == "tool" and '"time"' in m["content"]
    ]
    if not times:
        return ["get_time gave no time"]
    hour, minute, _ = map(int, times[-1].split(":"))
    said = re.search(rf"(?<!\d)0?({hour}|{(hour + 11) % 12 + 1})\s*[:：点时]\s*0?{minute}(?!\d)", result.answer)
    return [] if said else [f"{times[-1]} is missing"]


def judge_direct(result: RunResult, data: SampleServices) -> list[str]:
    """Answered without a tool, or with the calculator at most."""
    names = [name for name, _ in calls_of(result)]
    faults = [] if set(names) <= {"calculator"} else [f"called {names}"]
    return faults if has_number(result.answer, 2) else [*faults, "2 is missing"]


JUDGES = (judge_hotter, judge_news, judge_two_things, judge_time, judge_direct)


def has_number(text: str, value: float | str) -> bool:
    """Whether the number stands in the text on its own."""
    return (
        re.search(rf"(?<![\d.]){re.escape(str(value))}(?!\d|\.\d)", text.replace("−", "-").replace("零下", "-"))
        is not None
    )


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="0 is greedy")
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--answers", action="store_true", help="print calls and answers too")
    options = parser.parse_args()
    rows = []
    with ChatModel.load(options.model, config=EngineConfig(n_ctx=8192)) as model:
        for seed in options.seeds:
            for number in options.questions:
                with SampleServices() as data:
                    sampling: dict[str, Any] = (
                        {"temperature": 0.0} if seed == 0 else {"temperature": options.temperature, "seed": seed}
                    )
                    started = time.perf_counter()
                    result = Agent(model, builtin_tools(web=data.web_config()), **sampling).run(QUESTIONS[number - 1])
                    wall_s = time.perf_counter() - started
                    faults = JUDGES[number - 1](result, data)
                    concluded = number != 1 or concludes(result, data)
                rows.append(
                    {
                        "seed": seed,
                        "question": number,
                        "path": tool_path(result),
                        "right": not faults,
                        "concluded": concluded,
                        "wall_s": wall_s,
                    }
                )
                print(
                    f"seed {seed} q{number} {'WRONG' if faults else 'right'} {wall_s:6.1f} s  {tool_path(result)}",
                    "; ".join(faults + ([] if concluded else ["(states the values, concludes wrongly)"])),
                    flush=True,
                )
                if options.answers:
                    print(
                        "   ",
                        calls_of(result),
                        "\n   ",
                        result.stop_reason,
                        result.answer.replace("\n", "\n    "),
                        flush=True,
                    )
    right = sum(row["right"] for row in rows)
    concluded = sum(row["right"] and row["concluded"] for row in rows)
    print(
        json.dumps(
            {
                "benchmark": "demo_runs",
                "model": options.model,
                "right": right,
                "right_and_concluded": concluded,
                "runs": len(rows),
                "median_wall_s": round(statistics.median(r["wall_s"] for r in rows), 2),
                "per_question": {n: sum(r["right"] for r in rows if r["question"] == n) for n in options.questions},
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
