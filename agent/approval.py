"""Which calls wait for a person's yes: by the effects that their tools declare. It runs nothing.

Fails closed: where a call has to be asked about and nobody is there, it is denied. A denied call becomes a result that
the model can read, and its tool is masked for the rest of the run. What was answered once can be remembered, per tool
and pattern of arguments, for as long as the Approvals object lives (a chat's session).
"""

from __future__ import annotations

import fnmatch
import glob
import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from laploop.tools import Tool, ToolError, ToolResult

from .calls import Call
from .errors import ConfigError
from .events import ApprovalAnswered, ApprovalAsked, Event
from .json_text import dumps
from .run import Run

EFFECTS = ("read", "network", "write", "irreversible")
LEAST_PRIVILEGE = {"read": "auto", "network": "auto", "write": "ask", "irreversible": "ask"}
MAX_EDITS = 3  # answers with arguments that do not fit, before the call counts as denied
_RULES = ("auto", "ask", "deny")  # the mildest first: a tool is held to the strictest of its effects


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits for an answer: its tool, and the checked arguments that it would run with.

    `problem` says what was wrong with the arguments that the last answer put in their place; `preview` what the call
    would change, where its tool can tell.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    effects: frozenset[str]
    problem: str = ""
    preview: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer to a request.

    Args:
        allowed: whether it may run.
        arguments: other arguments to run it with; they are validated again, and asked for again where they do not
            fit. None keeps the model's.
        remember: answer alike, without asking, where each parameter named here matches its pattern (`*`, `?`, `[…]`,
            as fnmatch has them); {} for whatever arguments. None asks again.
    """

    allowed: bool
    arguments: Mapping[str, Any] | None = None
    remember: Mapping[str, str] | None = None


class Remembered(NamedTuple):
    """What is answered without asking: to calls of this tool whose arguments match the pattern."""

    name: str
    pattern: Mapping[str, str]
    allowed: bool


Asker = Callable[[ApprovalRequest], Decision | bool]


@dataclass
class Approvals:
    """The policy of a run, and what was answered before.

    Args:
        policy: effect → "auto" (run it), "ask" or "deny", over the default: reading and the network run, writing and
            what cannot be undone are asked about.
        ask: called with each request, in the run's own thread, and may take its time: gives a Decision, or plain True
            or False. None where nobody can be asked.

    Raises:
        ConfigError: an effect or a rule that does not exist; `ask` cannot be called. In a run: it gave something else.
    """

    policy: Mapping[str, str] = field(default_factory=dict)
    ask: Asker | None = None
    _known: list[Remembered] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Mapping):
            raise ConfigError(f"the approval policy is {self.policy!r}; expected a dict such as {{'network': 'ask'}}")
        if self.ask is not None and not callable(self.ask):
            raise ConfigError(f"ask is {self.ask!r}; expected a function that is given an ApprovalRequest, or None")
        for effect, rule in self.policy.items():
            if effect not in EFFECTS or rule not in _RULES:
                raise ConfigError(
                    f"approval policy {effect!r}: {rule!r} is not known; effects are {', '.join(EFFECTS)}, "
                    f"rules are {', '.join(_RULES)}"
                )

    def rule(self, effects: frozenset[str]) -> str:
        """ "auto", "ask" or "deny" for a tool with these effects."""
        policy = {**LEAST_PRIVILEGE, **self.policy}
        return max((policy[effect] for effect in effects), key=_RULES.index)

    def remembered(self, request: ApprovalRequest) -> bool | None:
        """What was answered to such a call before; a no counts more than a yes. None: nothing."""
        known = [
            answer.allowed
            for answer in self.answers()
            if answer.name == request.name and _matches(answer.pattern, request.arguments)
        ]
        return all(known) if known else None

    def remember(self, name: str, pattern: Mapping[str, str], allowed: bool) -> None:
        """Answer calls of the tool `name` whose arguments match like this from now on."""
        with self._lock:
            self._known.append(Remembered(name, dict(pattern), allowed))

    def answers(self) -> list[Remembered]:
        """All that is remembered, in the order in which it was said."""
        with self._lock:
            return list(self._known)

    def forget(self) -> None:
        """Ask about everything again."""
        with self._lock:
            self._known.clear()


def exact_pattern(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The pattern that only these arguments match, for `Decision.remember`."""
    return {name: glob.escape(_as_text(value)) for name, value in arguments.items()}


