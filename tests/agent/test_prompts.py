"""The sentences said to the model: language, rules, dependencies between tools. Snapshots show every changed
byte.
"""

from __future__ import annotations

import dataclasses
import re
import string

import pytest
from laploop.agent import Agent
from laploop.agent.prompts import EN, ZH, system_prompt
from laploop.models import ScriptedModel
from laploop.models.language import language_of
from laploop.tools import tool


@tool
def get_news(topic: str) -> str:
    """Find news.

    Args:
        topic: what about
    """
    return topic


@tool(needs={"url": "get_news"})
def read_url(url: str) -> str:
    """Read a page.

    Args:
        url: its address
    """
    return url


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("北京和上海今天哪里更热？", "zh"),
        ("帮我看看今天 AI 新闻里第一条的正文。", "zh"),
        ("1+1等于几？", "zh"),
        ("Which city is hotter today, 北京 or Shanghai?", "en"),
        ("1+1?", "en"),
        ("", "en"),
        ("東京の天気を教えてください", "en"),
        ("서울 날씨 漢字", "en"),
    ],
)
def test_language_of(text: str, language: str) -> None:
    assert language_of(text) == language


def test_the_english_prompt() -> None:
    assert system_prompt([get_news, read_url], "en") == (
        "You are an assistant that can call tools.\n"
        "1. Current facts, files and calculations: always call the tool that fits, never make a value up. "
        "Independent calls go together in one reply.\n"
        "2. The url of read_url comes from the result of get_news: first get_news, then read_url.\n"
        "3. If no tool is needed, answer directly.\n"
        "4. After the results, answer the question in the user's language, with the values from the results."
    )


def test_the_chinese_prompt() -> None:
    assert system_prompt([get_news, read_url], "zh") == (
        "你是可以调用工具的助手。\n"
        "1. 遇到实时信息、文件内容或计算，先调用合适的工具，绝不自己编数值；"
        "互不依赖的调用放在同一次回复里一起发出。\n"
        "2. read_url 的 url 来自 get_news 的结果：先 get_news，再 read_url。\n"
        "3. 不需要工具的问题，直接回答。\n"
        "4. 已经有结果的，不要再调用工具，直接用结果回答，数值照抄结果：“甲的…是…，乙的…是…，因此更…的是…”。"
    )


@pytest.mark.parametrize("tools", [[get_news], [read_url]])
def test_without_both_ends_of_a_dependency_its_rule_is_left_out(tools: list[object]) -> None:
    text = system_prompt(tools, "en")  # type: ignore[arg-type]
    assert text is not None
    assert re.findall(r"^\d", text, re.M) == ["1", "2", "3"]
    assert "read_url" not in text


def test_without_tools_there_is_no_prompt() -> None:
    assert system_prompt([], "en") is None


def test_both_languages_fill_the_same_fields() -> None:
    for field in dataclasses.fields(EN):
        names = [
            {name for _, name, _, _ in string.Formatter().parse(getattr(texts, field.name)) if name}
            for texts in (EN, ZH)
        ]
        assert names[0] == names[1], field.name


@pytest.mark.parametrize(("given", "expected"), [("Speak like a pirate.", "Speak like a pirate."), ("", None)])
def test_a_given_prompt_replaces_the_rules_and_an_empty_one_is_none(given: str, expected: str | None) -> None:
    model = ScriptedModel(["ok"])
    result = Agent(model, [get_news], system_prompt=given).run("hi")
    systems = [m["content"] for m in result.messages if m["role"] == "system"]
    assert systems == ([expected] if expected else [])


def test_the_language_follows_the_question() -> None:
    for question, start in (("现在几点？", "你是"), ("What time is it?", "You are")):
        model = ScriptedModel(["ok"])
        Agent(model, [get_news]).run(question)
        assert model.requests[0].messages[0]["content"].startswith(start)
