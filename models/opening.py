"""Whether a reply begins with a call, where a family can begin one in several ways.

Sampling sees one token at a time: a call that can begin in five ways loses against a text that begins in one, and under
a grammar that masks four of them what is left is not what the model leaned to. So all tokens that can begin a call are
weighed together against all others, before the reply is written, and so is the name of the tool; the grammar then lets
only the one or the other begin. It knows tokens and marks, not what a tool does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from laploop.engine import Engine, SamplingParams
from laploop.engine.sequence import Sequence as Generation
from laploop.engine.vocabulary import Vocabulary

from .dialect import Dialect
from .requests.request import Request

#: Tokens of the context that weighing may take behind the prompt, at most.
N_FOR_OPENING = 64
_N_WEIGHED = 64  # the most probable tokens; the others together have less than a hundredth


def is_open(request: Request, dialect: Dialect) -> bool:
    """Whether the reply to `request` may be both a call and a text, and the family needs weighing."""
    may_call = bool(request.allowed_names) and not request.must_call
    return dialect.call_share is not None and may_call and not (request.follows_results or request.response_format)


def leans_to_call(
    request: Request, engine: Engine, ask: Callable[[list[int], SamplingParams], Generation], dialect: Dialect
) -> tuple[bool, list[Generation]]:
    """Weigh the first token behind a prompt, and how sure the name of a tool would be. The prompt is evaluated for it
    and stays in the cache.

    Small models lean to call where no tool fits, but then they waver which: the share of what can begin a call, times
    the probability of the name that comes, tells a call that is needed better than the share alone (docs/log.md).

    Args:
        request: whose tools may be called.
        engine: of the model.
        ask: makes a generation of one token behind the prompt and these tokens, sampled like this.
        dialect: with a `call_share`.

    Returns:
        Whether that product comes to the family's share, and the generations that told.
    """
    vocabulary, asked, names = engine.vocabulary, list[Generation](), request.allowed_names
    # What ends the reply counts as text, but must not end this: a reply that ends has no probabilities.
    sampling = SamplingParams(temperature=0.0, n_logprobs=_N_WEIGHED, logit_bias=dict.fromkeys(vocabulary.eog, -100.0))

    def top(tokens: list[int]) -> Sequence[tuple[int, float]]:
        asked.append(ask(tokens, sampling))
        return next(iter(engine.read(asked[-1]))).logprobs[0].top

    assert dialect.call_share is not None
    share, name = share_of_calls(top([]), vocabulary, dialect), ""
    wrapper = next(w for w in dialect.wrappers if w.is_written and w.many)
    tokens = vocabulary.tokenize(f'{wrapper.open}\n{{"name": "', add_bos=False)
    while share >= dialect.call_share and name not in names:
        going_on = ((t, p) for t, p in top(tokens) if _continues(name + vocabulary.name_of(t), names))
        best = next(going_on, None)
        if best is None:  # another name, which is not offered
            share = 0.0
            break
        tokens, share = [*tokens, best[0]], share * math.exp(best[1])
        name = (name + vocabulary.name_of(best[0])).partition('"')[0]
    return share >= dialect.call_share, asked


def _continues(text: str, names: Sequence[str]) -> bool:
    """Whether a text is the beginning of a name, or goes on behind one."""
    return any(f'{name}"'.startswith(text) or text.startswith(f'{name}"') for name in names)


def end_bias(vocabulary: Vocabulary, dialect: Dialect) -> dict[int, float]:
    """What makes a block of several calls end unless another call is as probable as `Dialect.more_share` says: for the
    tokens that begin its closing mark, an amount to add to their logits."""
    if dialect.more_share is None:
        return {}
    bias = math.log(dialect.more_share / (1 - dialect.more_share))
    marks = [w.close for w in dialect.wrappers if w.many and w.is_written]
    starts = [vocabulary.tokenize(mark[:n], add_bos=False) for mark in marks for n in range(1, len(mark) + 1)]
    return {tokens[0]: bias for tokens in starts if len(tokens) == 1}


def share_of_calls(top: Sequence[tuple[int, float]], vocabulary: Vocabulary, dialect: Dialect) -> float:
    """The part of these tokens' probability that belongs to those which can begin a call, in a mark of the family's or
    in one of its own invention."""
    beginnings = tuple({w.open[0] for w in dialect.wrappers} | {*dialect.text_never_starts_with, *dialect.stray})
    share = {token: math.exp(logprob) for token, logprob in top}
    of_calls = sum(p for t, p in share.items() if vocabulary.name_of(t).lstrip().startswith(beginnings))
    return of_calls / sum(share.values())
