"""How a generation grows: a token chosen from logits, what the grammar forces behind it, and its end in time.

Decodes nothing and knows no slots: it is given a context whose last batch holds the logits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Tokens

import numpy as np
from numpy.typing import NDArray

from .matcher import Matcher
from .native import NativeContext
from .sequence import Sequence, Step, TokenLogprob
from .vocabulary import Vocabulary

# From this many tokens before the end of the budget on, the way out of the grammar is watched.
_CLOSING_ZONE = 1024
# What is closed although it might still end by itself is closed this many tokens early.
_MARGIN = 128


class Writer:
    """Writes generations on.

    Args:
        context: where the logits are.
        vocabulary: the model's tokens.
    """

    def __init__(self, context: NativeContext, vocabulary: Vocabulary) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._letter = vocabulary.tokenize("a", add_bos=False)[0]

    def advance(self, sequence: Sequence, at: int) -> None:
        """Choose the next token from the logits of the batch's token `at`, and add what the grammar forces after it."""
        matcher, timings = sequence.matcher, sequence.timings
        if matcher and not sequence.n_generated and sequence.jump_forward and matcher.forced():
            self._append(sequence, [])
            return
        distribution = self._distribution(sequence, at)
        if matcher:
            started = time.perf_counter()
            logits = self._context.logits(at, self._vocabulary.n_tokens)
            matcher.mask(logits)
            if np.isneginf(logits[self._letter]):  # inside a text a letter may come
                for choice, bias in sequence.fork_bias.items():
                    logits[choice] += bias
            timings.mask_s += time.perf_counter() - started
        started = time.perf_counter()
        token = sequence.sampler.sample(self._context, at)
        timings.sample_s += time.perf_counter() - started
        if token in self._vocabulary.eog:
            self._emit(sequence, [], "stop")
        else:
            self._append(sequence, [token], distribution)

    def _distribution(self, sequence: Sequence, at: int) -> _Distribution | None:
        if sequence.n_logprobs is None:
            return None
        return _Distribution(self._context.logits(at, self._vocabulary.n_tokens), sequence.n_logprobs)

    def _append(self, sequence: Sequence, new: list[int], distribution: _Distribution | None = None) -> None:
        """Put `new` behind a generation, and what the grammar forces after it; where its budget would then be too small
        to close the grammar, close it instead."""
        matcher = sequence.matcher
        sequence.ends_forced = False
        if not matcher:
            self._emit(sequence, new, None, distribution)
            return
        started = time.perf_counter()
        before = self._way_out(sequence, matcher)
        matcher.consume(new)
        if sequence.jump_forward and (forced := matcher.forced()):
            sequence.ends_forced = True
            matcher.consume(forced)
            for token in forced:
                sequence.sampler.accept(token)
            new = new + forced
        left = sequence.n_left - len(new)
        after = None
        if before and before[: len(new)] == new:
            after = before[len(new) :]
        elif left <= _CLOSING_ZONE + len(before or ()):
            after = matcher.way_out()
        sequence.timings.mask_s += time.perf_counter() - started
        if before is not None and len(before) <= sequence.n_left and _too_late(before, after, left):
            # In a grammar that asks for nothing, what was cut is free text, or a call that had just begun.
            self._emit(sequence, before, "stop" if sequence.obliged else "length")
            return
        sequence.way_out = after
        complete = matcher.must_end or (sequence.obliged and left == 0 and matcher.may_end)
        self._emit(sequence, new, "stop" if complete and left >= 0 else None, distribution)

    def _way_out(self, sequence: Sequence, matcher: Matcher) -> list[int] | None:
        """The way out from where the grammar stands, once the end of the budget is in sight."""
        left, known = sequence.n_left, sequence.way_out
        if left > _CLOSING_ZONE or (known is not None and len(known) <= left):
            return known
        way_out = matcher.way_out() if known is None else known
        if way_out is None or len(way_out) > left:
            way_out = matcher.way_out(thorough=True)
        return way_out

    def _emit(
        self,
        sequence: Sequence,
        tokens: list[int],
        finish_reason: str | None,
        distribution: _Distribution | None = None,
    ) -> None:
        is_whole = len(tokens) <= sequence.n_left
        tokens = tokens[: sequence.n_left]
        sequence.tokens += tokens
        sequence.timings.n_generated = sequence.n_generated
        logprobs: tuple[TokenLogprob, ...] = ()
        if sequence.n_logprobs is not None:  # what was put in was not chosen: it was certain
            logprobs = tuple(distribution.of(t) if distribution else TokenLogprob(t, 0.0) for t in tokens)
        step = Step(tuple(tokens), self._vocabulary.bytes_of(tokens), None, logprobs)
        put_in: list[int] = list(sequence.watch(step)) if sequence.watch else []
        if sequence.stopped:
            finish_reason = "stop"
        elif not finish_reason and sequence.n_left <= 0:  # perhaps the watch has just made it so
            matcher = sequence.matcher
            at_end = is_whole and sequence.obliged and matcher is not None and matcher.may_end
            finish_reason = "stop" if at_end else "length"
        # The step first: whoever sees the reason must find the step.
        sequence.out.append(step._replace(finish_reason=finish_reason))
        sequence.finish_reason = finish_reason
        if put_in and not finish_reason:
            for token in put_in:
                sequence.sampler.accept(token)
            self._append(sequence, put_in)


class _Distribution:
    """The probabilities of the next token, taken down before a mask is written into the logits.

    Args:
        logits: (n_vocab,) float32.
        n_top: how many of the most probable tokens to keep.
    """

    def __init__(self, logits: NDArray[np.float32], n_top: int) -> None:
        best = logits.max()
        self._logits = logits
        n_top = min(n_top, len(logits))
        self._log_sum = float(best + np.log(np.exp(logits - best, dtype=np.float64).sum()))
        top: Tokens[int] = np.argpartition(logits, -n_top)[-n_top:].tolist() if n_top else []
        ranked = sorted(((t, float(logits[t]) - self._log_sum) for t in top), key=lambda pair: -pair[1])
        self._top = tuple(ranked)

    def of(self, token: int) -> TokenLogprob:
        """The chosen token's; a mask has left its logit as it was."""
        return TokenLogprob(token, float(self._logits[token]) - self._log_sum, self._top)


def _too_late(before: list[int], after: list[int] | None, left: int) -> bool:
    if after is None:  # none was found; perhaps there is one further on
        return left <= len(before) + _MARGIN
    return len(after) > left
