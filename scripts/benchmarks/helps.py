"""What each help is worth to a small model: forty tasks, with each help switched off in turn.

    python scripts/benchmarks/helps.py [-m qwen2.5-coder-1.5b] [--off none grammar guards hints gate] [--tasks 0 39]
                                       [--on line no_call start more]

Ten tasks of each kind (one call; several independent calls; a chain; none needed), half in Chinese and half in English,
over the built-in tools. The values behind them are drawn anew for each run of this program (`--seed` draws the same
again), so that no answer can be known beforehand. Helps: the grammar that makes calls valid; the guards; the hints on
what comes from what, in the system prompt; the gate that asks first whether a tool is needed. `--on` adds helps that
are on trial (trials.py) to every run. Prints a row a task and one JSON line a configuration. A run may be had in pieces
with `--tasks FIRST LAST`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from laploop.agent import Agent, Guards, HistoryError, ModelGate, RunResult, check_history
from laploop.agent.guards import call_key
from laploop.models import Model
from laploop.scripts.sample_services import SampleServices
from laploop.tools import Tool, builtin_tools
from trials import NO_CALL, TRIALS, agent_on_trial

HELPS = ("grammar", "guards", "hints", "gate")
KINDS = ("single", "parallel", "chain", "none")
N_SAME = 3  # in a row: the guard refuses the third


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A question; the calls that it takes (name, and the arguments that matter), and what the answer has to state.

    `values`: each must stand in the answer; a tuple of texts: any of them.
    """

    kind: str
    question: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    values: tuple[Any, ...] = ()


class World:
    """What the tasks are about: services on loopback and a folder of files, their values drawn from one seed."""

    def __init__(self, seed: int, root: Path) -> None:
        self.services = SampleServices(seed=seed)
        self.root = root
        draw = random.Random(seed)  # noqa: S311 - sample data
        self.numbers = [draw.randint(13, 97) for _ in range(12)]
        self.files = {
            "harbour.txt": f"Report on the harbour.\nThe new crane cost {draw.randint(10_000, 99_999)} euros.\n",
            "orchard.txt": f"Report on the orchard.\nThe harvest was {draw.randint(10_000, 99_999)} kilograms.\n",
            "gongcheng.txt": f"桥梁工程记录。\n桥长{draw.randint(1_000, 9_999)}米。\n",
            "shuiku.txt": f"水库记录。\n今年蓄水{draw.randint(10_000, 99_999)}吨。\n",
        }
        for name, text in self.files.items():
            (root / name).write_text(text, encoding="utf-8")

    def number_in(self, name: str) -> str:
        """The number that stands in a file and nowhere else."""
        return str(re.findall(r"\d+", self.files[name])[0])

    def degrees(self, city: str) -> int:
        """What get_weather says of a city."""
        return self.services.weather(city).temperature_c


def make_tasks(world: World) -> list[Task]:
    """The forty tasks, kind by kind, Chinese and English in turn. The services must be open."""
    return [*_single(world), *_parallel(world), *_chain(world), *_none()]


