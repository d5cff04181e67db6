"""How many tokens something takes: the model's own count where it has one, else characters divided by four."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laploop.models import ContextUse

from .json_text import dumps

_CHARS_PER_TOKEN = 4  # the usual rule of thumb for English; an estimate, and marked as one


def count_key(messages: Sequence[Mapping[str, Any]], has_tools: bool) -> str:
    """What was counted, in a few characters."""
    text = dumps([[dict(m) for m in messages], has_tools])
    return hashlib.blake2b(text.encode(), digest_size=9).hexdigest()


def _noting(count: Callable[..., int], note: Callable[[str, int], None]) -> Callable[..., int]:
    noted: set[str] = set()

    def counted(messages: Sequence[Mapping[str, Any]], tools: Any = None) -> int:
        n = int(count(messages, tools))
        if (key := count_key(messages, bool(tools))) not in noted:
            noted.add(key)
            note(key, n)
        return n

    return counted


class TokenCounter:
    """Counts for one model.

    Attributes:
        is_estimate: the model cannot count.
        n_ctx: tokens that its context holds; None if it does not say.

    Args:
        model: what counts.
        tools: in OpenAI's form.
        note: told each count of the model's own, once, with the key of what was counted.
    """

    def __init__(
        self,
        model: object,
        tools: Sequence[dict[str, Any]] = (),
        note: Callable[[str, int], None] | None = None,
    ) -> None:
        count = getattr(model, "count_tokens", None)
        self._count = _noting(count, note) if count is not None and note is not None else count
        self._use = getattr(model, "context_use", None)
        self._tools = list(tools)
        self._around: int | None = None
        self.is_estimate = self._count is None
        self.n_ctx: int | None = getattr(model, "n_ctx", None)

    def of_messages(self, messages: Sequence[dict[str, Any]]) -> int:
        """Tokens of the prompt that these messages make, tools included."""
        if self._count is not None:
            return int(self._count(list(messages), self._tools or None))
        return (sum(len(dumps(m)) for m in messages) + len(dumps(self._tools))) // _CHARS_PER_TOKEN

    def use(self, messages: Sequence[dict[str, Any]]) -> ContextUse:
        """How full the context is with these messages and the tools, and what each message takes of it."""
        if not messages:
            return ContextUse(self.n_ctx, (), 0, 0, self.is_estimate)
        if self._use is not None:
            use: ContextUse = self._use(list(messages), self._tools or None)
            return use
        costs = tuple(self.of_text(dumps(message)) for message in messages)
        n_rest = max(0, self.of_messages(messages) - sum(costs))
        return ContextUse(self.n_ctx, costs, 0, n_rest, self.is_estimate)

    def of_text(self, text: str) -> int:
        """Tokens of a text."""
        if self._count is None:
            return -(-len(text) // _CHARS_PER_TOKEN)
        if self._around is None:
            self._around = self._in_message("x") - 1
        return max(0, self._in_message(text) - self._around)

    def is_longer(self, text: str, n_most: int) -> bool:
        """Whether the text takes more than `n_most` tokens; quick for what is much shorter or much longer."""
        if len(text) * 4 <= n_most:  # no token is shorter than a byte
            return False
        return len(text) > 16 * n_most or self.of_text(text) > n_most

    def _in_message(self, text: str) -> int:
        assert self._count is not None
        return int(self._count([{"role": "user", "content": text}]))
