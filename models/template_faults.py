"""What a chat template does wrong, found by rendering a conversation with it: templates in GGUFs are often damaged.

Looks at the text that comes out, not at the Jinja. Does not know families.
"""

from __future__ import annotations

import json
import re
from typing import Any

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
_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "abcdef123",
            "type": "function",
            "function": {"name": "call_tool", "arguments": '{"wanted": "value-text"}'},
        }
    ],
}
_VARIABLES = {"bos_token": "", "eos_token": ""}
_RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "call_tool", "content": "result-text"}


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
        text = _render(template, [_QUESTION, _CALL, _RESULT], _TOOLS)
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


def shows_call(template: str, opening: str, closing: str) -> bool:
    """Whether the template writes a call as one JSON object of `name` and `arguments` between these marks."""
    if "tools" not in template or opening not in template:
        return False
    try:
        text = _render(template, [_QUESTION, _CALL, _RESULT], _TOOLS)
    except TemplateError:
        return False
    return any(
        _is_the_call(inside) for inside in re.findall(f"{re.escape(opening)}(.*?){re.escape(closing)}", text, re.S)
    )


def _is_the_call(text: str) -> bool:
    try:
        call = json.loads(text)
    except ValueError:
        return False
    return isinstance(call, dict) and (call.get("name"), call.get("arguments")) == (
        "call_tool",
        {"wanted": "value-text"},
    )


def _render(template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
    return str(render_prompt(template, messages, tools, variables=_VARIABLES))
