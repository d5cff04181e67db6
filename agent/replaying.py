"""A recorded run once more, without its model: does the loop still do what it did?

It knows records, not a screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .agent import Agent
from .choice import permitted_names
from .errors import LimitError, TraceError
from .events import RunFinished
from .given import Tools
from .guards import Guards
from .limits import Limits
from .memory import Memory
from .recorded import Record, RecordedModel, Script, comparable, recorded_approvals, recorded_tools
from .result import RunResult
from .trace import Trace
from .visibility import RoundView


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event that is not as it was.

    Attributes:
        index: its place among the trace's events (counts of tokens are none).
        recorded: what was recorded there; None where nothing more was.
        replayed: what happened now; None where nothing more did.
    """

    index: int
    recorded: Record | None
    replayed: Record | None

    @property
    def fields(self) -> list[str]:
        """The fields in which the two differ."""
        sides = [comparable(side or {}) for side in (self.recorded, self.replayed)]
        return sorted(k for k in sides[0].keys() | sides[1].keys() if sides[0].get(k) != sides[1].get(k))


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay came to. `messages` are those of the replay, as far as it went."""

    trace: Trace
    messages: Sequence[dict[str, Any]]
    result: RunResult | None
    divergence: Divergence | None


def replay(trace: Trace, tools: Tools | None = None) -> Replay:
    """Run the loop over the recorded replies, up to the first event that differs.

    Args:
        trace: of a run, whole or cut.
        tools: live ones; None for the recorded results. Calls that wait for a yes are answered as they were.

    Raises:
        TraceError: the trace does not begin with run_started, or a live tool is missing.
    """
    if not trace.records or trace.records[0]["type"] != "run_started" or "settings" not in trace.records[0]:
        raise TraceError("the trace holds no run: its first record must be run_started, with settings")
    script = Script(trace.records)
    start = script.records[0]
    settings = start["settings"]
    agent = Agent(
        RecordedModel(script),
        recorded_tools(script) if tools is None else tools,
        system_prompt="",  # it is the first of the recorded messages
        on_limit=settings["on_limit"],
        max_parallel=settings["max_parallel"],
        limits=Limits(**settings["limits"]),
        guards=Guards(**settings["guards"]),
        memory=Memory(**settings["memory"]),
        approvals=recorded_approvals(script),
        selector=None,
        visible=lambda view: _visible(script, view),
        tool_choice=settings["tool_choice"],
        **start["request"],
    )
    missing = {t["function"]["name"] for t in start["tools"]} - set(agent.tools.names())
    if missing:
        raise TraceError(f"the run had tools that are not given: {', '.join(sorted(missing))}")
    run = agent._start(start["messages"], None, {})
    # Time is over where it was over then, whatever the clock says.
    run.stop, run.trace = script.stop, Trace(sink=script)
    run.trace.add("run_started", **{k: v for k, v in start.items() if k not in ("type", "t_s")})
    result = None
    events = agent._events(run, None)
    try:
        for event in events:
            if isinstance(event, RunFinished):
                result = event.result
            if script.divergence or script.next.get("type") in (None, "run_broken_off"):
                events.close()
    except LimitError as error:
        result = error.result
    except Exception:
        if not any(r["type"] == "run_failed" for r in script.records):
            raise
    found = script.divergence
    if found is None and not script.is_over:
        found = (script.at, script.next, None)
    return Replay(run.trace, run.messages, result, Divergence(*found) if found else None)


def _visible(script: Script, view: RoundView) -> Sequence[str]:
    choice = script.next.get("tool_choice") if script.next.get("type") == "round_started" else None
    return permitted_names(choice, list(view.names)) if choice not in (None, "none") else list(view.names)
