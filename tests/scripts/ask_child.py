"""A process that runs the real path of `ask` over a scripted model (turns: JSON in argv[1]), loading left
out.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from laploop.agent import Agent
from laploop.models import ScriptedModel
from laploop.scripts import approval_prompt, ask, background, cli, streams, terminal
from laploop.tools import tool


@tool
def get_weather(city: str) -> str:
    """Weather.

    Args:
        city: where
    """
    return city + " 31"


@tool(timeout_s=60)
def hang() -> str:
    """Hang."""
    print("HANGS", file=sys.stderr, flush=True)
    threading.Event().wait(50)
    return ""


@tool(effects={"write"})
def save(text: str) -> str:
    """Save.

    Args:
        text: what
    """
    return f"{text} is saved"


def main(**_: Any) -> int:
    agent = Agent(
        ScriptedModel(json.loads(sys.argv[1])), [get_weather, hang, save], approvals=approval_prompt.make_approvals()
    )
    return ask.report(ask.answer(agent, "question", terminal.make_view()))


if __name__ == "__main__":
    streams.prepare_streams()
    cli.cli.main = main  # type: ignore[method-assign, assignment]
    background.leave(cli.run(["ask", "x"]))
