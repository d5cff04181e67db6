"""A conversation in a file: which text was made of which tokens, and the KV state of what the model has read of it.

The messages are not in it; whoever keeps them gives them. Both parts are true by themselves: a later prompt uses the
tokens as far as its text is the same, and the state as far as its tokens are.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path

from laploop.engine import Engine, StateFileError

from .errors import TemplateError
from .requests.request import Request
from .template import Prompt
from .transcript import CUT, Transcripts


def save_conversation(
    path: Path,
    request: Request,
    engine: Engine,
    transcripts: Transcripts,
    render: Callable[[Request], Prompt],
    most_bytes: int,
) -> int:
    """Write what a conversation has cost so far; see `ChatModel.save_state`.

    Args:
        path: the file.
        request: the conversation.
        engine, transcripts, render: the model's.
        most_bytes: most bytes of keys and values.
    """
    prompt = _next_prompt(request, render)
    text, tokens = transcripts.longest(prompt)
    note = json.dumps({"text": text, "tokens": tokens}).encode()
    return engine.save_state(path, transcripts.tokens_of(prompt), note, most_bytes=most_bytes)


def load_conversation(path: Path, engine: Engine, transcripts: Transcripts) -> int:
    """Make a model continue from a file; see `ChatModel.load_state`."""
    try:
        n_tokens, note = engine.load_state(path)
        text, tokens = _checked(path, note, engine.vocabulary.n_tokens)
    except FileNotFoundError:
        return 0
    except StateFileError as error:
        warnings.warn(f"{error}; the conversation is read anew", stacklevel=3)
        return 0
    if text:
        transcripts.remember(Prompt(tuple(text.split(CUT))), "", tokens)
    return n_tokens


def _next_prompt(request: Request, render: Callable[[Request], Prompt]) -> Prompt:
    """A prompt in which the user has gone on: templates tell old replies otherwise than the last one."""
    said = {"role": "user", "content": "a"}
    try:
        return render(dataclasses.replace(request, messages=(*request.messages, said)))
    except TemplateError:  # it refuses two user messages in a row
        return render(request)


def _checked(path: Path, note: bytes, n_vocabulary: int) -> tuple[str, list[int]]:
    """The text and the tokens of a note."""
    try:
        value = json.loads(note)
        text, tokens = value["text"], value["tokens"]
        good = isinstance(text, str) and all(isinstance(t, int) and 0 <= t < n_vocabulary for t in tokens)
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise StateFileError(f"{path} cannot be used: it is no conversation of this version")
    return text, tokens
