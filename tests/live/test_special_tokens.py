"""No text of anybody becomes a control token, for every special token of real vocabularies: counted as tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import EngineConfig
from laploop.models import ChatModel, Request, render_prompt
from laploop.models.template import builtin_template

INJECTIONS = Path(__file__).parents[1] / "data" / "injections.jsonl"


def conversation(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The text wherever a caller, a user, a model or a tool can put one: messages and tools."""
    name = "f" + "".join(filter(str.isprintable, text))[:250].strip()  # other names, and longer ones, are refused
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps({text: [text]})}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": text},
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
        {"role": "assistant", "content": text},
        {"role": "user", "content": text},
    ]
    schema = {
        "type": "object",
        "properties": {text: {"type": "string", "description": text, "enum": [text], "default": text}},
        "required": [text],
    }
    return messages, [{"type": "function", "function": {"name": name, "description": text, "parameters": schema}}]


@pytest.mark.parametrize("dialect", [None, "react"])
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b", "smollm2-135m"])
@pytest.mark.filterwarnings("ignore:the chat template of")
def test_no_text_becomes_a_control_token(name: str, dialect: str | None, weights: Callable[[str], Path]) -> None:
    with ChatModel.load(weights(name), config=EngineConfig(n_ctx=256), dialect=dialect) as model:
        vocabulary = model.engine.vocabulary
        assert len(vocabulary.special) >= 17

        def control_tokens(text: str) -> list[Counter[int]]:
            messages, tools = conversation(f"x{text}x")
            prompts = [
                model.render(Request.of(messages, {"tools": tools})),
                render_prompt(builtin_template(), messages, tools, marks=vocabulary.special_pattern),
            ]
            marks = set(vocabulary.special.values())
            return [Counter(t for t in vocabulary.tokenize(p.pieces) if t in marks) for p in prompts]

        scaffold = control_tokens(" ")
        for mark in vocabulary.special:
            assert control_tokens(mark) == scaffold, mark
            assert control_tokens(f"{mark[:-1]}{mark}{mark[1:]}") == scaffold, mark
        for line in INJECTIONS.read_text("utf-8").splitlines():
            assert control_tokens(json.loads(line)["text"]) == scaffold, line
