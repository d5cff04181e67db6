"""How full a context is, as lines for a person. It counts nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laploop.models import ContextUse

_MOST_CHARS = 60


def context_lines(use: ContextUse, messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sum, and a line for each part.

    Args:
        use: what was counted.
        messages: of the session; there may be one number more in front, of the agent's system prompt.
    """
    about = "about " if use.is_estimate else ""
    left = "" if use.n_left is None else f" of {use.n_ctx:,}; {max(0, use.n_left):,} are left"
    yield f"The context holds {about}{use.n_used:,} tokens{left}."
    n_system = len(use.messages) - len(messages)
    rows = [(n, "system prompt", "") for n in use.messages[:n_system]]
    rows += [(use.n_tools, "tools", ""), (use.n_rest, "the template's own", "")]
    rows += [(n, str(m["role"]), _beginning(m)) for n, m in zip(use.messages[n_system:], messages, strict=True)]
    yield from (f"{n:>8,}  {what:<10} {text}".rstrip() for n, what, text in rows if n or text)


def _beginning(message: Mapping[str, Any]) -> str:
    """The first words of a message, on one line that any terminal can show."""
    from .visible import clean

    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(part.get("text", "") for part in content)
    calls = [f"→ {c['function']['name']}({c['function']['arguments']})" for c in message.get("tool_calls") or ()]
    text = " ".join(clean(" ".join([content[: 4 * _MOST_CHARS], *calls])).split())
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 2] + " …"
