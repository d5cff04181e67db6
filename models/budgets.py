"""Thinking and answer within their budgets: a watch that reads a generation as it grows.

Knows the parser's states and how many tokens there are; not what the text says.
"""

from __future__ import annotations

import codecs
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from laploop.engine import Engine
from laploop.engine.sequence import Sequence as Generation
from laploop.engine.sequence import Step

from .content_logprobs import ContentLogprobs, token_logprob
from .dialect import Dialect
from .parsing.parser import Delta, OutputParser
from .requests.request import Request

# Tags and line feeds around a thinking block, in tokens; generous.
_AROUND_THOUGHTS = 64
# What thinking leaves of the room for the answer, where nothing else limits it.
_ANSWERS_SHARE = 4


class Budgets:
    """How many tokens thinking and answer may have.

    Args:
        request: its `thinking_budget` and `max_tokens` count.
        thinking: whether the reply may think.
        n_room: tokens that the context holds behind the prompt.
        n_cut: tokens of the sentence that closes a block of thoughts.
        by_default: most tokens of thoughts where the request does not say.
    """

    def __init__(
        self, request: Request, thinking: bool, n_room: int, n_cut: int, by_default: int | None = None
    ) -> None:
        #: Most tokens of the answer; None for what there is room for.
        self.answer = request.max_tokens
        #: Most tokens of thoughts, of which the answer's share of the room is kept free; None where there is no room
        #: for both.
        self.thoughts: int | None = None
        #: Most tokens of the whole reply; None for what there is room for.
        self.all = request.max_tokens
        if thinking:
            share = n_room // _ANSWERS_SHARE
            free = n_room - min(request.max_tokens or share, share) - n_cut - _AROUND_THOUGHTS
            asked = by_default if request.thinking_budget is None else request.thinking_budget
            asked = 0 if request.enable_thinking is False else asked  # the prompt opened the block
            wanted = [n for n in (asked, free if free > 0 else None) if n is not None]
            self.thoughts = min(wanted, default=None)
            self.all = None
            if request.max_tokens and self.thoughts is not None:
                # The less is reserved, the more generations can run at once.
                self.all = self.thoughts + n_cut + request.max_tokens + _AROUND_THOUGHTS


class Watch:
    """Parses a generation as it grows, and keeps thinking and answer within their budgets.

    The engine calls it for each step before it chooses the next token. What it does depends on the tokens alone, not
    on when the reader comes to read them: with several generations at once, a reader may be many steps behind.

    Args:
        engine: whose generation it is.
        generation: the one to watch.
        parser: reads it.
        budgets: what it keeps to.
        content: hands out the tokens' probabilities.
    """

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        parser: OutputParser,
        budgets: Budgets,
        content: ContentLogprobs,
    ) -> None:
        self._engine, self._parser, self._budgets = engine, parser, budgets
        # It holds its watch. A strong reference back, and only a full garbage collection, which is rare in a process
        # with many objects, would free them with their grammar: 17 kB a reply (docs/log.md).
        self._generation: Generation = weakref.proxy(generation)
        self._content = content
        self._answering = not parser.may_think
        self._thinking = False  # the last step ended inside a block
        self._n_inside = 0  # tokens of steps that ended inside a block
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.n_reasoning = 0  # tokens up to the mark that closes the block
        self.deltas: deque[list[tuple[Delta, dict[str, Any] | None]]] = deque()  # one list a step

    @property
    def calling(self) -> str | None:
        """The tool whose call is being written; see `OutputParser.calling`."""
        return self._parser.calling

    def __call__(self, step: Step) -> Sequence[int]:
        """Take a step; return the tokens to put in behind it."""
        deltas = self._feed(step)
        was_thinking, self._thinking = self._thinking, self._parser.in_reasoning
        if self._thinking:
            self.n_reasoning = self._generation.n_generated
        elif was_thinking or any("reasoning_content" in delta for delta in deltas):
            self.n_reasoning = self._generation.n_generated - self._n_behind_thoughts(step)
        if self._parser.stopped:
            self._generation.stop()
        elif self._thinking:
            return self._cut(step)
        elif not self._answering and self._parser.answering:
            self._answering = True  # max_tokens is the answer's; thinking does not eat it
            if self._budgets.answer:
                self._generation.limit(self._n_left(step))
        return ()

    def _feed(self, step: Step) -> list[Delta]:
        if self._content.asked:
            name = self._engine.vocabulary.bytes_of
            self._content.add(
                token_logprob(name([t.token]), t.logprob, [(name([token]), logprob) for token, logprob in t.top])
                for t in step.logprobs
            )
        deltas = self._parser.feed(step.text)
        self.deltas.append(self._content.of(deltas, self._parser.in_reasoning))
        return deltas

    def _cut(self, step: Step) -> Sequence[int]:
        """What closes the block, once its budget is used up."""
        self._n_inside += len(step.tokens)
        self._decoder.decode(step.text)
        inside_character = bool(self._decoder.getstate()[0])
        if self._budgets.thoughts is None or self._n_inside < self._budgets.thoughts or inside_character:
            return ()
        if self._n_first_line() is not None:
            return ()  # it is over; which label follows is not known yet
        return self._engine.vocabulary.tokenize(self._parser.dialect.think_cut, add_bos=False)

    def _n_left(self, step: Step) -> int:
        """Tokens that the answer may still have. Before it was known to be the answer, nothing kept a required call
        short: it has at least what it takes to close it."""
        assert self._budgets.answer
        least = len(self._generation.way_out or ()) if self._generation.obliged else 0
        return max(self._budgets.answer - self._n_behind_thoughts(step), least)

    def _n_behind_thoughts(self, step: Step) -> int:
        """How many of the step's tokens belong to the answer; the line feeds behind the closing tag do not."""
        if self._parser.dialect.labels:
            return self._generation.n_generated - (self._n_first_line() or 0)
        texts = [self._engine.vocabulary.bytes_of([token]) for token in step.tokens]
        close = (self._parser.dialect.think or ("", ""))[1].encode()
        n = next((i for i in range(1, len(texts) + 1) if close in b"".join(texts[:i])), 0)
        while n < len(texts) and self.n_reasoning and not texts[n].strip():
            n += 1
        return len(texts) - n

    def _n_first_line(self) -> int | None:
        """In a text protocol, tokens of the thought, which is the first line; None if there is none or it goes on."""
        labels, generation = self._parser.dialect.labels, self._generation
        texts = [self._engine.vocabulary.bytes_of([t]) for t in generation.tokens[generation.n_prompt :]]
        if not labels or not b"".join(texts).startswith(labels.thought.encode()):
            return None
        return next((n for n, text in enumerate(texts, 1) if b"\n" in text), None)


def n_cut(engine: Engine, dialect: Dialect) -> int:
    """Tokens of the sentence that closes a block of thoughts."""
    return len(engine.vocabulary.tokenize(dialect.think_cut, add_bos=False)) if dialect.think_cut else 0
