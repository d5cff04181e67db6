"""Guards: each sees one way in which a model gets nowhere. They only judge; the ladder says what follows.

The ladder (mission, row 16, one step further each time the fault goes on): a nudge; the tool is masked for a reply; all
calls are masked; a final answer is asked for. A round without a fault leads back to its foot. What a guard calls the
same: the name, and the arguments as values, however spelled.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from laploop.models.requests.plain import text_of


@dataclass(frozen=True, slots=True)
class Guards:
    """How often is too often; None switches a guard off.

    Args:
        same_call: the same call so many times in a row is refused.
        same_result: a round whose calls were all made before, and gave the same so many times: the next reply is text.
        stale_rounds: so many rounds in a row that ask only for what was asked before are refused: A, B, A, B, …
        same_fault: the model's own fault (unknown tool, arguments that do not fit), corrected once and made again.
        same_error: the same error of one tool.
        no_progress: rounds in a row that brought no new result.
        same_text: a text that ends in the same piece so many times, and 1,000 characters of it, is broken off.
        announced: so many answers of a run that show the call of a tool, and do not make it, are followed by it.
    """

    same_call: int | None = 3
    same_result: int | None = 2
    stale_rounds: int | None = 2
    same_fault: int | None = 2
    same_error: int | None = 3
    no_progress: int | None = 4
    same_text: int | None = 5
    announced: int | None = 2

    @classmethod
    def off(cls) -> Guards:
        """No guard at all; only the limits end a run then."""
        return cls(None, None, None, None, None, None, None, None)


OWN_FAULTS = ("unknown_tool", "arguments")  # the model's: corrected once, then the ladder goes on


@dataclass(frozen=True, slots=True)
class Done:
    """A call of the round that was just executed, or refused. `fault` as in ToolResult, or the reason of a refusal."""

    name: str
    key: str
    content: str
    is_error: bool
    executed: bool = True
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a guard found: its kind, the tools that it is about, and the lowest step that it calls for."""

    kind: str
    names: frozenset[str] = frozenset()
    detail: str = ""
    at_least: int = 1


class Guard(Protocol):
    """One judgement about a round that is over."""

    def judge(self, done: Sequence[Done]) -> Fault | None:
        """The fault of this round, given those before it; called once a round, in order."""


