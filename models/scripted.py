"""The test double: a model that answers with given raw outputs, parsed by the real parser."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from laploop.engine.values import shown

from .completion import ChatCompletionChunk, Cost, Outcome, Stamp, reply_chunks
from .content_logprobs import ContentLogprobs, token_logprob
from .dialect import Dialect, get_dialect
from .errors import ModelError
from .model import Model
from .parsing.parser import OutputParser
from .requests.request import Request
from .schemas.violations import violations


class ScriptedModel(Model):
    """Gives the raw outputs in order, in pieces, as a real model would.

    A request for `n` choices takes `n` turns. Stop texts hold. Each piece is a token that was certain: its `logprobs`
    are 0. What only directs sampling or budgets changes nothing. A missing turn raises; `assert_done` (or leaving the
    `with` block) raises for turns that were not used.

    Args:
        turns: raw texts, or {"raw": text, "finish": "stop" | "length"}.
        enable_thinking: whether the prompts let the model think, where a request does not say.
        dialect: the syntax of the raw texts.
        piece: characters per streamed piece.

    Raises:
        ModelError: the turns are no list, or one of them is no turn.
    """

    def __init__(
        self,
        turns: Sequence[str | Mapping[str, str]],
        *,
        enable_thinking: bool = False,
        dialect: str | Dialect = "qwen3",
        name: str = "scripted",
        piece: int = 4,
    ) -> None:
        if not isinstance(piece, int) or piece < 1:
            raise ModelError(f"piece must be a whole number of characters, at least 1; got {shown(piece)}")
        self.name = name
        self.requests: list[Request] = []
        self._turns = _checked(turns)
        self._n_used = 0
        self._enable_thinking = enable_thinking
        self._dialect = get_dialect(dialect)
        self._piece = piece

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name}, {self.remaining} of {len(self._turns)} turns left>"

    @property
    def can_think(self) -> bool:
        """Whether its syntax has thoughts."""
        return bool(self._dialect.think or self._dialect.labels)

    @property
    def remaining(self) -> int:
        """Turns not yet used."""
        return len(self._turns) - self._n_used

    def assert_done(self) -> None:
        """Raise ModelError if turns are left."""
        if self.remaining > 0:
            raise ModelError(f"{self.remaining} of {len(self._turns)} scripted turns were not used")

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.assert_done()

    def _stream(self, request: Request) -> Iterator[ChatCompletionChunk]:
        if request.n > self.remaining:
            raise ModelError(
                f"request {len(self.requests) + 1} came, but only {len(self._turns)} turns are scripted"
                + (f" and it asks for {request.n} choices" if request.n > 1 else "")
            )
        self.requests.append(request)
        turns = self._turns[self._n_used : self._n_used + request.n]
        self._n_used += request.n
        return reply_chunks(self.name, request.n, lambda index, stamp: self._play(request, turns[index], stamp))

    def _play(
        self, request: Request, turn: str | Mapping[str, str], stamp: Stamp
    ) -> Generator[ChatCompletionChunk, None, Outcome]:
        raw, finish = (turn, "stop") if isinstance(turn, str) else (turn["raw"], turn.get("finish", "stop"))
        thinking = self._enable_thinking if request.enable_thinking is None else request.enable_thinking
        parser = OutputParser(tools=request.tools, enable_thinking=thinking, dialect=self._dialect, stop=request.stop)
        content = ContentLogprobs(request.logprobs)
        n_said = 0  # characters
        calling = None
        yield stamp({"role": "assistant"})
        while n_said < len(raw) and not parser.stopped:
            piece = raw[n_said : n_said + self._piece]
            n_said += len(piece)
            text = piece.encode("utf-8", "replace")
            content.add([token_logprob(text, 0.0, [(text, 0.0)] if request.top_logprobs else ())])
            deltas = parser.feed(piece)
            for delta, logprobs in content.of(deltas, parser.in_reasoning):
                yield stamp(delta, logprobs=logprobs)
            before, calling = calling, parser.calling
            if calling and calling != before:
                yield stamp({}, calling=calling)
        for delta, logprobs in content.of(parser.finish(finish), False):
            yield stamp(delta, logprobs=logprobs)
        # Counts of characters stand in for tokens: a script has no vocabulary.
        parsed, n_prompt = parser.result(), sum(len(str(m.get("content") or "")) for m in request.messages)
        cost = Cost(n_prompt, n_said, n_reasoning=len(parsed.message.get("reasoning_content", "")))
        return Outcome(parsed, raw[:n_said], cost, violations(parsed, request))


def _checked(turns: Any) -> list[str | Mapping[str, str]]:
    if isinstance(turns, str | bytes | Mapping) or not isinstance(turns, Sequence):
        raise ModelError(f"turns is {shown(turns)}; expected a list of raw replies, such as [{shown(turns)}]")
    for i, turn in enumerate(turns):
        facts = turn if isinstance(turn, Mapping) else {"raw": turn}
        fits = isinstance(facts.get("raw"), str) and facts.get("finish", "stop") in ("stop", "length")
        if not fits or facts.keys() - {"raw", "finish"}:
            raise ModelError(
                f'turns[{i}] is {shown(turn)}; expected a raw text, or {{"raw": text, "finish": "stop" or "length"}}'
            )
    return list(turns)
