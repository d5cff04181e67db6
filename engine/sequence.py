"""One generation under way.

Stores what cannot be derived: the tokens, how many of them are in the cache, where the grammar stands. Does not decode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .drafting import Drafter
from .matcher import Matcher
from .native import NativeSampler

if TYPE_CHECKING:
    from .slots import Slot

# A reader that does not read holds its own generation back, not the others.
_MOST_UNREAD_STEPS = 16


class TokenLogprob(NamedTuple):
    """How probable the model found a token, by its own distribution: before grammar, penalties and temperature.

    Args:
        token: the token.
        logprob: natural logarithm of its probability; 0 for one that was put in and not chosen.
        top: the most probable tokens with theirs, best first, as many as were asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Step(NamedTuple):
    """What one choice gave a generation; a decode gives one, or several where a draft came true.

    Args:
        tokens: the new tokens: one sampled, then those that the grammar forced.
        text: their bytes; may end inside a character.
        finish_reason: None while it goes on, then "stop" or "length".
        logprobs: one for each token, where `SamplingParams.n_logprobs` asked for them.
    """

    tokens: tuple[int, ...]
    text: bytes
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass
class Timings:
    """Where a generation's time went; seconds, tokens and steps."""

    n_prompt: int = 0
    n_cached: int = 0
    prompt_s: float = 0.0
    n_generated: int = 0
    generate_s: float = 0.0
    n_steps: int = 0  # decodes from whose logits tokens were chosen
    n_drafted: int = 0  # tokens
    n_accepted: int = 0  # of them
    mask_s: float = 0.0
    sample_s: float = 0.0

    def count(self, elapsed_s: float, *, generating: bool) -> None:
        """Count a decode."""
        if generating:
            self.generate_s += elapsed_s
        else:
            self.prompt_s += elapsed_s

    def absorb(self, first: Timings) -> None:
        """Count an attempt on the same prompt that came first and gave nothing."""
        self.n_cached = first.n_cached
        self.prompt_s += first.prompt_s
        self.n_steps += first.n_steps
        self.mask_s += first.mask_s
        self.sample_s += first.sample_s


class Sequence:
    """One generation.

    Args:
        prompt: its tokens.
        sampler: chooses tokens.
        matcher: its grammar, if any.
        max_tokens: most tokens to generate.
    """

    def __init__(self, prompt: Tokens[int], sampler: NativeSampler, matcher: Matcher | None, max_tokens: int) -> None:
        self.tokens = list(prompt)
        self.n_prompt = len(self.tokens)
        self.sampler = sampler
        self.matcher = matcher
        self.max_tokens = max_tokens
        self.slot: Slot | None = None
        self.arrival = -1  # its place in the order of arrival, once it is queued
        self.n_had = 0  # tokens at the start that were in a slot of its own before, perhaps to be computed again
        self.out: deque[Step] = deque()
        self.finish_reason: str | None = None
        self.error: BaseException | None = None
        self.abandoned = False  # nobody reads it any more
        self.stopped = False  # its watch has seen enough
        self.timings = Timings(n_prompt=self.n_prompt)
        self.jump_forward = True
        self.drafter: Drafter | None = None
        self.ends_forced = False  # its last token was put in, not chosen
        self.n_logprobs: int | None = None
        self.fork_bias: Mapping[int, float] = {}
        #: Tokens at the start of the prompt that hold nobody's secrets: saved for other processes, see `Prefixes`.
        self.n_shareable = 0
        #: Sees every step before the next token is chosen, in the thread that decodes. It may call `limit` and `stop`;
        #: the tokens it returns are put in behind the step as if they had been chosen.
        self.watch: Callable[[Step], Tokens[int]] | None = None
        #: Tokens that would end the grammar from where it stands; None where that is not known.
        self.way_out: list[int] | None = None
        #: Whether the grammar asks for something, so that the empty text is no reply.
        self.obliged = False
        if matcher:
            self.way_out = matcher.way_out()
            if self.way_out is None or len(self.way_out) > max_tokens:
                self.way_out = matcher.way_out(thorough=True)
            self.obliged = self.way_out != []

    @property
    def n_generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.n_prompt

    @property
    def n_left(self) -> int:
        """Tokens that may still be generated."""
        return self.max_tokens - self.n_generated

    @property
    def pending(self) -> list[int]:
        """Tokens that are not in the cache yet."""
        assert self.slot
        return self.tokens[len(self.slot.cached) :]

    @property
    def n_pending(self) -> int:
        """How many those are."""
        assert self.slot
        return len(self.tokens) - len(self.slot.cached)

    @property
    def is_behind(self) -> bool:
        """Whether its reader has so much to read that it must wait."""
        return len(self.out) >= _MOST_UNREAD_STEPS

    def count_cached(self, n_tokens: int) -> None:
        """So many tokens at its start are in its slot without having been computed for it, but for those it had."""
        if not self.n_generated:
            self.timings.n_cached += max(0, n_tokens - self.n_had)
        self.n_had = max(self.n_had, n_tokens)

    def limit(self, n_more: int) -> None:
        """Let at most `n_more` tokens follow, and never more than before. Only for its watch."""
        self.max_tokens = max(self.n_generated, min(self.max_tokens, self.n_generated + n_more))

    def stop(self) -> None:
        """End with the step at hand. Only for its watch."""
        self.stopped = True