def _weather(*cities: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(("get_weather", {"city": city}) for city in cities)


def _reading(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("read_file", {"path": name}),)


def _single(world: World) -> list[Task]:
    n = world.numbers
    return [
        Task("single", "北京今天多少度？", _weather("北京"), (world.degrees("北京"),)),
        Task("single", "What is the temperature in Oslo today?", _weather("Oslo"), (world.degrees("Oslo"),)),
        Task("single", f"{n[0]} 乘以 {n[1]} 等于多少？", (("calculator", {}),), (n[0] * n[1],)),
        Task("single", f"How much is {n[2]} times {n[3]}?", (("calculator", {}),), (n[2] * n[3],)),
        Task(
            "single", "gongcheng.txt 里写的桥长是多少米？", _reading("gongcheng.txt"),
            (world.number_in("gongcheng.txt"),),
        ),
        Task(
            "single", "According to harbour.txt, how many euros did the crane cost?", _reading("harbour.txt"),
            (world.number_in("harbour.txt"),),
        ),
        Task("single", "成都今天的湿度是多少？", _weather("成都"), (world.services.weather("成都").humidity_percent,)),
        Task(
            "single", "How humid is it in Turin today, in percent?", _weather("Turin"),
            (world.services.weather("Turin").humidity_percent,),
        ),
        Task("single", "有什么关于足球的新闻？列出第一条的标题。", (("get_news", {}),)),
        Task(
            "single", "Which files are in the folder? Name them.", (("list_files", {}),),
            ("harbour.txt", "orchard.txt"),
        ),
    ]  # fmt: skip


def _parallel(world: World) -> list[Task]:
    n, t = world.numbers, world.degrees
    files = (("read_file", {"path": "harbour.txt"}), ("read_file", {"path": "orchard.txt"}))
    return [
        Task("parallel", "北京和上海今天哪里更热？", _weather("北京", "上海"), (t("北京"), t("上海"))),
        Task(
            "parallel", "What is the weather in Oslo and in Porto?", _weather("Oslo", "Porto"),
            (t("Oslo"), t("Porto")),
        ),
        Task(
            "parallel", "杭州、成都和西安今天各多少度？", _weather("杭州", "成都", "西安"),
            (t("杭州"), t("成都"), t("西安")),
        ),
        Task(
            "parallel", "Compare today's temperatures in Leeds, Quito and Turin.", _weather("Leeds", "Quito", "Turin"),
            (t("Leeds"), t("Quito"), t("Turin")),
        ),
        Task(
            "parallel", f"上海今天多少度？顺便帮我算 {n[4]} 乘以 {n[5]} 的结果。",
            (*_weather("上海"), ("calculator", {})), (t("上海"), n[4] * n[5]),
        ),
        Task(
            "parallel", f"How warm is Hobart today, and how much is {n[6]} times {n[7]}?",
            (*_weather("Hobart"), ("calculator", {})), (t("Hobart"), n[6] * n[7]),
        ),
        Task("parallel", "南京和厦门今天的气温分别是多少？", _weather("南京", "厦门"), (t("南京"), t("厦门"))),
        Task(
            "parallel", "Read harbour.txt and orchard.txt and give me the number in each.", files,
            (world.number_in("harbour.txt"), world.number_in("orchard.txt")),
        ),
        Task(
            "parallel", "武汉今天多少度？gongcheng.txt 里的桥长是多少？",
            (*_weather("武汉"), ("read_file", {"path": "gongcheng.txt"})),
            (t("武汉"), world.number_in("gongcheng.txt")),
        ),
        Task(
            "parallel", "What is the temperature in Porto, and what does orchard.txt say about the harvest?",
            (*_weather("Porto"), ("read_file", {"path": "orchard.txt"})), (t("Porto"), world.number_in("orchard.txt")),
        ),
    ]  # fmt: skip


def _chain(world: World) -> list[Task]:
    def news(question: str, topic: str, item: int = 0) -> Task:
        article = world.services.news(topic)[item]
        return Task("chain", question, (("get_news", {}), ("read_url", {"url": article.link})), (article.fact,))

    n = world.numbers
    return [
        news("帮我看看今天 AI 新闻里第一条的正文。", "AI"),
        news("Find news about AI and read me the first article.", "AI"),
        news("搜索关于机器人的新闻，打开第一条，告诉我里面的数字。", "机器人"),
        news("Look up news about robots, open the first link, and tell me the number in the text.", "robots"),
        Task(
            "chain", f"先查北京的气温，再用计算器把它乘以 {n[8]}。", (*_weather("北京"), ("calculator", {})),
            (world.degrees("北京") * n[8],),
        ),
        Task(
            "chain", f"Get the temperature in Oslo, then use the calculator to multiply it by {n[9]}.",
            (*_weather("Oslo"), ("calculator", {})), (world.degrees("Oslo") * n[9],),
        ),
        Task(
            "chain", "哪个文件里写了水库？读一读，告诉我今年蓄水多少吨。", (("read_file", {"path": "shuiku.txt"}),),
            (world.number_in("shuiku.txt"),),
        ),
        Task(
            "chain", "One of the files is about an orchard. Find it, and tell me the harvest in kilograms.",
            (("read_file", {"path": "orchard.txt"}),), (world.number_in("orchard.txt"),),
        ),
        Task(
            "chain", f"gongcheng.txt 里的桥长乘以 {n[10]} 是多少？请用计算器。",
            (("read_file", {"path": "gongcheng.txt"}), ("calculator", {})),
            (int(world.number_in("gongcheng.txt")) * n[10],),
        ),
        Task(
            "chain", f"Read harbour.txt, then multiply the cost of the crane by {n[11]} with the calculator.",
            (("read_file", {"path": "harbour.txt"}), ("calculator", {})),
            (int(world.number_in("harbour.txt")) * n[11],),
        ),
    ]  # fmt: skip


def _none() -> list[Task]:
    return [
        Task("none", "你好！请用一句话介绍你自己。"),
        Task("none", "Hello! Who are you?"),
        Task("none", "把“谢谢”翻译成英语。", (), (("Thank", "thank"),)),
        Task("none", "Translate the word 'water' into French.", (), (("eau",),)),
        Task("none", "《红楼梦》的作者是谁？", (), (("曹雪芹",),)),
        Task("none", "Who wrote Romeo and Juliet?", (), (("Shakespeare",),)),
        Task("none", "一年有多少个月？", (), (("12", "十二"),)),
        Task("none", "How many days are there in a week?", (), (("7", "seven", "Seven"),)),
        Task("none", "用“春天”写一个短句子。", (), (("春",),)),
        Task("none", "Give me a synonym for 'happy'."),
    ]


# --- judging


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """right: the calls were made and the answer states the values. together: in the first round of calls.

    The last three must never happen, whatever the model does.
    """

    right: bool
    together: bool
    repeated: bool
    unanswered: bool
    broken: bool
    reason: str


def judge(task: Task, result: RunResult) -> Verdict:
    """What a run comes to."""
    done = [(c["round"], c["name"], c["arguments"]) for c in result.calls if c["executed"] and c["name"] != NO_CALL]
    missing = [f"{name} {wanted}" for name, wanted in task.calls if not any(_fits(call, name, wanted) for call in done)]
    unsaid = [str(value) for value in task.values if not states(result.answer, value)]
    reasons = [f"not called: {m}" for m in missing] + [f"not said: {u}" for u in unsaid]
    if task.kind == "none" and done:
        reasons.append(f"called {', '.join(name for _, name, _ in done)}")
    first = [call for call in done if call[0] == done[0][0]]
    together = not missing and all(any(_fits(call, name, wanted) for call in first) for name, wanted in task.calls)
    keys = [call_key(name, arguments) for _, name, arguments in done]
    repeated = any(len(set(keys[n : n + N_SAME])) == 1 for n in range(len(keys) - N_SAME + 1))
    return Verdict(
        not reasons, together, repeated, not (result.answered and result.answer.strip()), _is_broken(result),
        "; ".join(reasons),
    )  # fmt: skip


def _fits(call: tuple[int, str, str], name: str, wanted: dict[str, Any]) -> bool:
    try:
        arguments = json.loads(call[2] or "{}")
    except ValueError:
        return False
    return call[1] == name and all(_same(arguments.get(key), value) for key, value in wanted.items())


def _same(given: Any, wanted: Any) -> bool:
    return str(given).removeprefix("./").removesuffix("市").casefold() == str(wanted).casefold()


def states(text: str, value: Any) -> bool:
    """Whether the number, or one of the texts, stands in the answer."""
    if isinstance(value, tuple):
        return any(part in text for part in value)
    plain = re.sub(r"(?<=\d)[,，](?=\d{3})", "", text.replace("−", "-").replace("零下", "-"))
    return re.search(rf"(?<![\d.]){re.escape(str(value))}(?!\d|\.\d)", plain) is not None


def _is_broken(result: RunResult) -> bool:
    try:
        check_history(result.messages)
    except HistoryError:
        return True
    return False


# --- running


@contextlib.contextmanager
def without(off: Sequence[str]) -> Iterator[None]:
    """Inside, replies are sampled freely if the grammar is off."""
    if "grammar" not in off:
        yield
        return
    with mock.patch("laploop.models.chat.reply_grammar", lambda *_: None):
        yield


def make_agent(
    model: Model, tools: Sequence[Tool], off: Sequence[str], on: Sequence[str] = (), question: str = "", **sampling: Any
) -> Agent:
    """The agent with all helps but those that are off (the grammar is `without`'s), and those on trial that are on.

    `question` is what it will be asked: one of them goes by its language.
    """
    if "hints" in off:
        tools = [dataclasses.replace(tool, needs={}) for tool in tools]
    return agent_on_trial(
        model,
        tools,
        on,
        question,
        gate=None if "gate" in off else ModelGate(),
        guards=Guards.off() if "guards" in off else None,
        **sampling,
    )


def run_all(
    model: Model, off: Sequence[str], on: Sequence[str], seed: int, first: int, last: int, **sampling: Any
) -> dict[str, Any]:
    """Run the tasks `first` to `last` and sum up."""
    right: Counter[str] = Counter()
    n_of: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, Path(folder))
        with world.services, without(off):
            tools = builtin_tools(root=world.root, web=world.services.web_config())
            for number, task in list(enumerate(make_tasks(world)))[first : last + 1]:
                result = make_agent(model, tools, off, on, task.question, **sampling).run(task.question)
                verdict = judge(task, result)
                n_of[task.kind] += 1
                right[task.kind] += verdict.right
                faults["together"] += verdict.together and task.kind == "parallel"
                for name in ("repeated", "unanswered", "broken"):
                    faults[name] += getattr(verdict, name)
                names = ",".join(c["name"] for c in result.calls)
                mark = "right" if verdict.right else "WRONG"
                print(f"{number:2} {task.kind:8} {mark} {result.rounds} rounds [{names}] {verdict.reason}", flush=True)
    return {
        "benchmark": "helps",
        "off": list(off),
        "on_trial": list(on),
        "seed": seed,
        "tasks": [first, last],
        "right": {kind: f"{right[kind]} of {n_of[kind]}" for kind in KINDS if n_of[kind]},
        "parallel_in_one_round": faults["together"],
        "repeated_beyond_the_guard": faults["repeated"],
        "unanswered": faults["unanswered"],
        "broken_histories": faults["broken"],
        "wall_s": round(time.perf_counter() - started, 1),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--off", nargs="+", choices=("none", *HELPS), default=["none", *HELPS], help="a run for each")
    parser.add_argument("--on", nargs="+", choices=TRIALS, default=[], help="helps on trial, in every run")
    parser.add_argument("--tasks", type=int, nargs=2, default=[0, 39], metavar=("FIRST", "LAST"))
    parser.add_argument("--seed", type=int, help="of the values; drawn and printed where it is not given")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    from laploop.engine import EngineConfig
    from laploop.models import ChatModel

    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    first, last = options.tasks
    with ChatModel.load(options.model, config=EngineConfig(n_ctx=8192)) as model:
        for off in options.off:
            print(f"--- off: {off}, seed {seed}", flush=True)
            without_it = [] if off == "none" else [off]
            row = run_all(model, without_it, options.on, seed, first, last, temperature=options.temperature)
            print(json.dumps({**row, "model": options.model}, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
