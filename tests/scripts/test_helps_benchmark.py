"""scripts/benchmarks/helps.py: its tasks can be answered, its judges tell right from wrong, its switches switch."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from laploop.agent import Guards
from laploop.models import ChatModel, ScriptedModel
from laploop.models.dialect import get_dialect
from laploop.tools import builtin_tools

FOLDER = Path(__file__).parents[2] / "scripts" / "benchmarks"


def _program(name: str) -> ModuleType:
    """scripts/benchmarks holds programs, not a package."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


helps = _program("helps")


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
    return helps.make_agent(ScriptedModel(turns), tools).run(task.question)


def answer_to(task: Any) -> str:
    return "; ".join(str(v[0] if isinstance(v, tuple) else v) for v in task.values) or "Well."


@pytest.fixture(params=["make_tasks", "make_tuning_tasks"])
def tasks(request: pytest.FixtureRequest, world: Any) -> Any:
    return getattr(helps, request.param)(world)


def test_there_are_ten_of_each_kind_half_in_chinese(tasks: Any) -> None:
    own = [t for t in tasks if t.kind != "article"]
    assert Counter(t.kind for t in own) == dict.fromkeys(helps.KINDS[1:], 10)
    chinese = [t for t in own if any("\u4e00" <= c <= "\u9fff" for c in t.question)]
    assert Counter(t.kind for t in chinese) == dict.fromkeys(helps.KINDS[1:], 5)
    assert len({t.question for t in tasks}) == len(tasks)


def test_what_is_tried_out_is_not_what_is_measured(world: Any) -> None:
    measured, tried = helps.make_tasks(world), helps.make_tuning_tasks(world)
    assert not {t.question for t in measured} & {t.question for t in tried}


def test_who_does_all_that_a_task_asks_for_is_right(world: Any, tasks: Any) -> None:
    for task in tasks:
        calls = [with_arguments(*call) for call in task.calls]
        in_turn = [raw(call) for call in calls]
        turns = in_turn if task.kind in ("chain", "article") else [raw(*calls)] if calls else []
        verdict = helps.judge(task, run(world, task, [*turns, answer_to(task)]))
        assert verdict.right, (task, verdict)
        assert verdict.together or turns is in_turn
        assert not (verdict.repeated or verdict.unanswered or verdict.broken)


def test_who_answers_without_the_calls_or_calls_without_need_is_wrong(world: Any, tasks: Any) -> None:
    for task in tasks:
        if task.kind == "article" and not task.calls:
            continue  # with the calculator or without
        turns = [raw(("get_time", {})), answer_to(task)] if task.kind == "none" else [answer_to(task)]
        assert not helps.judge(task, run(world, task, turns)).right, task


def test_who_keeps_the_values_to_himself_is_wrong(world: Any, tasks: Any) -> None:
    for task in tasks:
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
    on = helps.make_agent(tiny_chat, tools)
    assert helps.make_agent(tiny_chat, tools, "guards").settings.guards == Guards.off() != on.settings.guards
    message = [{"role": "user", "content": "Hi"}]
    assert helps.make_agent(tiny_chat, tools, "hints").prompt_for(message) != on.prompt_for(message)
    for off in ("none", *helps.HELPS):
        with helps.without(off, tiny_chat):
            assert helps.make_agent(tiny_chat, tools, off, max_tokens=8, seed=1).run("Hi").rounds >= 1


def test_the_models_own_helps_are_its_familys(tiny_chat: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    family = get_dialect("qwen2.5-coder")
    monkeypatch.setattr(tiny_chat, "dialect", family)
    with helps.without("gate", tiny_chat):
        assert tiny_chat.dialect.call_share is None and tiny_chat.dialect.wrappers == family.wrappers
    with helps.without("wrapper", tiny_chat):
        assert all(w.is_written for w in tiny_chat.dialect.wrappers)
        assert tiny_chat.dialect.call_share == family.call_share
    assert tiny_chat.dialect is family


def test_the_table_is_put_between_the_marks(tmp_path: Path) -> None:
    row = {"off": "none", "right": {"single": [7, 10], "none": [6, 10]}, "parallel_in_one_round": 5, "rounds": 80,
           "repeated_beyond_the_guard": 0, "unanswered": 0, "broken_histories": 0}  # fmt: skip
    page = tmp_path / "page.md"
    page.write_text(f"before\n{helps.BEGIN}old{helps.END}\nafter\n", "utf-8")
    for _ in range(2):
        helps.write_between(page, helps.table([row]))
    assert page.read_text("utf-8").splitlines() == [
        "before", helps.BEGIN, "",
        "| off | single | none | together | rounds | repeats | unanswered | broken |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| none | 7 of 10 | 6 of 10 | 5 | 80 | 0 | 0 | 0 |",
        "", helps.END, "after",
    ]  # fmt: skip
