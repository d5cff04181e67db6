"""What the model is still shown: long results cut to a budget, old rounds replaced by a summary. The trace keeps all.

It never parts a call from its result and never drops the system prompt or the question. Counts are the model's own; the
defaults follow its context: see `Memory`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from laploop.models.requests.plain import text_of

from .aside import AsideError, ask_aside
from .errors import ConfigError
from .events import Compaction, Event, ResultCut
from .history import split_units
from .json_text import dumps
from .observation import fit_text
from .run import Run
from .tokens import TokenCounter

_DEFAULT_COMPACT_AT = 8_000  # mission, row 17
_DEFAULT_RESULT = 4_000
_MAX_SUMMARY = 512
_FACT = {
    "type": "object",
    "properties": {"fact": {"type": "string"}, "source": {"type": "string"}},
    "required": ["fact", "source"],
    "additionalProperties": False,
}
_LIST = {"type": "array", "items": {"type": "string"}}
SUMMARY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "facts": {"type": "array", "items": _FACT},
        "done": _LIST,
        "open": _LIST,
    },
    "required": ["goal", "facts", "done", "open"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Memory:
    """How much of what happened stays in the prompt.

    Args:
        compact: whether old rounds may be replaced by a summary.
        compact_at_tokens: the size of prompt at which they are; None for 8,000 or three quarters of the context,
            whichever is less.
        keep_rounds: the latest rounds that stay as they are. 1: everything older is summary; more: the last K rounds
            and a summary of all before them.
        result_tokens: most tokens of one tool result; None for 4,000 or a quarter of the context, whichever is less.
            The results of one round together take at most half the context.

    Raises:
        ConfigError: a number below 1.
    """

    compact: bool = True
    compact_at_tokens: int | None = None
    keep_rounds: int = 1
    result_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("compact_at_tokens", "keep_rounds", "result_tokens"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} is {number!r}; expected 1 or more")

    def threshold(self, counter: TokenCounter) -> int:
        """Tokens of a prompt above which it is compacted."""
        return _least(self.compact_at_tokens or _DEFAULT_COMPACT_AT, counter.n_ctx and counter.n_ctx * 3 // 4)

    def per_result(self, counter: TokenCounter) -> int:
        """Most tokens of one result."""
        return self.result_tokens or _least(_DEFAULT_RESULT, counter.n_ctx and counter.n_ctx // 4)

    def per_round(self, counter: TokenCounter) -> int:
        """Most tokens of all results of a round."""
        return counter.n_ctx // 2 if counter.n_ctx else 4 * self.per_result(counter)


def _least(default: int, other: int | None) -> int:
    return max(1, min(default, other) if other else default)


def make_room(run: Run) -> Generator[Event, None, None]:
    """Before a request: compact the history if the prompt has grown past its threshold."""
    memory, counter = run.settings.memory, run.counter
    if not memory.compact:
        return
    threshold = memory.threshold(counter)
    n_before = counter.of_messages(run.messages)
    n_rounds = memory.keep_rounds
    while n_before > threshold and n_rounds and not run.stop.is_set():
        if (event := _compact(run, n_before, n_rounds)) is not None:
            yield event
            n_before = event.n_tokens_after
        n_rounds = n_rounds // 2
    if n_before > threshold:  # what is left is too long by itself: the results of the last rounds
        yield from _shrink(run, n_before - threshold)


def _compact(run: Run, n_before: int, n_rounds: int) -> Compaction | None:
    """Replace all but the system prompt, the question and the last `n_rounds` rounds; None if there is nothing else, or
    if that would make nothing shorter."""
    head, old, kept = _parts(run, n_rounds)
    if not old:
        return None
    summary, by, detail = _summary(run, old)
    goal = dict(run.goal)
    note = f"{run.words.summary_intro}\n{summary}"
    goal["content"] = (
        [*goal["content"], {"type": "text", "text": "\n\n" + note}]
        if isinstance(goal.get("content"), list)
        else f"{text_of(goal)}\n\n{note}"
    )
    shorter = [*head, goal, *kept]
    n_after = run.counter.of_messages(shorter)
    if n_after >= n_before:  # what is replaced was shorter than its summary
        return None
    run.messages[:] = shorter
    run.i_goal, run.summary = len(head), summary
    return Compaction(run.rounds, n_before, n_after, len(old), summary, by, detail, run.counter.is_estimate)


def _parts(run: Run, n_rounds: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Head (system messages), what a summary replaces, and what stays behind the question."""
    n_head = 0
    while n_head < len(run.messages) and run.messages[n_head].get("role") in ("system", "developer"):
        n_head += 1
    units = split_units(run.messages[run.i_goal + 1 :])
    starts = [n for n, unit in enumerate(units) if unit[0].get("tool_calls")]
    first_kept = starts[-n_rounds] if len(starts) >= n_rounds else 0
    old = [*run.messages[n_head : run.i_goal], *(m for unit in units[:first_kept] for m in unit)]
    return run.messages[:n_head], old, [m for unit in units[first_kept:] for m in unit]


