"""`laploop ask`: one question, one answer. It knows flags and views; how the answer comes about, the agent
knows.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from . import background
from .cli import EXIT_NO_ANSWER, complain
from .folder_config import with_folder
from .options import Options, UsageFault, collect, flag, shared_options

if TYPE_CHECKING:
    from laploop.agent import Agent, Approvals, RunResult, Session
    from laploop.models import Model
    from laploop.tools import Tool

    from .terminal import View

_NO_QUESTION = 'no question; write laploop "…", or laploop - to read it from standard input'


def has_question(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words; a UsageFault where they say nothing and nothing else is to be read."""
    if not "".join(words).strip() and (words or sys.stdin.isatty()):
        raise UsageFault(_NO_QUESTION)
    return words


@click.command(context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="QUESTION", callback=has_question)
@flag("--json", "as_json", is_flag=True, default=False, help="Print the whole result as one JSON object.")
@shared_options()
@click.pass_context
def ask(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Answer QUESTION; - reads it from standard input."""
    options = with_folder(collect(ctx, values))
    question = read_question(words)
    from .loading import chosen_tools, loaded_model
    from .terminal import ProgressView, make_view
    from .visible import json_text

    tools = chosen_tools(options)
    with loaded_model(options) as model:
        view = ProgressView() if as_json else make_view()
        result = answer(make_agent(model, tools, options), question, view)
    if as_json:
        click.echo(json_text(result.to_dict()))
    return report(result)


def read_question(words: Sequence[str]) -> str:
    """The question of the command line, or standard input's for `-` and for none where input is piped."""
    from_stdin = list(words) == ["-"] or (not words and not sys.stdin.isatty())
    question = sys.stdin.read() if from_stdin else " ".join(words)
    if not question.strip():
        raise UsageFault(_NO_QUESTION)
    return question.strip()


def make_agent(model: Model, tools: Sequence[Tool], options: Options, approvals: Approvals | None = None) -> Agent:
    """The agent that the flags describe; None for approvals that ask on the terminal, as the flags say."""
    from laploop.agent import Agent, Limits

    from .approval_prompt import make_approvals
    from .trace_command import trace_folder

    return Agent(
        model,
        tools,
        limits=Limits(**options.limits()),
        approvals=approvals or make_approvals(options.approve),
        traces=None if options.no_trace else trace_folder(),
        **options.agent_settings(),
    )


def answer(agent: Agent, question: str, view: View, session: Session | None = None) -> RunResult:
    """Ask, show the events as they come, and return the result.

    Ctrl-C cancels the run, gives it a moment to end, and is raised.
    """
    from laploop.agent import RunFinished

    result = None
    try:
        with contextlib.closing(background.iterate(lambda: agent.stream(question, session))) as events:
            for event in events:
                view.show(event)
                if isinstance(event, RunFinished):
                    result = event.result
    except KeyboardInterrupt:
        agent.cancel()
        view.close()
        background.wait(0.5)
        raise
    finally:
        view.close()
    assert result is not None, "a run that does not raise ends with RunFinished"
    return result


def report(result: RunResult) -> int:
    """The exit code; a run without an answer says why on stderr."""
    from .terminal import why_no_answer

    if result.answered:
        return 0
    complain(why_no_answer(result))
    return EXIT_NO_ANSWER
