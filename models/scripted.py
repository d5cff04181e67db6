"""The test double: a model that answers with given raw outputs, parsed by the real parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .completion import ChatCompletionChunk, Reply, usage_of
from .dialect import Dialect
from .errors import ModelError
from .model import Model
from .parser import OutputParser
from .request import Request


class ScriptedModel(Model):
    """Gives the raw outputs in order, in pieces, as a real model would.

    A missing turn raises; `assert_done` (or leaving the `with` block) raises for turns that were not used.

    Args:
        turns: raw texts, or {"raw": text, "finish": "stop" | "length"}.
        enable_thinking: whether the prompts let the model think, where a request does not say.
        dialect: the syntax of the raw texts.
        piece: characters per streamed piece.
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
        self.name = name
        self.requests: list[Request] = []
        self._turns = list(turns)
        self._enable_thinking = enable_thinking
        self._dialect = dialect
        self._piece = piece

    @property
    def remaining(self) -> int:
        """Turns not yet used."""
        return len(self._turns) - len(self.requests)

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
        n = len(self.requests)
        if n >= len(self._turns):
            raise ModelError(f"request {n + 1} came, but only {len(self._turns)} turns are scripted")
        self.requests.append(request)
        turn = self._turns[n]
        raw, finish = (turn, "stop") if isinstance(turn, str) else (turn["raw"], turn.get("finish", "stop"))
        return self._play(request, raw, finish)

    def _play(self, request: Request, raw: str, finish: str) -> Iterator[ChatCompletionChunk]:
        thinking = self._enable_thinking if request.enable_thinking is None else request.enable_thinking
        parser = OutputParser(tools=request.tools, enable_thinking=thinking, dialect=self._dialect)
        reply = Reply(self.name)
        yield reply.chunk({"role": "assistant"})
        for i in range(0, len(raw), self._piece):
            for delta in parser.feed(raw[i : i + self._piece]):
                yield reply.chunk(delta)
        for delta in parser.finish(finish):
            yield reply.chunk(delta)
        # Counts of characters stand in for tokens: a script has no vocabulary.
        usage = usage_of(sum(len(str(m.get("content") or "")) for m in request.messages), len(raw))
        yield reply.last(parser.result(), usage=usage, raw_output=raw)
