"""Which family's syntax a chat template speaks: found by rendering calls with it, and looking at what it writes.

Several families take the same marks for something else inside (Qwen3-Coder XML, GLM keys and values), so that the
template's source tells little. Does not know how replies are read.
"""

from __future__ import annotations

import dataclasses
import json
import re

from .call_writing import WrittenCall, calls_text
from .dialect import DIALECTS, Dialect
from .errors import TemplateError
from .template_faults import probe_text

_CALLS = (
    WrittenCall("call_tool", {"wanted": "value-text"}, "abcdef123"),
    WrittenCall("call_tool", {"wanted": "other-text"}, "abcdef124"),
)
# The first whose writing is found is taken: of those that write alike, the one that does not think.
_FOUND_BY_CALLS = (
    "qwen2.5", "qwen3-coder", "mistral-v13", "mistral-v11", "mistral-v3", "gemma4", "functiongemma", "llama3",
)  # fmt: skip
# Where a template has these texts too, its family thinks.
_THINKING = {
    "qwen2.5": (("<think>", "</think>"), "qwen3"),
    "qwen3-coder": (("<think>", "</think>"), "qwen3.5"),
    "mistral-v13": (("[THINK]", "[/THINK]"), "ministral-reasoning"),
}


def detect_dialect(template: str, model_name: str = "") -> Dialect:
    """Choose the dialect of a chat template: the text protocol where it has no place for tools, or where its way of
    writing calls is not known.

    Args:
        template: Jinja source of the chat template.
        model_name: `general.name` or file name; the coder models share Qwen2.5's template but not its habits.
    """
    found = _written(template) if "tools" in template else None
    if found is None:
        return _leaving_calls_out(template) or DIALECTS["react"]
    name, text = found
    tags, thinking = _THINKING.get(name, ((), ""))
    if any(tag in template for tag in tags):
        name = thinking
    elif name == "qwen2.5":
        name = (
            "qwen2.5-coder" if "coder" in model_name.lower() else "hermes" if "hermes" in model_name.lower() else name
        )
    return _spaced(DIALECTS[name], text)


def _written(template: str) -> tuple[str, str] | None:
    """The dialect in which the template writes two calls, or one where it takes no more; and what it wrote."""
    for n in (2, 1):
        try:
            text = probe_text(template, _CALLS[:n])
        except TemplateError:
            continue
        for name in _FOUND_BY_CALLS:
            wrapper = DIALECTS[name].native
            if (n == 1) == (wrapper.joint is None) and _dense(calls_text(wrapper, _CALLS[:n])) in _dense(text):
                return name, text
        return None
    return None


def _spaced(dialect: Dialect, text: str) -> Dialect:
    """The dialect with the white space that its template writes in front of a call: that of Mistral v3 differs."""
    native = dialect.native
    found = re.search(
        rf"{re.escape(native.open)}(\s*{re.escape(native.lead.strip())}\s*){re.escape(native.shape.head)}call_tool",
        text,
    )
    if not native.open or not found or found[1] == native.lead:
        return dialect
    return dataclasses.replace(dialect, wrappers=(dataclasses.replace(native, lead=found[1]), *dialect.wrappers[1:]))


def _dense(text: str) -> str:
    return "".join(text.split())


def _leaving_calls_out(template: str) -> Dialect | None:
    """The dialect of a template that tells how to call and then leaves calls out of a history (SmolLM3): they are
    written into the content."""
    try:
        text = probe_text(template, _CALLS[:1])
    except TemplateError:
        return None
    told = DIALECTS["qwen2.5"].native
    if "call_tool" in text or "find_tool" not in text or not (told.open in text and json.dumps("arguments") in text):
        return None
    thinks = "<think>" in template or "</think>" in template
    return dataclasses.replace(DIALECTS["qwen3" if thinks else "hermes"], calls_in_content=True)
