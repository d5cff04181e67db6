"""How far a run may go, as a value. It measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one run; None for no cap. At the first one that is reached a final answer is asked for, or LimitError is
    raised (`on_limit`).

    Args:
        max_rounds: tool rounds.
        max_calls: calls that are executed; those beyond it in the same reply are refused.
        max_tokens: tokens that the model generates in all replies together.
        timeout_s: seconds. Tools that still run then are given up, and a final answer is asked for; a reply that is
            being written is broken off after the model's next step, and what it held so far ends the run.
        final_answer_s: seconds that this final answer may take in its turn.

    Raises:
        ConfigError: a cap below 1 (seconds: not above 0).
    """

    max_rounds: int | None = 5
    max_calls: int | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    final_answer_s: float | None = 30.0

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_calls", "max_tokens"):
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise ConfigError(f"{name} is {number!r}; expected 1 or more, or None for no limit")
        for name in ("timeout_s", "final_answer_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"{name} is {seconds!r}; expected seconds above 0, or None for no limit")

    def reached(self, n_rounds: int, n_calls: int, n_tokens: int) -> tuple[str, str] | None:
        """The cap that these counts have reached and a sentence about it; None if none is."""
        if self.max_rounds is not None and n_rounds >= self.max_rounds:
            return "max_rounds", f"{n_rounds} tool rounds without an answer"
        if self.max_calls is not None and n_calls >= self.max_calls:
            return "max_calls", f"{n_calls} calls without an answer"
        if self.max_tokens is not None and n_tokens >= self.max_tokens:
            return "max_tokens", f"{n_tokens} generated tokens without an answer"
        return None
