"""How the template will tell a reply in the prompts that follow it.

Templates do not always repeat what a model wrote: calls come in the native marks where the model took others, line
feeds are put in order, an empty block of thoughts is left out. As long as all of the reply's message is told, it is the
same reply, and its tokens may stay as they were sampled. Knows messages and templates; no tokens.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from laploop.engine.slots import shared_prefix

from .errors import TemplateError
from .parsing.message import ParsedOutput
from .requests.request import Request
from .template import Prompt
from .transcript import CUT

# What is said next, which nothing else in a prompt is: a noncharacter.
_NEXT = "\ufdd2"


def retold(
    render: Callable[[Request], Prompt], request: Request, parsed: ParsedOutput, ends: re.Pattern[str]
) -> Prompt | None:
    """The beginning that prompts will have that go on behind a reply, up to the mark that ends the reply.

    Args:
        render: makes the prompt of a request.
        request: what the reply answers.
        parsed: the reply.
        ends: matches the marks that end a turn.

    Returns:
        None where the template leaves something of the reply out (old thoughts), where the reply holds the text of a
        mark, which must come back as text and not as the mark that was sampled, or where nobody knows where it ends.
    """
    message = parsed.message
    content, thoughts = message.get("content") or "", message.get("reasoning_content") or ""
    calls = message.get("tool_calls") or []
    if parsed.invalid_tool_calls or not (content or calls):
        return None
    try:
        text = _text(render, request, [message, *_next(calls)])
        said = {**message, "content": _NEXT, **({"reasoning_content": _NEXT} if thoughts else {})}
        other = _text(render, request, [said, *_next(calls)])
    except TemplateError:  # it refuses such a conversation
        return None
    text = text[: max(text.rfind(_NEXT), 0)]
    last = max((found.start() for found in ends.finditer(text)), default=0)
    told = text[shared_prefix(text, other) : last]
    names = [call["function"]["name"] for call in calls]
    if CUT in told or not all(part.strip() in told for part in (content, thoughts, *names)):
        return None
    return Prompt(tuple(text[:last].split(CUT)))


def _text(render: Callable[[Request], Prompt], request: Request, more: list[dict[str, Any]]) -> str:
    return CUT.join(render(dataclasses.replace(request, messages=(*request.messages, *more))).pieces)


def _next(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results = [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]
    return [{**results[0], "content": _NEXT}, *results[1:]] if results else [{"role": "user", "content": _NEXT}]
