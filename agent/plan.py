"""What is to be done with each call of a reply: run it, or answer in the tool's place. It runs nothing.

A call is refused, with a result that the model can act on, when no tool has its name (a near match is never
run), when the request's tool_choice did not permit it, or when the repeat guard says so.
"""

from __future__ import annotations

import difflib

from laploop.tools import ToolResult

from .calls import Call
from .choice import ToolChoice, permitted_names
from .events import GuardFired
from .guards import RepeatGuard, call_key
from .prompts import Texts
from .reply import Reply
from .run import Run

MAX_NAMES_LISTED = 20


def plan_calls(
    run: Run, reply: Reply, choice: ToolChoice | None, guard: RepeatGuard
) -> tuple[list[Call], list[GuardFired], set[str]]:
    """The calls in order, the events of refusals, and the names of tools whose calls were refused as
    repetitions.
    """
    names = run.tools.names()
    allowed = permitted_names(choice, names)
    functions = [call["function"] for call in reply.calls]
    repeats = guard.judge([call_key(f["name"], f["arguments"]) for f in functions])
    calls: list[Call] = []
    fired: list[GuardFired] = []
    for raw_call, function, is_repeat in zip(reply.calls, functions, repeats, strict=True):
        name = function["name"]
        if name not in names:
            kind, text = "unknown_tool", unknown_tool_text(name, names, run.words)
        elif name not in allowed:
            kind, text = "tool_choice", _masked_text(name, allowed, run.words)
        elif is_repeat:
            kind, text = "repeat", run.words.repeated_call.format(name=name)
        else:
            calls.append(Call(raw_call["id"], name, function["arguments"], tool=run.tools.get(name)))
            continue
        calls.append(Call(raw_call["id"], name, function["arguments"], refusal=ToolResult(text, is_error=True)))
        fired.append(GuardFired(run.rounds, kind, "refused", name))
    return calls, fired, {f["name"] for f, is_repeat in zip(functions, repeats, strict=True) if is_repeat}


def unknown_tool_text(name: str, names: list[str], words: Texts) -> str:
    """The result of a call to a tool that does not exist: the nearest name first, then those there are."""
    if not names:
        return words.no_tools.format(name=name)
    near = difflib.get_close_matches(name, names, n=1)
    hint = words.did_you_mean.format(name=near[0]) if near else ""
    listed = ", ".join(names[:MAX_NAMES_LISTED]) + (", …" if len(names) > MAX_NAMES_LISTED else "")
    return words.unknown_tool.format(name=name, near=hint, names=listed)


def _masked_text(name: str, allowed: list[str], words: Texts) -> str:
    hint = words.not_allowed.format(names=", ".join(allowed)) if allowed else words.give_answer_now
    return words.masked_call.format(name=name, allowed=hint)
