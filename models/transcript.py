"""Which tokens a conversation's text was made of, so that a longer prompt continues them instead of tokenizing anew.

What a model sampled need not be what tokenizing its text would give; keeping the sampled tokens keeps the KV cache
valid. The text decides: tokens are reused only as far as the new rendering repeats it letter by letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from .template import Prompt

CUT = "\ufdd0"  # the joint of two pieces, see template.py: cut and uncut text must not be taken for the same
_MOST = 64


class Transcripts:
    """The last conversations' texts and tokens; bounded, thread safe.

    Args:
        tokenize: tokens of a text's pieces; its second argument says whether they begin a sequence.
    """

    def __init__(self, tokenize: Callable[[Sequence[str], bool], list[int]]) -> None:
        self._tokenize = tokenize
        self._known: dict[str, list[int]] = {}
        self._lock = Lock()

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt: those of the longest remembered text that it begins with, then the new tail's."""
        text = CUT.join(prompt.pieces)
        known, head = self.longest(prompt)
        tail = text[len(known) :]
        return head + (self._tokenize(tail.split(CUT), not known) if tail else [])

    def longest(self, prompt: Prompt) -> tuple[str, list[int]]:
        """The longest remembered text that a prompt begins with, and its tokens; nothing of either if there is none."""
        text = CUT.join(prompt.pieces)
        with self._lock:
            known = max((k for k in self._known if text.startswith(k)), key=len, default="")
            return known, self._known[known] if known else []

    def remember(self, prompt: Prompt, output: str, tokens: Sequence[int]) -> None:
        """Keep the tokens of a prompt and of the output that followed it."""
        with self._lock:
            text = CUT.join(prompt.pieces) + output
            self._known.pop(text, None)  # seen again: it becomes the newest
            self._known[text] = list(tokens)
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
