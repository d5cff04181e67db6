"""The text protocol on real weights: every round of the two smallest models parses, and a chain of two tools completes.

smollm2-135m has no place for tools in its template, the coder models have one that is not used here.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from laploop.agent import Agent, check_history
from laploop.engine import EngineConfig
from laploop.models import ChatModel
from laploop.tools import tool

CONFIG = EngineConfig(n_ctx=2048, prefix_cache_bytes=0)


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """scripts/benchmarks holds programs, not a package: loaded by its path."""
    path = Path(__file__).parents[2] / "scripts" / "benchmarks" / "react_rounds.py"
    spec = importlib.util.spec_from_file_location("react_rounds", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_every_round_parses(name: str, weights: Callable[[str], Path], benchmark: ModuleType) -> None:
    with ChatModel.load(weights(name), config=CONFIG, dialect="react") as model:
        rounds = list(benchmark.run(model, n_prompts=4, max_tokens=80))
    assert len(rounds) == 8
    assert [(r.fault, r.raw) for r in rounds if r.fault] == []


def test_a_model_without_a_place_for_tools_says_so_once_and_calls(weights: Callable[[str], Path]) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]

    @tool
    def get_weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: its name
        """
        return city

    with ChatModel.load(weights("smollm2-135m"), config=CONFIG) as model:
        with pytest.warns(UserWarning, match="has no place for tools; they are offered as text") as told:
            reply = model.create(question, tools=[get_weather.to_openai()], tool_choice="required", max_tokens=60)
        assert len(told) == 1
        assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.create(question, tools=[get_weather.to_openai()], max_tokens=20)


def test_a_chain_of_two_tools_completes(weights: Callable[[str], Path]) -> None:
    """The second tool's argument is what the first one returned, its result is the answer; both are drawn anew."""
    number, place = str(random.randint(10_000, 99_999)), random.choice(["Lyon", "Turin", "Ghent", "Porto", "Graz"])

    @tool
    def find_order(customer: str) -> str:
        """Find the number of a customer's last order.

        Args:
            customer: name of the customer, e.g. Bob
        """
        return f"The last order of {customer} has the number {number}."

    @tool(needs={"order_number": "find_order"})
    def track_parcel(order_number: str) -> str:
        """Tell in which city the parcel of an order is.

        Args:
            order_number: five digits, e.g. 12345
        """
        return f"The parcel is in {place}." if order_number == number else f"There is no order {order_number}."

    with ChatModel.load(weights("qwen2.5-coder-1.5b"), config=CONFIG, dialect="react") as model:
        result = Agent(model, [find_order, track_parcel], temperature=0.0).run("In which city is Anna's parcel now?")
    path = [(call["name"], call["arguments"]) for call in result.calls]
    assert path[0][0] == "find_order", path
    assert f'{{"order_number": "{number}"}}' in [arguments for name, arguments in path if name == "track_parcel"], path
    assert place in result.answer, result.answer
    check_history(result.messages)
