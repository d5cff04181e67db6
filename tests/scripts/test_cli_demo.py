"""`laploop demo` over its real sample services and the real tools; only the model is scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from laploop.models import ScriptedModel
from laploop.scripts.ask import make_agent
from laploop.scripts.demo import LANGUAGES, MARK, QUESTIONS, as_record, ask_all, language_of_locale, tool_path
from laploop.scripts.options import Options
from laploop.scripts.sample_services import SampleServices
from laploop.scripts.terminal import PipeView, ProgressView
from laploop.tools import builtin_tools
from rich.console import Console


def calls(*pairs: tuple[str, dict[str, Any]]) -> str:
    return "\n".join(
        "<tool_call>\n" + json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n</tool_call>"
        for n, a in pairs
    )


def test_the_five_questions_take_their_tool_paths_over_real_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SampleServices(seed=1) as services:
        article = services.news("AI")[0]
        turns = [
            calls(("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"})),
            "A1",
            calls(("get_news", {"topic": "AI"})),
            calls(("read_url", {"url": article.link})),
            "A2",
            calls(("get_weather", {"city": "上海"}), ("calculator", {"expression": "23*17"})),
            "A3",
            calls(("get_time", {})),
            "A4",
            "A5",
        ]
        with ScriptedModel(turns) as model:
            agent = make_agent(model, builtin_tools(root=tmp_path, web=services.web_config()), Options())
            questions = dict(enumerate(QUESTIONS, 1))
            runs = list(ask_all(agent, questions, lambda: PipeView(Console(stderr=True))).items())
        weather = [services.weather(city) for city in ("北京", "上海")]
    assert [tool_path(result) for _, result in runs] == [
        [["get_weather", "get_weather"]],
        [["get_news"], ["read_url"]],
        [["get_weather", "calculator"]],
        [["get_time"]],
        [],
    ]
    results = [{c["name"]: c["content"] for c in result.calls} for _, result in runs]
    first = [m["content"] for m in runs[0][1].messages if m["role"] == "tool"]
    for content, drawn in zip(first, weather, strict=True):
        assert str(drawn.temperature_c) in content
    assert article.fact in results[1]["read_url"]
    assert "391" in results[2]["calculator"]
    assert not [c for _, result in runs for c in result.calls if c["is_error"]]
    assert [len(result.messages) for _, result in runs] == [6, 7, 6, 5, 3], "each question has a fresh history"
    captured = capsys.readouterr()
    assert captured.out.split() == ["A1", "A2", "A3", "A4", "A5"]
    for number, question in enumerate(QUESTIONS, 1):
        assert f"{number}. {question}   [{MARK}]" in captured.err


def test_a_record_is_json_with_the_path_and_the_mark() -> None:
    agent = make_agent(ScriptedModel(["2"]), [], Options())
    [(number, result)] = ask_all(agent, {5: QUESTIONS[4]}, ProgressView).items()
    record = json.loads(json.dumps(as_record(number, QUESTIONS[4], result)))
    assert (record["number"], record["question"], record["tool_path"]) == (5, "1+1等于几？", [])
    assert (record["answer"], record["stop_reason"]) == ("2", "answer")
    assert record["data"] == MARK


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": ""}, "en"),
    ],
)
def test_the_questions_are_in_the_locales_language(environment: dict[str, str], language: str) -> None:
    """They were all Chinese, whoever asked."""
    assert language_of_locale(environment) == language
    assert len(LANGUAGES[language]) == 5


def test_english_questions_get_english_news() -> None:
    with SampleServices(seed=3, language="en") as services, SampleServices(seed=3) as both:
        assert all("".join(a.paragraphs).isascii() for a in services.news("AI"))
        assert sum(a.title.isascii() for a in both.news("AI")) == 2
