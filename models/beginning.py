"""Which part of a prompt holds nobody's text: what all conversations with the same system prompt and tools begin with.

It asks the template: what two prompts that differ only in what the user says have in common. Knows no template's form,
and not what is done with the part: the engine may save it on disk.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from threading import Lock

from laploop.engine.slots import shared_prefix

from .errors import TemplateError
from .requests.request import Message, Request
from .template import Prompt
from .transcript import CUT

_MOST = 32


class Beginnings:
    """The beginnings seen so far; bounded, thread safe.

    Args:
        render: makes the prompt of a request.
        tokenize: tokens of a text's pieces, which begin a sequence.
    """

    def __init__(self, render: Callable[[Request], Prompt], tokenize: Callable[[Sequence[str]], list[int]]) -> None:
        self._render, self._tokenize = render, tokenize
        self._known: dict[str, list[int]] = {}
        self._lock = Lock()

    def n_tokens(self, request: Request, tokens: Sequence[int]) -> int:
        """How many of a prompt's tokens the system prompt and the tools come to, and the marks around them.

        Args:
            request: what the prompt was made of.
            tokens: the prompt's.
        """
        # A second system message may be a summary of what was said.
        system = [m for m in request.messages[:1] if m.get("role") in ("system", "developer")]
        key = json.dumps([system, request.tools, request.enable_thinking], default=str)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = self._beginning(request, system)
            with self._lock:
                self._known[key] = known
                while len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]
        return shared_prefix(known, tokens)

    def _beginning(self, request: Request, system: list[Message]) -> list[int]:
        texts = []
        for said in ("a", "b"):
            probe = dataclasses.replace(request, messages=(*system, {"role": "user", "content": said}))
            try:
                texts.append(CUT.join(self._render(probe).pieces))
            except TemplateError:  # it asks for more than that: nothing is known to be the same
                return []
        text = texts[0][: shared_prefix(*texts)]
        return self._tokenize(text.split(CUT)) if text else []
