"""What an Agent and its runs are given: mix-ups are named, not met as an error of Python's from somewhere inside."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.agent import Agent, ConfigError, Session
from laploop.models import ScriptedModel
from laploop.tools import ToolError, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers. Returns the sum."""
    return a + b


def plain(a: int) -> int:
    """Give it back."""
    return a


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("qwen3-1.7b", r'such as ChatModel\.load\("qwen3-1\.7b"\)'),
        (None, "model is None"),
        (ScriptedModel, "expected a loaded model"),
        (object(), r"OpenAIModel\(client, name\)"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, words: str) -> None:
    """Regression: a name instead of a model raised AttributeError at the first question."""
    with pytest.raises(ConfigError, match=words):
        Agent(model)


def test_what_answers_as_a_model_does_is_one() -> None:
    class Wrapped:
        """Passes everything on."""

        def __init__(self, model: ScriptedModel) -> None:
            self.name, self.stream = model.name, model.stream

    wrapped: Any = Wrapped(ScriptedModel(["yes"]))
    assert Agent(wrapped).run("?").answer == "yes"


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (add, r"one tool; expected a list of them: tools=\[add\]"),
        (plain, r"tools=\[plain\]"),
        ("add", "expected a list"),
        ({"add": add}, "expected a list"),
        (None, r"\[\] for none"),
        (3, "expected a list"),
    ],
)
def test_what_is_no_list_of_tools_is_refused(tools: Any, words: str) -> None:
    """Regression: `Agent(model, add)` raised "'Tool' object is not iterable"."""
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedModel([]), tools)


def test_what_is_no_tool_in_the_list_is_refused() -> None:
    with pytest.raises(ToolError, match="not from str"):
        Agent(ScriptedModel([]), ["add"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"approvals": lambda request: True}, r"expected Approvals\(ask=…\) around that function"),
        ({"approvals": {"write": "auto"}}, r"expected Approvals\(…\), or None"),
        ({"guards": False}, r"guards is False; expected Guards"),
        ({"limits": 3}, "expected Limits"),
        ({"memory": 8000}, "expected Memory"),
    ],
)
def test_a_setting_of_another_kind_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedModel([]), **settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0}, "no option 'temperature'; it has approvals, visible"),
        ({"approvals": lambda request: True}, "around that function"),
        ({"session": []}, "expected Session"),
    ],
)
def test_an_option_of_a_run_that_does_not_exist_is_refused(options: dict[str, Any], words: str) -> None:
    """Regression: an unknown option of `run` was dropped without a word."""
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedModel(["x"])).run("?", **options)


def test_reprs_are_one_short_line_that_says_what_it_is() -> None:
    model = ScriptedModel(["word " * 100])
    agent = Agent(model, [add])
    assert repr(add) == "<Tool add(a, b), effects: read>"
    assert repr(model) == "<ScriptedModel scripted, 1 of 1 turns left>"
    assert repr(agent) == f"<Agent over {model!r}, tools: add>"
    assert repr(Agent(model)).endswith("tools: none>")
    result = agent.run("?", Session())
    assert repr(result).startswith("<RunResult 'word word") and len(repr(result)) < 160
    assert repr(result).endswith("(answer; rounds: 1, calls: 0)>")


def test_a_tool_may_have_a_name_in_any_script() -> None:
    """Regression: only ASCII letters were taken, although models and grammars write all."""

    @tool
    def 查天气(城市: str) -> str:
        """查询一个城市的天气。返回一句话。"""
        return f"{城市}：31 度"

    call = '<tool_call>\n{"name": "查天气", "arguments": {"城市": "北京"}}\n</tool_call>'
    with ScriptedModel([call, "31 度。"]) as model:
        result = Agent(model, [查天气]).run("北京多少度？")
    assert (result.answer, result.calls[0]["content"], result.calls[0]["is_error"]) == ("31 度。", "北京：31 度", False)
    react = 'Action: 查天气\nAction Input: {"城市": "北京"}'
    with ScriptedModel([react, "Final Answer: 31 度。"], dialect="react") as model:
        result = Agent(model, [查天气]).run("北京多少度？")
    assert (result.answer, result.calls[0]["content"]) == ("31 度。", "北京：31 度")
