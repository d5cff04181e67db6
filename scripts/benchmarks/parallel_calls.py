"""Three calls of one second each in one round: how long does the round take? And what does a call that hangs cost?

    python scripts/benchmarks/parallel_calls.py

No model: the replies are scripted. Prints one line a case and one JSON line at the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from laploop.agent import Agent, CallStarted, RunResult
from laploop.models import ScriptedModel
from laploop.tools import Tool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CALL_S = 1.0
TIMEOUT_S = 1.5


def wait(n: int) -> str:
    """One second of waiting."""
    time.sleep(CALL_S)
    return f"call {n} is done"


def hang(n: int) -> str:
    """Never returns."""
    threading.Event().wait()
    return ""


def calls(*names: str) -> str:
    """The raw reply that makes these calls."""
    bodies = (json.dumps({"name": name, "arguments": {"n": n}}) for n, name in enumerate(names))
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def timed(
    reply: str, on_start: Callable[[Agent, CallStarted], None] | None = None, **settings: Any
) -> tuple[float, RunResult]:
    """Seconds from the first call's start to the end of the run, and its result."""
    tools = [Tool("wait", "Waits.", SCHEMA, wait), Tool("hang", "Hangs.", SCHEMA, hang, timeout_s=TIMEOUT_S)]
    agent = Agent(ScriptedModel([reply, "done"]), tools, **settings)
    t0_s: float | None = None
    result = None
    for event in agent.stream("go"):
        if isinstance(event, CallStarted):
            t0_s = t0_s or time.perf_counter()
            if on_start is not None:
                on_start(agent, event)
        result = getattr(event, "result", result)
    assert t0_s is not None and result is not None, "every reply here makes calls"
    return time.perf_counter() - t0_s, result


def main() -> int:
    """Measure and print."""
    cold_s, _ = timed(calls("wait", "wait", "wait"))  # with what Python imports at the first call
    three_s, three = timed(calls("wait", "wait", "wait"))
    serial_s, _ = timed(calls("wait", "wait", "wait"), parallel=False)
    hanging_s, hanging = timed(calls("wait", "hang", "wait"))
    given_up_s, given_up = timed(
        calls("hang", "wait"), lambda agent, event: agent.cancel(event.call_id) if event.name == "hang" else None
    )
    cut = [r["content"] for r in hanging.calls if r["is_error"]]
    figures = {
        "benchmark": "parallel_calls",
        "three_calls_s": round(three_s, 3),
        "three_calls_first_in_process_s": round(cold_s, 3),
        "one_after_the_other_s": round(serial_s, 3),
        "with_one_that_hangs_s": round(hanging_s, 3),
        "hanging_call_timeout_s": TIMEOUT_S,
        "with_one_given_up_s": round(given_up_s, 3),
        "all_answered": all(r.answered for r in (three, hanging, given_up)),
        "hanging_call_cut": len(cut) == 1 and "timed out" in cut[0],
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    print(json.dumps(figures))
    met = three_s <= 1.2 * CALL_S and hanging_s <= 1.2 * TIMEOUT_S and figures["hanging_call_cut"]
    return 0 if met and figures["all_answered"] else 1


if __name__ == "__main__":
    sys.exit(main())
