"""What each help is worth to a small model: forty tasks, with each help switched off in turn.

    python scripts/benchmarks/helps.py [-m qwen2.5-coder-1.5b] [--off none grammar guards hints gate wrapper]
                                       [--tasks 0 44] [--write docs/helps.md]

The first article's five questions, and ten tasks of each kind (one call; several independent calls; a chain; none
needed), half in Chinese and half in English, over the built-in tools (help_tasks.py). The values behind them are drawn
anew for each run of this program (`--seed` draws the same again), so that no answer can be known beforehand. The helps:

    grammar  calls are valid by construction
    guards   same calls, same results, same errors (`Guards`)
    hints    what comes from what: a sentence in the system prompt
    gate     whether to call is decided by all that can begin a call, and the tool's name (`Dialect.call_share`)
    wrapper  calls are written in the wrapper in which this family goes on where there is more to call
             (`Wrapper.is_written`, `Dialect.more_share`)

Prints a row a task and one JSON line a configuration; `--write` puts the table between the marks of a file.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from help_tasks import KINDS, Task, World, make_tasks, make_tuning_tasks
from laploop.agent import Agent, Guards, HistoryError, RunResult, check_history
from laploop.agent.guards import call_key
from laploop.models import ChatModel, Model
from laploop.tools import Tool, builtin_tools

HELPS = ("grammar", "guards", "hints", "gate", "wrapper")
BEGIN, END = "<!-- made by scripts/benchmarks/helps.py -->", "<!-- end -->"
N_SAME = 3  # in a row: the guard refuses the third


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
    done = [(c["round"], c["name"], c["arguments"]) for c in result.calls if c["executed"]]
    missing = _missing(task, done)
    unsaid = [str(value) for value in task.values if not states(result.answer, value)]
    reasons = [f"not called: {m}" for m in missing] + [f"not said: {u}" for u in unsaid]
    if task.kind == "none" and done:
        reasons.append(f"called {', '.join(name for _, name, _ in done)}")
    first = [call for call in done if call[0] == done[0][0]]
    together = not _missing(task, first)
    keys = [call_key(name, arguments) for _, name, arguments in done]
    repeated = any(len(set(keys[n : n + N_SAME])) == 1 for n in range(len(keys) - N_SAME + 1))
    return Verdict(
        not reasons, together, repeated, not (result.answered and result.answer.strip()), _is_broken(result),
        "; ".join(reasons),
    )  # fmt: skip


def _missing(task: Task, done: Sequence[tuple[int, str, str]]) -> list[str]:
    """The calls that the task takes and nobody made; one call counts for one."""
    left, missing = list(done), []
    for name, wanted in task.calls:
        fitting = next((call for call in left if _fits(call, name, wanted)), None)
        if fitting is None:
            missing.append(f"{name} {wanted}")
        else:
            left.remove(fitting)
    return missing


def _fits(call: tuple[int, str, str], name: str, wanted: dict[str, Any]) -> bool:
    try:
        arguments = json.loads(call[2] or "{}")
    except ValueError:
        return False
    return call[1] == name and all(_same(arguments.get(key), value) for key, value in wanted.items())


def _same(given: Any, wanted: Any) -> bool:
    return str(given).strip().removeprefix("./").removesuffix("市").casefold() == str(wanted).casefold()


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
def without(off: str, model: Model) -> Iterator[None]:
    """Inside, the model does without one of its own helps: grammar, gate or wrapper."""
    with contextlib.ExitStack() as stack:
        if off == "grammar":
            stack.enter_context(mock.patch("laploop.models.chat.reply_grammar", lambda *_: None))
        if off in ("gate", "wrapper") and isinstance(model, ChatModel):
            family = model.dialect
            if off == "gate":
                changed = dataclasses.replace(family, call_share=None)
            else:
                wrappers = tuple(dataclasses.replace(w, is_written=True) for w in family.wrappers)
                changed = dataclasses.replace(family, wrappers=wrappers, more_share=None)
            stack.enter_context(mock.patch.object(model, "dialect", changed))
        yield


def make_agent(model: Model, tools: Sequence[Tool], off: str = "none", **sampling: Any) -> Agent:
    """The agent that users get, but for the help that is off: guards or hints (the others are `without`'s)."""
    if off == "hints":
        tools = [dataclasses.replace(tool, needs={}) for tool in tools]
    return Agent(model, tools, guards=Guards.off() if off == "guards" else None, **sampling)


def run_all(
    model: Model,
    off: str,
    seed: int,
    first_last: Sequence[int],
    make: Callable[[World], list[Task]] = make_tasks,
    show: bool = False,
    **sampling: Any,
) -> dict[str, Any]:
    """Run the tasks from the first number to the last, and sum up; `show` prints calls and answers too."""
    right: Counter[str] = Counter()
    n_of: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, Path(folder))
        with world.services, without(off, model):
            tools = builtin_tools(root=world.root, web=world.services.web_config())
            first, last = first_last
            for number, task in list(enumerate(make(world)))[first : last + 1]:
                result = make_agent(model, tools, off, **sampling).run(task.question)
                verdict = judge(task, result)
                n_of[task.kind] += 1
                right[task.kind] += verdict.right
                faults["together"] += verdict.together and task.kind == "parallel"
                faults["rounds"] += result.rounds
                for name in ("repeated", "unanswered", "broken"):
                    faults[name] += getattr(verdict, name)
                names = ",".join(c["name"] for c in result.calls)
                mark = "right" if verdict.right else "WRONG"
                print(f"{number:2} {task.kind:8} {mark} {result.rounds} rounds [{names}] {verdict.reason}", flush=True)
                if show:
                    said = result.answer.replace("\n", "\n    ")
                    print("   ", *(f"{c['name']}({c['arguments']})" for c in result.calls), f"\n    {said}", flush=True)
    return {
        "benchmark": "helps",
        "off": off,
        "seed": seed,
        "tasks": list(first_last),
        "right": {kind: [right[kind], n_of[kind]] for kind in KINDS if n_of[kind]},
        "parallel_in_one_round": faults["together"],
        "rounds": faults["rounds"],
        "repeated_beyond_the_guard": faults["repeated"],
        "unanswered": faults["unanswered"],
        "broken_histories": faults["broken"],
        "wall_s": round(time.perf_counter() - started, 1),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows in Markdown: right by kind, and what must not happen."""
    kinds = [kind for kind in KINDS if any(kind in row["right"] for row in rows)]
    lines = [
        f"| off | {' | '.join(kinds)} | together | rounds | repeats | unanswered | broken |",
        "| --- " * (len(kinds) + 6) + "|",
    ]
    for row in rows:
        right = [" of ".join(map(str, row["right"].get(kind, (0, 0)))) for kind in kinds]
        faults = [row[key] for key in ("parallel_in_one_round", "rounds", "repeated_beyond_the_guard", "unanswered")]
        lines.append(f"| {' | '.join(map(str, [row['off'], *right, *faults, row['broken_histories']]))} |")
    return "\n".join(lines)


def write_between(path: Path, text: str) -> None:
    """Replace what stands between the marks of a file."""
    before, rest = path.read_text("utf-8").split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--off", nargs="+", choices=("none", *HELPS), default=["none", *HELPS], help="a run for each")
    parser.add_argument("--tasks", type=int, nargs=2, default=[0, 44], metavar=("FIRST", "LAST"))
    parser.add_argument("--tuning", action="store_true", help="forty other tasks, to try things out on")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the marks of this file")
    parser.add_argument("--answers", action="store_true", help="print calls and answers too")
    parser.add_argument("--seed", type=int, help="of the values; drawn and printed where it is not given")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, help="of a reply")
    options = parser.parse_args()
    from laploop.engine import EngineConfig

    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    make = make_tuning_tasks if options.tuning else make_tasks
    rows = []
    with ChatModel.load(options.model, config=EngineConfig(n_ctx=8192)) as model:
        for off in options.off:
            print(f"--- off: {off}, seed {seed}", flush=True)
            sampling = {"temperature": options.temperature, "max_tokens": options.max_tokens}
            row = run_all(model, off, seed, options.tasks, make, options.answers, **sampling)
            print(json.dumps({**row, "model": options.model}, ensure_ascii=False), flush=True)
            rows.append(row)
    print(table(rows))
    if options.write:
        write_between(options.write, table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
