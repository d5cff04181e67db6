"""What is to be done with each call of a reply: run it, or answer in the tool's place. It runs nothing.

A call is refused, with a result that the model can act on, when no tool has its name (a near match is never
run), when the request's tool_choice did not permit it, when the repeat guard says so, or when a cap is reached.
"""

from __future__ import annotations

import difflib

from laploop.tools import ToolResult

from .calls import Call
from .choice import ToolChoice, permitted_names
from .events import GuardFired
from .guards import call_key
from .prompts import Texts
from .reply import Reply
from .run import Run
from .steering import Steering

MAX_NAMES_LISTED = 20
MAX_NEAR = 3


def plan_calls(
    run: Run, reply: Reply, choice: ToolChoice | None, steering: Steering
) -> tuple[list[Call], list[GuardFired]]:
    """The calls in order, and the events of refusals."""
    names = run.tools.names()
    allowed = permitted_names(choice, names)
    functions = [call["function"] for call in reply.calls]
    repeats = steering.repeats.judge([call_key(f["name"], f["arguments"]) for f in functions])
    n_left = steering.n_calls_left
    calls: list[Call] = []
    fired: list[GuardFired] = []
    for raw_call, function, repeat in zip(reply.calls, functions, repeats, strict=True):
        name = function["name"]
        if name not in names:
            kind, text = "unknown_tool", unknown_tool_text(name, names, run.words)
        elif name not in allowed:
            kind, text = "tool_choice", _masked_text(name, allowed, run.words)
        elif repeat:
            kind, text = repeat, run.words.repeated_call.format(name=name)
        elif n_left is not None and n_left < 1:
            kind, text = "max_calls", run.words.call_limit
        else:
            n_left = None if n_left is None else n_left - 1
            calls.append(Call(raw_call["id"], name, function["arguments"], tool=run.tools.get(name)))
            continue
        refusal = ToolResult(text, is_error=True, fault=kind)
        calls.append(Call(raw_call["id"], name, function["arguments"], refusal=refusal))
        fired.append(GuardFired(run.rounds, kind, "refused", name))
    return calls, fired


def unknown_tool_text(name: str, names: list[str], words: Texts) -> str:
    """The result of a call to a tool that does not exist: the nearest names first, then those there are."""
    if not names:
        return words.no_tools.format(name=name)
    near = difflib.get_close_matches(name, names, n=MAX_NEAR)
    hint = words.did_you_mean.format(name=", ".join(near)) if near else ""
    listed = ", ".join(names[:MAX_NAMES_LISTED]) + (", …" if len(names) > MAX_NAMES_LISTED else "")
    return words.unknown_tool.format(name=name, near=hint, names=listed)


def _masked_text(name: str, allowed: list[str], words: Texts) -> str:
    hint = words.not_allowed.format(names=", ".join(allowed)) if allowed else words.give_answer_now
    return words.masked_call.format(name=name, allowed=hint)
