"""What each message of a conversation takes of the context: exact counts, which add up to the prompt's.

It asks the template where in the prompt a message ends: what the prompt has in common with the prompts of its first
messages. A message that the template tells together with the next one (old thoughts, say) counts there.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from .errors import TemplateError
from .requests.request import Message, Request
from .template import Prompt
from .transcript import CUT


@dataclass(frozen=True, slots=True)
class ContextUse:
    """How full a context is; all numbers are tokens.

    Args:
        n_ctx: what it holds, prompt and reply together; None where the model does not say.
        messages: what each message takes, with the marks around it.
        n_tools: the descriptions of the tools.
        n_rest: what the template adds: a system message of its own, the mark that opens the reply.
        is_estimate: the model cannot count; a token is taken for four characters.
    """

    n_ctx: int | None
    messages: tuple[int, ...]
    n_tools: int
    n_rest: int
    is_estimate: bool = False

    @property
    def n_used(self) -> int:
        """The whole prompt."""
        return sum(self.messages) + self.n_tools + self.n_rest

    @property
    def n_left(self) -> int | None:
        """What a reply may still take; negative where the prompt is too long."""
        return None if self.n_ctx is None else self.n_ctx - self.n_used


def context_use(
    request: Request,
    n_ctx: int,
    render: Callable[[Request], Prompt],
    tokenize: Callable[[Prompt], list[int]],
    ends: re.Pattern[str],
) -> ContextUse:
    """Count a request's prompt.

    Args:
        request: the conversation, with its tools.
        n_ctx: tokens that the context holds.
        render: makes the prompt of a request.
        tokenize: its tokens.
        ends: matches the marks that end a turn.
    """
    text = CUT.join(render(request).pieces)
    places = _places(request, text, render, ends)
    counts = [len(tokenize(Prompt(tuple(text[:place].split(CUT))))) if place else 0 for place in places]
    n_all = len(tokenize(render(request)))
    costs = [after - before for before, after in itertools.pairwise(counts)]
    n_rest, n_tools = counts[0] + n_all - counts[-1], _n_tools(request, render, tokenize)
    if n_tools <= counts[0]:
        n_rest -= n_tools
    elif costs and n_tools <= costs[0]:  # they stand in the system message
        costs[0] -= n_tools
    else:  # they stand in another one, and count there
        n_tools = 0
    return ContextUse(n_ctx, tuple(costs), n_tools, n_rest)


def _places(request: Request, text: str, render: Callable[[Request], Prompt], ends: re.Pattern[str]) -> list[int]:
    """Where in the prompt's text what stands before the messages ends, and each message."""
    roles = [message["role"] for message in request.messages]
    next_user: Message = {"role": "user", "content": "a"}
    places = [0]
    for n in range(len(roles) + 1):
        found = 0
        for more in ((), (next_user,)):
            if not n and not more:  # templates want a message
                continue
            probe = dataclasses.replace(request, messages=(*request.messages[:n], *more))
            try:
                told = CUT.join(render(probe).pieces)
            except TemplateError:  # it refuses such a conversation
                continue
            common = _n_common(text, told)
            in_turn = roles[n - 1 : n + 1] == ["tool", "tool"] and more  # the results of a reply may be one turn
            last = max((mark.end() for mark in ends.finditer(text, 0, common)), default=0)
            found = max(found, common if in_turn else last)
        places.append(max(found, places[-1]))
    return places[1:]


def _n_tools(request: Request, render: Callable[[Request], Prompt], tokenize: Callable[[Prompt], list[int]]) -> int:
    head = [m for m in request.messages[:1] if m["role"] in ("system", "developer")]
    probe = dataclasses.replace(request, messages=(*head, {"role": "user", "content": "a"}))
    try:
        counts = [len(tokenize(render(p))) for p in (probe, dataclasses.replace(probe, tools=(), tool_choice="auto"))]
    except TemplateError:
        return 0
    return max(0, counts[0] - counts[1])


def _n_common(a: str, b: str) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
