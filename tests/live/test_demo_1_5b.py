"""The demo's five questions on qwen2.5-coder-1.5b, greedy, with sample data drawn anew: the way through the tools, and
answers that state what the tools returned, by the judges of scripts/benchmarks/demo_runs.py."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from laploop.agent import Agent, RunResult, check_history
from laploop.models import ChatModel
from laploop.scripts.demo import QUESTIONS, tool_path
from laploop.scripts.sample_services import SampleServices
from laploop.tools import builtin_tools

MODEL = "qwen2.5-coder-1.5b"
N_CTX = 8192


@dataclass(frozen=True)
class Run:
    """One question, asked once."""

    question: str
    result: RunResult
    faults: list[str]

    def __str__(self) -> str:
        verdict = "; ".join(self.faults) or "right"
        return f"{self.question}\n    {tool_path(self.result)}: {verdict}\n    {self.result.answer}"


def benchmark() -> ModuleType:
    """scripts/benchmarks holds programs, not a package: loaded by its path."""
    path = Path(__file__).parents[2] / "scripts" / "benchmarks" / "demo_runs.py"
    spec = importlib.util.spec_from_file_location("demo_runs", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs(model: ChatModel) -> list[Run]:
    """The five, each with a fresh history and sample data of its own."""
    made = []
    for question, judge in zip(QUESTIONS, benchmark().JUDGES, strict=True):
        with SampleServices() as data:
            result = Agent(model, builtin_tools(web=data.web_config()), temperature=0.0).run(question)
            made.append(Run(question, result, judge(result, data)))
    return made


def names(path: list[list[str]]) -> set[str]:
    return {name for calls in path for name in calls}


PATHS: list[Callable[[list[list[str]]], bool]] = [
    lambda path: path[:1] == [["get_weather", "get_weather"]],
    lambda path: path[:2] == [["get_news"], ["read_url"]],
    lambda path: names(path) >= {"get_weather", "calculator"},
    lambda path: "get_time" in names(path),
    lambda path: names(path) <= {"calculator"},
]


@pytest.mark.parametrize("number", range(1, len(QUESTIONS) + 1))
def test_the_way_through_the_tools(runs: list[Run], number: int) -> None:
    run = runs[number - 1]
    assert PATHS[number - 1](tool_path(run.result)), str(run)


@pytest.mark.parametrize("number", range(1, len(QUESTIONS) + 1))
def test_the_history_is_valid_and_ends_with_the_answer(runs: list[Run], number: int) -> None:
    result = runs[number - 1].result
    check_history(result.messages)
    assert result.answered, str(runs[number - 1])
    assert result.messages[-1]["role"] == "assistant"
    assert result.messages[-1]["content"].strip() == result.answer.strip()


def test_at_least_four_of_five_answers_state_what_the_tools_returned(runs: list[Run]) -> None:
    right = [run for run in runs if not run.faults]
    assert len(right) >= 4, "\n" + "\n".join(map(str, runs))
