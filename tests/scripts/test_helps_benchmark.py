"""scripts/benchmarks/helps.py: its tasks can be answered, its judges tell right from wrong, its switches switch."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from laploop.models import ChatModel, ScriptedModel
from laploop.models.dialect import get_dialect
from laploop.tools import builtin_tools

FOLDER = Path(__file__).parents[2] / "scripts" / "benchmarks"


def _program(name: str) -> ModuleType:
    """scripts/benchmarks holds programs, not a package."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


helps, trials = _program("helps"), _program("trials")


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


def test_helps_on_trial_change_what_they_are_about_and_nothing_else(world: Any, tiny_chat: ChatModel) -> None:
    """On random weights. Without them the agent is the one that users get."""
    tools = builtin_tools(root=world.root, web=world.services.web_config())[:2]
    plain = helps.make_agent(tiny_chat, tools, [], [], "Hi")
    for question in ("Hi", "你好"):
        message = [{"role": "user", "content": question}]
        rules = plain.prompt_for(message).splitlines()
        more = helps.make_agent(tiny_chat, tools, [], ["line"], question).prompt_for(message).splitlines()
        assert len(more) == len(rules) + 1
        assert [line.partition(". ")[2] for line in more if not any(x in line for x in trials.LINES.values())] == [
            line.partition(". ")[2] for line in rules
        ]
        assert [line[0] for line in more[1:]] == [str(n + 1) for n in range(len(rules))], "numbered one after the other"
    names = helps.make_agent(tiny_chat, tools, [], ["no_call"], "Hi").tools.names()
    assert names == [*plain.tools.names(), trials.NO_CALL]
    assert plain.model is tiny_chat and isinstance(plain.settings.gate, helps.ModelGate)
    for on in trials.TRIALS:
        agent = helps.make_agent(tiny_chat, tools[:1], ["gate"], [on], "Hi", max_tokens=8, seed=1)
        assert agent.run("Hi").rounds >= 1, on


def test_the_choice_of_no_tool_is_no_call(world: Any) -> None:
    task = next(t for t in helps.make_tasks(world) if t.kind == "none")
    model = ScriptedModel([raw((trials.NO_CALL, {})), answer_to(task)])
    result = helps.make_agent(model, [], ["gate"], ["no_call"], task.question).run(task.question)
    assert helps.judge(task, result).right


def test_the_start_is_judged_by_all_that_can_begin_a_call(tiny_chat: ChatModel) -> None:
    """Two ways to begin a call, each less probable than the text, are more probable together."""
    vocabulary, dialect = tiny_chat.engine.vocabulary, get_dialect("qwen2.5-coder")
    special = vocabulary.special["<tool_call>"]
    brace, letter = (vocabulary.tokenize(text)[0] for text in ("{", "z"))
    top = [(letter, math.log(0.4)), (special, math.log(0.3)), (brace, math.log(0.3))]
    assert trials.call_probability(top, vocabulary, dialect) == pytest.approx(0.6)
    assert trials.call_probability(top[:1], vocabulary, dialect) == 0


def test_more_calls_holds_for_the_first_reply_only(tiny_chat: ChatModel) -> None:
    model = trials.MoreCalls(tiny_chat)
    assert tiny_chat.engine.vocabulary.eog <= set(model.logit_bias)
    sent: list[dict[str, Any]] = []

    class Noting:
        def stream(self, messages: Any, **options: Any) -> Any:
            sent.append(options)
            return iter(())

    model.inner = Noting()
    user, tools = {"role": "user", "content": "Hi"}, [{"type": "function", "function": {"name": "f"}}]
    for messages, options in (
        ([user], {"tools": tools}),
        ([user], {"tools": tools, "tool_choice": "none"}),
        ([user], {}),
        ([user, {"role": "tool", "content": "x"}], {"tools": tools}),
        ([user], {"tools": tools, "response_format": {"type": "json_object"}}),
    ):
        model.stream(messages, **options)
    assert ["logit_bias" in options for options in sent] == [True, False, False, False, False]