def call_key(name: str, arguments: str) -> str:
    """What makes two calls the same."""
    try:
        canonical = json.dumps(json.loads(arguments or "{}"), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        canonical = arguments.strip()
    return f"{name} {canonical}"


def repeats_question(messages: Sequence[dict[str, Any]], text: str) -> bool:
    """Whether a reply, after results were seen, only says the question again ("OK: …"), or asks a part of it: small
    models do (docs/log.md).

    Args:
        messages: the question and what followed it.
        text: of the reply.
    """
    if not any(message["role"] == "tool" for message in messages):
        return False  # a greeting is answered with a greeting
    said, asked = ("".join(c for c in words.casefold() if c.isalnum()) for words in (text, text_of(messages[0])))
    agreed = said.endswith(asked) and len(said) - len(asked) <= 4 < len(asked)  # "OK: …"; but 11 is what 1+1 is
    return bool(said) and (said == asked or agreed or (said in asked and text.rstrip().endswith(("?", "？"))))


MOST_ANNOUNCED = 2


def announced_tool(text: str, names: Iterable[str]) -> str | None:
    """The tool whose call stands in an answer, as JSON or as code has it, instead of being made; the first, where there
    are two. None where there are more, as in the answer of one who is asked what he can do."""
    marks = {n: re.search(rf"\"name\":\s*\"{n}\"|(?<!def )(?<!function )\b{n}\(", text) for n in names}
    found = sorted((mark.start(), name) for name, mark in marks.items() if mark)
    return found[0][1] if 0 < len(found) <= MOST_ANNOUNCED else None


@dataclass
class RepeatGuard:
    """Sees that a model asks for what it already has, before the calls are run."""

    n_same: int | None = 3
    n_stale: int | None = 2
    _seen: set[str] = field(default_factory=set)
    _last: str | None = None
    _n_in_a_row: int = 0
    _n_stale_rounds: int = 0

    def judge(self, keys: Sequence[str]) -> list[str]:
        """Per call of a round, in order: "" to execute it, else "repeat" or "cycle"."""
        is_stale = bool(keys) and all(k in self._seen for k in keys)
        self._n_stale_rounds = self._n_stale_rounds + 1 if is_stale else 0
        kinds = [self._kind(k) for k in keys]
        self._seen.update(keys)
        return kinds

    def _kind(self, key: str) -> str:
        self._n_in_a_row = self._n_in_a_row + 1 if key == self._last else 1
        self._last = key
        if self.n_same is not None and self._n_in_a_row >= self.n_same:
            return "repeat"
        return "cycle" if self.n_stale is not None and self._n_stale_rounds >= self.n_stale else ""


@dataclass
class SameResultGuard:
    """Sees that a round brought what is known, before the same call is made a third time.

    Small models that repeat themselves have what they need: held to text they answer. Told to answer, or without that
    one tool, they call something else (docs/log.md).
    """

    n_most: int | None = 2
    _n_seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def judge(self, done: Sequence[Done]) -> bool:
        """Whether each call of the round was run and gave the same for the `n_most`th time."""
        results = [(d.key, d.content) for d in done if d.executed and not d.is_error]
        self._n_seen.update(results)
        if self.n_most is None or not results or len(results) < len(done):
            return False
        return all(self._n_seen[r] >= self.n_most for r in results)


MIN_REPEATED_CHARS, MIN_PIECE_CHARS = 1000, 30  # a row of dashes, a refrain, "ha ha ha" repeat themselves too


def n_before_repeats(text: str, n_most: int) -> int | None:
    """Where a text ends in the same piece at least `n_most` times: how many characters come to the end of the first
    one; None where it does not. Small models write the same paragraph until the token limit."""
    for size in range(1, len(text) // n_most + 1):
        n_times = max(n_most, -(-MIN_REPEATED_CHARS // size))
        if text[-2 * size :] == 2 * text[-size:] and text.endswith(text[-size:] * n_times):
            if size < MIN_PIECE_CHARS:
                return None
            start = len(text) - size
            while start and text[start - 1] == text[start - 1 + size]:
                start -= 1
            return start + size
    return None


@dataclass
class SameFaultGuard:
    """Sees that a fault of the model's own was corrected once and is made again."""

    n_most: int
    _n_seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def judge(self, done: Sequence[Done]) -> Fault | None:
        """A fault of the model's that came `n_most` times, whatever was between."""
        faults = {(d.fault, f"{d.name}: {d.content}"): d for d in done if d.fault in OWN_FAULTS}
        self._n_seen.update(faults.keys())
        again = [d for key, d in faults.items() if self._n_seen[key] >= self.n_most]
        if not again:
            return None
        return Fault(again[0].fault, frozenset(d.name for d in again), again[0].content, at_least=2)


@dataclass
class SameErrorGuard:
    """Sees that a tool fails again and again in the same way, whatever the arguments."""

    n_most: int
    _n_seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def judge(self, done: Sequence[Done]) -> Fault | None:
        """An error that came `n_most` times."""
        errors = [(d.name, d.content) for d in done if d.is_error and d.executed and d.fault not in OWN_FAULTS]
        self._n_seen.update(errors)
        again = [e for e in errors if self._n_seen[e] >= self.n_most]
        return Fault("same_error", frozenset(name for name, _ in again), again[0][1]) if again else None


@dataclass
class NoProgressGuard:
    """Sees that rounds go by and nothing new is known."""

    n_most: int
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _n_in_a_row: int = 0

    def judge(self, done: Sequence[Done]) -> Fault | None:
        """`n_most` rounds in a row without a result that was not there before."""
        news = {(d.key, d.content) for d in done if d.executed and not d.is_error} - self._seen
        self._seen |= news
        self._n_in_a_row = 0 if news else self._n_in_a_row + 1
        if self._n_in_a_row < self.n_most:
            return None
        return Fault("no_progress", frozenset(d.name for d in done), f"{self._n_in_a_row} rounds without a new result")


def guards_after(settings: Guards) -> list[Guard]:
    """The guards that judge a round when it is over, the most telling first."""
    made: list[Guard] = []
    if settings.same_fault is not None:
        made.append(SameFaultGuard(settings.same_fault))
    if settings.same_error is not None:
        made.append(SameErrorGuard(settings.same_error))
    if settings.no_progress is not None:
        made.append(NoProgressGuard(settings.no_progress))
    return made


STEPS = ("", "nudged", "masked", "calls_masked", "final_answer")


@dataclass
class Ladder:
    """Which step the faults so far have led to, and which tools are masked in the next reply."""

    rung: int = 0
    masked: frozenset[str] = frozenset()

    def climb(self, fault: Fault | None, maskable: frozenset[str]) -> str:
        """One step up for a fault, back to the foot without one; the step, "" at the foot.

        Args:
            fault: what the round's guards found.
            maskable: tools that may be called now. Where masking leaves none of them, all calls are masked.
        """
        self.masked = frozenset()
        if fault is None:
            self.rung = 0
            return ""
        self.rung = min(max(self.rung + 1, fault.at_least), len(STEPS) - 1)
        if STEPS[self.rung] == "masked":
            self.masked = fault.names & maskable
            if not self.masked or self.masked == maskable:
                self.masked = frozenset()
                self.rung += 1
        return STEPS[self.rung]
