"""Log-probabilities of the tokens that make up a reply's content, in OpenAI's shape.

A reply has more tokens than its content: thoughts, call syntax, a stop text. Which ones the content is made of is found
by matching the deltas to the text of the tokens, which both come in the same order. It does not know how probabilities
are computed, nor the syntax that lies between.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from .parsing.message import Delta

# OpenAI's API reference, object "chat completion", logprobs: the value of what is very unlikely. JSON has no -inf.
_LEAST = -9999.0


def token_logprob(text: bytes, logprob: float, top: Iterable[tuple[bytes, float]] = ()) -> dict[str, Any]:
    """OpenAI's object for one token.

    Args:
        text: its bytes, which may be a part of a character; `token` then shows U+FFFD, `bytes` is exact.
        logprob: natural logarithm of its probability.
        top: the most probable tokens at its place, the best first.
    """
    return {**_named(text, logprob), "top_logprobs": [_named(*one) for one in top]}


def _named(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text.decode("utf-8", "replace"), "logprob": max(logprob, _LEAST), "bytes": list(text)}


class ContentLogprobs:
    """Hands out each token's object with the content delta that it is in; the others are dropped.

    Invariant: over all deltas, each token comes at most once, in order, and together they spell at least the content (a
    token that reaches beyond it, such as a full stop and line feed in one, is in it), provided that the mark that ends
    a thought shares no token with content.

    Args:
        asked: whether the request wants them; if not, it hands out nothing.
    """

    def __init__(self, asked: bool) -> None:
        self.asked = asked
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._in_reasoning = False
        self._text = ""  # of the tokens, behind the last delta
        self._at = 0  # where it begins, in characters from the reply's beginning
        self._tokens: deque[tuple[int, int, dict[str, Any]]] = deque()  # first character, the one behind it, object

    def add(self, tokens: Iterable[dict[str, Any]]) -> None:
        """Take the objects of the next tokens, before the deltas that they lead to."""
        for token in tokens:
            start = self._at + len(self._text)
            self._text += self._decode(bytes(token["bytes"]))
            self._tokens.append((start, self._at + len(self._text), token))

    def of(self, deltas: Sequence[Delta], in_reasoning: bool) -> list[tuple[Delta, dict[str, Any] | None]]:
        """Each delta and the `logprobs` of its chunk: None where it holds no content, or nobody asked.

        Args:
            deltas: what the tokens so far led to.
            in_reasoning: whether these tokens end inside a thought.
        """
        if not self.asked:
            return [(delta, None) for delta in deltas]
        found = [(delta, self._of(delta)) for delta in deltas]
        thought = self._in_reasoning or any("reasoning_content" in delta for delta in deltas)
        if in_reasoning or (thought and not any("content" in delta for delta in deltas)):
            self._drop()  # it was all thought, or the mark that ends one
        self._in_reasoning = in_reasoning
        return found

    def _of(self, delta: Delta) -> dict[str, Any] | None:
        if content := delta.get("content"):
            at = self._text.find(content)
            if self._text[:at].strip():  # not behind the last content but behind a mark: the end of what came
                at = self._text.rfind(content)
            return {"content": self._take(at, content), "refusal": None}
        if thought := delta.get("reasoning_content"):
            at = self._text.find(thought)
            self._skip(at + len(thought) if at >= 0 else 0)
        return None

    def _drop(self) -> None:
        self._skip(len(self._text))
        self._tokens.clear()

    def _skip(self, n: int) -> None:
        """Pass over `n` characters, and drop the tokens that end within them."""
        self._text, self._at = self._text[n:], self._at + n
        while self._tokens and self._tokens[0][1] <= self._at:
            self._tokens.popleft()

    def _take(self, at: int, text: str) -> list[dict[str, Any]]:
        """The tokens of `text`, which stands at index `at`."""
        if at < 0:
            return []
        start = self._at + at
        self._text, self._at = self._text[at + len(text) :], start + len(text)
        taken = []
        while self._tokens and self._tokens[0][0] < self._at:
            first, behind, token = self._tokens.popleft()
            if behind > start or first >= start:
                taken.append(token)
        return taken