def _summary(run: Run, old: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    """The text of the summary, who made it, and why not the model."""
    counter = run.counter
    budget = min(_MAX_SUMMARY, max(64, run.settings.memory.threshold(counter) // 4))
    prefix = _readable(run, old, budget)
    try:
        if not prefix:
            raise AsideError("the earlier messages are longer than the context")
        value = ask_aside(run, prefix, run.words.summarize, SUMMARY_SCHEMA, budget)
        return fit_text(dumps(value), budget, counter), "model", ""
    except Exception as error:  # noqa: BLE001 - of any model or client: without a summary the run goes on all the same
        return fit_text(dumps(_by_loop(run, old)), budget, counter), "loop", f"{type(error).__name__}: {error}"


def _readable(run: Run, old: Sequence[dict[str, Any]], budget: int) -> list[dict[str, Any]]:
    """The beginning of the history up to the last message that is replaced, as the model has read it already; without
    its oldest units, but never the question, where it does not fit the context with an answer."""
    n_ctx = run.counter.n_ctx
    last = next(n for n in range(len(run.messages) - 1, -1, -1) if run.messages[n] is old[-1])
    units = split_units(run.messages[: last + 1])
    replaced = {id(message) for message in old}
    instruction = {"role": "user", "content": run.words.summarize}
    while True:
        messages = [m for unit in units for m in unit]
        if n_ctx is None or run.counter.of_messages([*messages, instruction]) + budget <= n_ctx:
            return messages
        oldest = next((n for n, unit in enumerate(units) if id(unit[0]) in replaced), None)
        if oldest is None:
            return []
        del units[oldest]


def _by_loop(run: Run, old: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A summary without a model: the question, and each call with the beginning of its result."""
    results = {m.get("tool_call_id"): text_of(m) for m in old if m.get("role") == "tool"}
    calls = [call for m in old for call in m.get("tool_calls") or ()]
    facts = [
        {"fact": results.get(c["id"], "")[:200], "source": f"{c['function']['name']}({c['function']['arguments']})"}
        for c in calls
    ]
    said = [text_of(m)[:200] for m in old if m.get("role") in ("user", "assistant") and text_of(m).strip()]
    value = {"goal": text_of(run.goal)[:500], "facts": facts, "done": said, "open": []}
    return {"earlier": run.summary, **value} if run.summary else value


def _shrink(run: Run, n_over: int) -> Generator[Event, None, None]:
    """Cut the longest results that are still shown until about `n_over` tokens less are."""
    counter = run.counter
    shown = [m for m in run.messages if m.get("role") == "tool" and isinstance(m.get("content"), str)]
    for message in sorted(shown, key=lambda m: len(m["content"]), reverse=True):
        n_tokens = counter.of_text(message["content"])
        budget = max(32, n_tokens - n_over)
        if n_over <= 0 or n_tokens <= budget:
            return
        text = fit_text(message["content"], budget, counter)
        index = next(n for n, m in enumerate(run.messages) if m is message)
        run.messages[index] = {**message, "content": text}
        n_over -= n_tokens - counter.of_text(text)
        yield ResultCut(run.rounds, str(message.get("tool_call_id")), len(message["content"]), text)