def _matches(pattern: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and fnmatch.fnmatchcase(_as_text(arguments[name]), wanted) for name, wanted in pattern.items()
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def approve_calls(run: Run, calls: Sequence[Call]) -> Generator[Event, None, list[Call]]:
    """The calls of a round, those that may not run with a refusal in place; asks one after the other."""
    approved = []
    for call in calls:
        if call.tool is None or call.refusal is not None or run.approvals.rule(call.tool.effects) == "auto":
            approved.append(call)
        else:
            approved.append((yield from _approve(run, call, call.tool)))
    return approved


def _approve(run: Run, call: Call, tool: Tool) -> Generator[Event, None, Call]:
    try:
        arguments = tool.checked(call.arguments).value
    except ToolError:
        return call  # it does not get as far as running: its result says what is wrong
    request = ApprovalRequest(call.id, call.name, arguments, tool.effects, preview=tool.previewed(arguments))
    decision, by = yield from _decide(run, request)
    for _ in range(MAX_EDITS):
        problem = _problem(tool, decision)
        if not problem:
            break
        decision, by = yield from _decide(run, replace(request, problem=problem))
    else:
        decision = Decision(False)
    edited = None if decision.arguments is None or not decision.allowed else tool.checked(decision.arguments).value
    shown = None if edited is None or edited == arguments else dumps(edited)
    yield ApprovalAnswered(run.rounds, call.id, call.name, decision.allowed, by, shown)
    if by == "user" and decision.remember is not None:
        run.approvals.remember(call.name, decision.remember, decision.allowed)
    if not decision.allowed:
        run.denied.add(call.name)
        words = {"nobody": run.words.denied_unasked, "policy": run.words.denied_by_rule}.get(by, run.words.denied_call)
        return replace(call, refusal=ToolResult(words.format(name=call.name), is_error=True))
    # Exactly what was shown, or written in its place, is run.
    preface = "" if shown is None else run.words.edited_call.format(arguments=shown)
    return replace(call, run_with=arguments if edited is None else edited, preface=preface)


def _problem(tool: Tool, decision: Decision) -> str:
    """What is wrong with the arguments of a yes; "" for nothing."""
    if not decision.allowed or decision.arguments is None:
        return ""
    try:
        tool.checked(decision.arguments)
    except ToolError as error:
        return str(error)
    return ""


def _decide(run: Run, request: ApprovalRequest) -> Generator[Event, None, tuple[Decision, str]]:
    approvals = run.approvals
    if approvals.rule(request.effects) == "deny":
        return Decision(False), "policy"
    before = approvals.remembered(request)
    if before is not None:
        return Decision(before), "remembered"
    if approvals.ask is None or run.stop.is_set():
        return Decision(False), "nobody"
    effects = tuple(sorted(request.effects))
    yield ApprovalAsked(run.rounds, request.call_id, request.name, dumps(dict(request.arguments)), effects)
    try:
        answer = approvals.ask(request)
    except Exception as error:  # noqa: BLE001 - of the caller's own code: without an answer the call does not run
        warnings.warn(f"the function that is asked for approval failed ({type(error).__name__}: {error})", stacklevel=2)
        return Decision(False), "nobody"
    if not isinstance(answer, Decision | bool):
        raise ConfigError(
            f"the function that is asked for approval gave {answer!r}; expected a Decision, True or False"
        )
    return Decision(answer) if isinstance(answer, bool) else answer, "user"
