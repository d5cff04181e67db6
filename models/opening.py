"""Whether a reply is a call or a text, where a family can begin a call in several ways.

Sampling sees one token at a time: a call that can begin in five ways loses against a text that begins in one, and under
a grammar that masks four of them what is left is not what the model leaned to. So all tokens that can begin a call are
weighed together against all others, before the reply is written; the grammar then lets only the one or the other begin.
To a person the name of the tool counts too; behind results, calls that have theirs do not. It knows tokens and marks,
not what a tool does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from laploop.engine import Engine, SamplingParams
from laploop.engine.sequence import Sequence as Generation
from laploop.engine.vocabulary import Vocabulary

from .dialect import Dialect
from .language import language_of
from .requests.plain import text_of
from .requests.request import Request

#: Tokens of the context that weighing may take behind the prompt, at most.
N_FOR_OPENING = 64
_N_WEIGHED = 64  # the most probable tokens; the others together have less than a hundredth
_N_REPEATED = 48  # tokens of an earlier call that are compared; then it is the same
_NEVER = 0.01  # a probability from which on an earlier call does not come again
_N_ASKED_AGAIN = 1000  # characters of a question that are said again; of a longer one the beginning and the end


def is_open(request: Request, dialect: Dialect) -> bool:
    """Whether the reply to `request` may be both a call and a text, and the family needs weighing."""
    share = dialect.again_share if request.follows_results else dialect.call_share
    may_call = bool(request.allowed_names) and not request.must_call
    return share is not None and may_call and not request.response_format


def weigh(
    request: Request, engine: Engine, ask: Callable[[list[int], SamplingParams], Generation], dialect: Dialect
) -> tuple[Literal["call", "text", "either"], list[Generation]]:
    """Weigh what stands behind a prompt first. The prompt is evaluated for it and stays in the cache.

    Args:
        request: whose tools may be called; it `is_open`.
        engine: of the model.
        ask: makes a generation of one token behind the prompt and these tokens, sampled like this.
        dialect: with a `call_share` and an `again_share`.

    Returns:
        What the reply should be, and the generations that told. Behind results the best token decides between a call
        and text, unless the call would be one that has its result: then the reply is text.
    """
    weighing = _Weighing(request, engine, ask, dialect)
    if request.follows_results:
        return "text" if weighing.would_repeat() else "either", weighing.asked
    return "call" if weighing.needs_one() else "text", weighing.asked


def answering(request: Request, dialect: Dialect) -> Request:
    """The same request behind results, but that the reply is text, and that the family's sentence asks for it.

    Small models that were not trained on results take them for something that the user says, and go on showing calls;
    with the question behind the results they answer it (docs/log.md).
    """
    words = replace(request, tool_choice="none")
    asked = next((text_of(m) for m in reversed(request.messages) if m["role"] == "user"), "").strip()
    sentence = dialect.from_results.get(language_of(asked))
    if not (sentence and asked and request.follows_results):
        return words
    if len(asked) > _N_ASKED_AGAIN:
        asked = f"{asked[: _N_ASKED_AGAIN // 2]} … {asked[-_N_ASKED_AGAIN // 2 :]}"
    line = {"role": "user", "content": sentence.replace("{question}", asked)}
    return replace(words, messages=(*request.messages, line))


class _Weighing:
    """What the model would write behind a prompt, token by token."""

    def __init__(
        self,
        request: Request,
        engine: Engine,
        ask: Callable[[list[int], SamplingParams], Generation],
        dialect: Dialect,
    ) -> None:
        self.asked = list[Generation]()
        self._request, self._dialect, self._ask, self._engine = request, dialect, ask, engine
        self._vocabulary = engine.vocabulary
        # What ends the reply counts as text, but must not end this: a reply that ends has no probabilities.
        never = dict.fromkeys(self._vocabulary.eog, -100.0)
        self._sampling = SamplingParams(temperature=0.0, n_logprobs=_N_WEIGHED, logit_bias=never)
        self._wrapper = next(w for w in dialect.wrappers if w.is_written and w.many)
        self._seen = dict[tuple[int, ...], Sequence[tuple[int, float]]]()

    def needs_one(self) -> bool:
        """Whether all that can begin a call, times the probability of the name that comes, reaches the family's share.

        Small models lean to call where no tool fits, but then they waver which: the product tells a call that is
        needed better than the share alone (docs/log.md).
        """
        least, name, names = self._dialect.call_share or 0.0, "", self._request.allowed_names
        share, tokens = self._share(), self._begun()
        while share >= least and name not in names:
            next_tokens = ((t, p) for t, p in self._top(tokens) if _continues(name + self._name_of(t), names))
            best = next(next_tokens, None)
            if best is None:  # another name, which is not offered
                share = 0.0
                break
            tokens, share = [*tokens, best[0]], share * math.exp(best[1])
            name = (name + self._name_of(best[0])).partition('"')[0]
        return share >= least

    def would_repeat(self) -> bool:
        """Whether a call is likely, and only because calls that have their results would be made again."""
        least, share, had = self._dialect.again_share or 0.0, self._share(), 0.0
        if share < least:
            return False
        for call in dict.fromkeys(calls_since_asked(self._request)):
            had += self._probability(call)
            if share * (1 - had) < least:
                return True
        return False

    def _share(self) -> float:
        return share_of_calls(self._top([]), self._vocabulary, self._dialect)

    def _begun(self, call: str = '{"name": "') -> list[int]:
        """The tokens of a call, or of its beginning."""
        return self._vocabulary.tokenize(f"{self._wrapper.open}\n{call}", add_bos=False)

    def _probability(self, call: str) -> float:
        """How probable it is that a call, once begun, is this one."""
        tokens, begun, probability = self._begun(call), self._begun(), 1.0
        while begun != tokens[: len(begun)]:  # their joint is another where the call goes on
            begun.pop()
        for at in range(len(begun), min(len(tokens), _N_REPEATED)):
            if probability < _NEVER:
                return 0.0
            # The last token may be one with what stands behind the call.
            wanted, is_last = self._name_of(tokens[at]), at == len(tokens) - 1
            probability *= sum(
                math.exp(logprob)
                for token, logprob in self._top(tokens[:at])
                if token == tokens[at] or (is_last and self._name_of(token).startswith(wanted))
            )
        return probability

    def _top(self, tokens: list[int]) -> Sequence[tuple[int, float]]:
        """The most probable tokens behind the prompt and these tokens, with the logarithms of their probabilities."""
        if tuple(tokens) not in self._seen:
            self.asked.append(self._ask(tokens, self._sampling))
            self._seen[tuple(tokens)] = next(iter(self._engine.read(self.asked[-1]))).logprobs[0].top
        return self._seen[tuple(tokens)]

    def _name_of(self, token: int) -> str:
        return self._vocabulary.name_of(token)


def _continues(text: str, names: Sequence[str]) -> bool:
    """Whether a text is the beginning of a name, or goes on behind one."""
    return any(f'{name}"'.startswith(text) or text.startswith(f'{name}"') for name in names)


def calls_since_asked(request: Request) -> Iterator[str]:
    """The calls behind the last word of the user, in each way in which the model may write them again: as the prompt
    tells them (clients send arguments back without the spaces that they came with), and as models write JSON."""
    for message in reversed(request.messages):
        if message["role"] == "user":
            return
        for call in message.get("tool_calls") or ():
            name, told = json.dumps(call["function"]["name"], ensure_ascii=False), call["function"]["arguments"]
            try:
                value = json.loads(told) if isinstance(told, str) else told
            except ValueError:
                continue
            for arguments in (told, json.dumps(value, ensure_ascii=False)):
                if isinstance(arguments, str):
                    yield f'{{"name": {name}, "arguments": {arguments}}}'


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
