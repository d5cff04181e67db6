"""`laploop demo`: the sample questions over sample services on this machine. What it shows is marked as
sample data.

The values behind the weather and the news are drawn anew for each run, so that no answer can be known
beforehand.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from .ask import answer, make_agent, report
from .cli import EXIT_NO_ANSWER
from .options import Whole, collect, flag, shared_options

if TYPE_CHECKING:
    from laploop.agent import Agent, RunResult

    from .terminal import View

QUESTIONS = (
    "北京和上海今天哪里更热？",
    "帮我看看今天 AI 新闻里第一条的正文。",
    "上海今天多少度？顺便帮我算 23 乘以 17 的结果。",
    "现在几点了？",
    "1+1等于几？",
)
QUESTIONS_EN = (
    "Which is hotter today, Beijing or Shanghai?",
    "Show me the text of the first item of today's AI news.",
    "How many degrees is it in Shanghai today? And what is 23 times 17?",
    "What time is it now?",
    "What is 1+1?",
)
LANGUAGES = {"zh": QUESTIONS, "en": QUESTIONS_EN}
MARK = "sample data, drawn for this run"


@click.command(context_settings={"max_content_width": 100})
@flag(
    "--question",
    "numbers",
    type=Whole(1, len(QUESTIONS)),
    multiple=True,
    help="Ask only this one (1–5; may be repeated).",
)
@flag(
    "--language",
    type=click.Choice(list(LANGUAGES)),
    help="Of the questions and the sample news. [Chinese where the locale is, else English]",
)
@flag("--data-seed", type=Whole(min=0), help="Draw the same sample data again.")
@flag("--json", "as_json", is_flag=True, default=False, help="Print the runs as one JSON list.")
@shared_options()
@click.pass_context
def demo(
    ctx: click.Context,
    /,
    numbers: tuple[int, ...],
    language: str | None,
    data_seed: int | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Ask five sample questions, with sample weather, news and pages served on this machine."""
    options = collect(ctx, values)
    from .loading import chosen_tools, loaded_model
    from .sample_services import SampleServices
    from .terminal import ProgressView, make_view
    from .visible import json_text

    language = language or language_of_locale(os.environ)
    questions = dict(enumerate(LANGUAGES[language], 1))
    with SampleServices(seed=data_seed, language=language) as services, loaded_model(options) as model:
        agent = make_agent(model, chosen_tools(options, services.web_config()), options)
        asked = {n: questions[n] for n in numbers or questions}
        results = ask_all(agent, asked, ProgressView if as_json else make_view)
    if as_json:
        click.echo(json_text([as_record(n, asked[n], result) for n, result in results.items()]))
    return 0 if all(result.answered for result in results.values()) else EXIT_NO_ANSWER


def language_of_locale(environment: Mapping[str, str]) -> str:
    """ "zh" where messages are to be in Chinese (POSIX's variables, else the system's setting), else "en"."""
    named = next(filter(None, map(environment.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), None)
    return "zh" if (named or locale.getlocale()[0] or "").lower().startswith(("zh", "chinese")) else "en"


def ask_all(agent: Agent, questions: Mapping[int, str], make: Callable[[], View]) -> dict[int, RunResult]:
    """Ask the questions, each with a fresh history; the results have their numbers."""
    results = {}
    for number, question in questions.items():
        click.echo(f"\n{number}. {question}   [{MARK}]", err=True)
        results[number] = answer(agent, question, make())
        report(results[number])
    return results


def as_record(number: int, question: str, result: RunResult) -> dict[str, Any]:
    """A run for --json: the question, the tools of each round, and the result."""
    return {
        "number": number,
        "question": question,
        "data": MARK,
        "tool_path": tool_path(result),
        **result.to_dict(),
    }


def tool_path(result: RunResult) -> list[list[str]]:
    """The names that were called, a list per tool round, in the order of the calls."""
    rounds = (m.get("tool_calls") or [] for m in result.messages if m["role"] == "assistant")
    return [[call["function"]["name"] for call in calls] for calls in rounds if calls]
