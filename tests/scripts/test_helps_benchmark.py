"""scripts/benchmarks/helps.py: its tasks can be answered, its judges tell right from wrong, its switches switch."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from laploop.models import ChatModel, ScriptedModel
from laploop.tools import builtin_tools

PATH = Path(__file__).parents[2] / "scripts" / "benchmarks" / "helps.py"


def _load() -> ModuleType:
    """scripts/benchmarks holds programs, not a package: loaded by its path."""
    spec = importlib.util.spec_from_file_location("helps", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["helps"] = module
    spec.loader.exec_module(module)
    return module


helps = _load()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = helps.World(5, tmp_path_factory.mktemp("files"))
    with made.services:
        yield made


def raw(*calls: tuple[str, dict[str, Any]]) -> str:
    bodies = (json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls)
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def with_arguments(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    free = {"calculator": {"expression": "1+1"}, "get_news": {"topic": "x"}, "list_files": {}}
    return name, arguments or free.get(name, {})


def run(world: Any, task: Any, turns: list[str]) -> Any:
    tools = builtin_tools(root=world.root, web=world.services.web_config())
    return helps.make_agent(ScriptedModel(turns), tools, ["gate"]).run(task.question)


def answer_to(task: Any) -> str:
    return "; ".join(str(v[0] if isinstance(v, tuple) else v) for v in task.values) or "Well."


def test_there_are_ten_of_each_kind_half_in_chinese(world: Any) -> None:
    tasks = helps.make_tasks(world)
    assert Counter(t.kind for t in tasks) == dict.fromkeys(helps.KINDS, 10)
    chinese = [t for t in tasks if any("\u4e00" <= c <= "\u9fff" for c in t.question)]
    assert Counter(t.kind for t in chinese) == dict.fromkeys(helps.KINDS, 5)
    assert len({t.question for t in tasks}) == 40


def test_who_does_all_that_a_task_asks_for_is_right(world: Any) -> None:
    for task in helps.make_tasks(world):
        calls = [with_arguments(*call) for call in task.calls]
        verdict = helps.judge(task, run(world, task, [*([raw(*calls)] if calls else []), answer_to(task)]))
        assert verdict.right, (task, verdict)
        assert verdict.together
        assert not (verdict.repeated or verdict.unanswered or verdict.broken)


def test_who_answers_without_the_calls_or_calls_without_need_is_wrong(world: Any) -> None:
    for task in helps.make_tasks(world):
        turns = [raw(("get_time", {})), answer_to(task)] if task.kind == "none" else [answer_to(task)]
        assert not helps.judge(task, run(world, task, turns)).right, task


def test_who_keeps_the_values_to_himself_is_wrong(world: Any) -> None:
    for task in helps.make_tasks(world):
        if task.calls and task.values:
            calls = [with_arguments(*call) for call in task.calls]
            assert not helps.judge(task, run(world, task, [raw(*calls), "I see."])).right


def test_calls_one_after_the_other_are_right_but_not_together(world: Any) -> None:
    task = next(t for t in helps.make_tasks(world) if t.kind == "parallel")
    verdict = helps.judge(task, run(world, task, [*(raw(call) for call in task.calls), answer_to(task)]))
    assert verdict.right and not verdict.together


def test_numbers_are_found_as_numbers() -> None:
    assert helps.states("It is 31 °C.", 31) and helps.states("共 12,345 元", 12345) and helps.states("零下3度", -3)
    assert not helps.states("131", 31) and not helps.states("31.5", 31) and not helps.states("3", 31)


def test_each_help_can_be_switched_off(world: Any, tiny_chat: ChatModel) -> None:
    """On random weights: what is switched off is gone, and the loop comes to an end all the same."""
    tools = builtin_tools(root=world.root, web=world.services.web_config())[1:3]  # one needs the other
    on = helps.make_agent(tiny_chat, tools, [])
    for off, differs in (("guards", "guards"), ("gate", "gate")):
        agent = helps.make_agent(tiny_chat, tools, [off])
        assert getattr(agent.settings, differs) != getattr(on.settings, differs)
    message = [{"role": "user", "content": "Hi"}]
    assert helps.make_agent(tiny_chat, tools, ["hints"]).prompt_for(message) != on.prompt_for(message)
    with helps.without(["grammar"]):
        result = helps.make_agent(tiny_chat, tools, ["grammar"], max_tokens=8, seed=1).run("Hi")
    assert result.rounds >= 1
