"""What the next request may do, and when the run has to end: limits, guards, denied and hidden tools.

It feeds the policies and reads their judgements; each is a value or an object of its own with one method.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from .choice import ToolChoice, after_first_round, allow_only, permitted_names, without
from .errors import LimitError, RoundLimitError
from .events import Event, GuardFired, RunFinished
from .guards import Done, Fault, Ladder, RepeatGuard, SameResultGuard, announced_tool, guards_after
from .prompts import correction_of
from .reply import Reply
from .run import Run
from .visibility import RoundView, names_of


class Steering:
    """Steers one run.

    Attributes:
        stop_reason: why the next text ends the run, "" for because it is the answer. Set: calls are masked.
        is_forced: the final answer was asked for in words; whatever comes next is the last.
        n_empty: replies so far without text and without a call.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        guards = run.settings.guards
        self.repeats = RepeatGuard(guards.same_call, guards.stale_rounds)
        self._same_result = SameResultGuard(guards.same_result)
        self._has_all = False  # the last round brought what was known: the next reply is text
        self._announced: str | None = None  # the tool that the next reply has to call
        self._n_announced = 0
        self._had: set[str] = set()  # tools that gave a result
        self._guards = guards_after(guards)
        self._ladder = Ladder()
        self._n_tool_rounds = self._n_calls = self._n_malformed = 0
        self._kind = ""  # of the last fault
        self.stop_reason = ""
        self.is_forced = False
        self.n_empty = 0

    @property
    def n_calls_left(self) -> int | None:
        """How many calls may still be executed; None for any number."""
        most = self._run.settings.limits.max_calls
        return None if most is None else most - self._n_calls

    def choose(self) -> ToolChoice | None:
        """The tool_choice of the next request; None where there are no tools."""
        run = self._run
        names = run.tools.names()
        if not names:
            return None
        if self.stop_reason or self._has_all:
            return "none"
        if self._announced:
            return allow_only([self._announced], "required")
        return without(self._base(), self._taken(), names)

    def announced(self, text: str) -> str | None:
        """The tool whose call a text shows instead of making it; the next reply has to. Not one that changes something:
        a text may also say what it does not do."""
        tools, most = self._run.tools, self._run.settings.guards.announced
        if most is None or self._n_announced >= most:
            return None
        names = permitted_names(self.choose(), tools.names())
        harmless = {t.name for t in tools if t.name in names and t.effects <= {"read", "network"}}
        self._announced = announced_tool(text, harmless - self._had)
        self._n_announced += self._announced is not None
        return self._announced

    def judge(self, reply: Reply, done: Sequence[Done]) -> Generator[Event, None, RunFinished | None]:
        """After a round of calls: correct, climb or descend the ladder, look at the limits. A value ends the run.

        Raises:
            LimitError: a cap is reached, and on_limit says raise.
        """
        run = self._run
        if run.stop.reason == "cancelled":
            return run.finish_cancelled()
        self._n_tool_rounds += 1
        self._n_calls += sum(d.executed for d in done)
        self._announced = None
        self._had.update(d.name for d in done if d.executed and not d.is_error)
        self._has_all = self._same_result.judge(done)
        if self._has_all:
            yield GuardFired(run.rounds, "repeat", "calls_masked", "the same calls gave the same results")
        fault = self._fault(reply, done)
        if reply.faults and self._n_malformed == 1:
            yield GuardFired(run.rounds, "invalid_calls", "retry", reply.faults[0]["error"])
            run.say("\n".join(correction_of(fault, run.words) for fault in reply.faults))
        yield from self._climb(fault)
        yield from self._limit()
        return None

    def force(self, reason: str, detail: str) -> Generator[Event, None, None]:
        """Ask for the final answer now."""
        self.stop_reason, self.is_forced = reason, True
        yield GuardFired(self._run.rounds, reason, "final_answer", detail)
        self._run.say(self._run.words.final_answer)

    def exceed(self, reason: str, detail: str) -> Generator[Event, None, None]:
        """A cap is reached: the final answer, or the error."""
        run = self._run
        if not run.settings.raise_on_limit:
            yield from self.force(reason, detail)
            return
        yield GuardFired(run.rounds, reason, "stopped", detail)
        error = RoundLimitError if reason == "max_rounds" else LimitError
        name = "timeout_s" if reason == "timeout" else reason
        raise error(
            f"{detail}; raise {name}, or let the agent answer with on_limit='answer'",
            run.finish(reason, run.partial, answered=False).result,
        )

    def _base(self) -> ToolChoice:
        choice = self._run.settings.tool_choice
        return choice if self._n_tool_rounds == 0 else after_first_round(choice)

    def _taken(self) -> set[str]:
        run, visible = self._run, self._run.visible
        taken = run.denied | self._ladder.masked
        if visible is None:
            return taken
        names = run.tools.names()
        wanted = visible(RoundView(run.rounds + 1, run.messages, names)) if callable(visible) else visible
        return taken | set(names).difference(names_of(wanted, run.tools))

    def _fault(self, reply: Reply, done: Sequence[Done]) -> Fault | None:
        """What this round did wrong; every guard sees every round."""
        found = [f for guard in self._guards if (f := guard.judge(done)) is not None]
        self._n_malformed = self._n_malformed + 1 if reply.faults else 0
        refused = [d for d in done if d.fault in ("repeat", "cycle")]
        masked = [d for d in done if d.fault == "tool_choice" and d.name in self._ladder.masked]
        if masked and not refused:  # a server may not hold the model to the mask: it goes on with the same fault
            return Fault(self._kind, frozenset(d.name for d in masked), masked[0].name)
        if refused:
            names = frozenset(d.name for d in refused)
            return Fault(refused[0].fault, names, ", ".join(sorted(names)))
        if self._n_malformed > 1:
            return Fault("invalid_calls", frozenset(), reply.faults[0]["error"], at_least=4)
        if self.stop_reason:
            return Fault("tool_choice", frozenset(), "calls although none was possible", at_least=4)
        return found[0] if found else None

    def _climb(self, fault: Fault | None) -> Generator[Event, None, None]:
        run = self._run
        maskable = frozenset(permitted_names(self._base(), run.tools.names())) - run.denied
        step = self._ladder.climb(fault, maskable)
        if fault is None or self.is_forced:
            return
        self._kind = fault.kind
        if step == "nudged":
            words = {"same_error": run.words.same_error, "no_progress": run.words.no_progress}.get(fault.kind)
            if words is not None:  # a repetition was refused: its result is the nudge
                yield GuardFired(run.rounds, fault.kind, step, fault.detail)
                run.say(words.format(name=", ".join(sorted(fault.names))))
            return
        kind = self.stop_reason or fault.kind
        if step == "final_answer":
            yield from self.force(kind, fault.detail)
            return
        self.stop_reason = kind if step == "calls_masked" else ""
        yield GuardFired(run.rounds, kind, step, fault.detail)

    def _limit(self) -> Generator[Event, None, None]:
        run = self._run
        if run.stop.reason == "timeout":
            run.stop.grant(run.settings.limits.final_answer_s)
            if not self.is_forced:
                yield from self.exceed("timeout", f"{run.settings.limits.timeout_s:g} s without an answer")
            return
        n_tokens = int(run.usage.total.get("completion_tokens", 0))
        reached = run.settings.limits.reached(self._n_tool_rounds, self._n_calls, n_tokens)
        if reached is not None and not self.stop_reason:
            yield from self.exceed(*reached)
