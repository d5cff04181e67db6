"""How the template will tell a reply in the prompts that follow it.

Templates do not always repeat a reply letter by letter: they put line feeds in order, and leave an empty block of
thoughts out of a history. As long as that is all, the reply's tokens may stay as they were sampled. What was written in
other marks than the template's (a call in a fence) must not: a small model that sees its fence again goes on calling,
docs/log.md has the figures. Knows messages and templates; no tokens.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import TemplateError
from .requests.request import Request
from .template import Prompt
from .transcript import CUT

# What is said next, which nothing else in a prompt is: a noncharacter.
_NEXT = "\ufdd2"


def retold(
    render: Callable[[Request], Prompt],
    request: Request,
    prompt: Prompt,
    raw: str,
    message: Mapping[str, Any],
    ends: re.Pattern[str],
    think: tuple[str, str] | None,
) -> Prompt | None:
    """The beginning that prompts will have that go on behind a reply, up to the mark that ends the reply.

    Args:
        render: makes the prompt of a request.
        request: what the reply answers.
        prompt: its prompt.
        raw: what was written behind it.
        message: what that says.
        ends: matches the marks that end a turn.
        think: the tags of a block of thoughts.

    Returns:
        None where it will be another text than was written, but for white space and empty blocks of thoughts.
    """
    calls = message.get("tool_calls") or []
    results = [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]
    following = results or [{"role": "user", "content": ""}]
    following[0]["content"] = _NEXT
    later = dataclasses.replace(request, messages=(*request.messages, dict(message), *following))
    try:
        text = CUT.join(render(later).pieces)
    except TemplateError:  # it refuses such a conversation
        return None
    text = text[: max(text.rfind(_NEXT), 0)]
    text = text[: max((found.start() for found in ends.finditer(text)), default=0)]
    if _bare(text, think) != _bare(CUT.join(prompt.pieces) + raw, think):
        return None
    return Prompt(tuple(text.split(CUT)))


def _bare(text: str, think: tuple[str, str] | None) -> str:
    """Without white space and empty blocks of thoughts."""
    text = "".join(text.split())
    return text.replace("".join(think), "") if think else text
