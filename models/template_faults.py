"""What a chat template does wrong, found by rendering a conversation with it: templates in GGUFs are often damaged.

Looks at the text that comes out, not at the Jinja. Does not know families.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .call_writing import WrittenCall
from .errors import TemplateError
from .template import render_prompt

_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find_tool",
            "description": "Find.",
            "parameters": {"type": "object", "properties": {"wanted": {"type": "string"}}, "required": ["wanted"]},
        },
    }
]
_QUESTION = {"role": "user", "content": "question-text"}
_CALL = WrittenCall("call_tool", {"wanted": "value-text"}, "abcdef123")
_VARIABLES = {"bos_token": "", "eos_token": ""}


def template_faults(template: str) -> list[str]:
    """The faults, each a sentence's end behind "the chat template"; none for a template that can be relied on.

    A template without a place for tools has none by that: it is spoken to in the text protocol.
    """
    try:
        plain = _render(template, [{"role": "system", "content": "system-text"}, _QUESTION])
    except TemplateError:
        try:
            plain = _render(template, [_QUESTION]) + "system-text"  # some families have no system message
        except TemplateError as error:
            return [f"cannot be used: {error}"]
    faults = [f"loses the {what}" for what in ("system", "question") if f"{what}-text" not in plain]
    if "tools" not in template:
        return faults
    try:
        text = probe_text(template, [_CALL])
    except TemplateError as error:
        return [*faults, f"refuses a conversation with calls: {error}"]
    for name, lost in (
        ("find_tool", "loses the tools"),
        ("call_tool", "loses the calls"),
        ("value-text", "loses the calls' arguments"),
        ("result-text", "loses the results"),
    ):
        if name not in text:
            faults.append(lost)
    if '\\"value-text\\"' in text:
        faults.append("writes the calls' arguments as text in JSON, escaped twice")
    return faults


def probe_text(template: str, calls: Sequence[WrittenCall]) -> str:
    """What the template writes for a question, these calls and their results.

    Raises:
        TemplateError: it refuses them.
    """
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in calls
        ],
    }
    results = [{"role": "tool", "tool_call_id": c.id, "name": c.name, "content": "result-text"} for c in calls]
    return _render(template, [_QUESTION, called, *results], _TOOLS)


def _render(template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
    return str(render_prompt(template, messages, tools, variables=_VARIABLES))
