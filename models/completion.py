"""Replies in OpenAI's shapes: chunks of a stream, and the completion that they add up to.

Does not know where the text came from.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from .parser import ParsedOutput

ChatCompletion = dict[str, Any]
ChatCompletionChunk = dict[str, Any]


class Reply:
    """One reply in the making: stamps id, time and model on each chunk."""

    def __init__(self, model: str) -> None:
        self._head = {
            "id": "chatcmpl-" + uuid.uuid4().hex[:24],
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> ChatCompletionChunk:
        """One chunk with this delta."""
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish_reason, "logprobs": None}
        return {**self._head, "choices": [choice]}

    def last(self, parsed: ParsedOutput, **extra: Any) -> ChatCompletionChunk:
        """The closing chunk: finish_reason, invalid calls if any, and `extra` (usage, timings, raw_output)."""
        chunk = self.chunk({}, parsed.finish_reason)
        if parsed.invalid_tool_calls:
            chunk["choices"][0]["invalid_tool_calls"] = parsed.invalid_tool_calls
        return {**chunk, **extra}


def usage_of(n_prompt: int, n_completion: int, *, n_cached: int = 0, n_reasoning: int = 0) -> dict[str, Any]:
    """OpenAI's usage object; all counts are tokens."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": n_reasoning},
    }


def accumulate(chunks: Iterable[Mapping[str, Any]]) -> ChatCompletion:
    """Fold a stream of chunks into the completion that the plain call would have returned.

    Works for chunks of any OpenAI-compatible server (as dicts). Only the first choice is folded.

    Raises:
        ValueError: the stream held no chunk.
    """
    content: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    completion: ChatCompletion = {}
    choice_out: dict[str, Any] = {"index": 0, "finish_reason": None, "logprobs": None}
    for chunk in chunks:
        completion |= {k: v for k, v in chunk.items() if k not in ("choices", "object") and v is not None}
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            content.append(delta.get("content") or "")
            reasoning.append(delta.get("reasoning_content") or "")
            for part in delta.get("tool_calls") or ():
                _add_call_part(calls, part)
            choice_out |= {k: v for k, v in choice.items() if k not in ("delta", "index") and v is not None}
    if not completion:
        raise ValueError("the stream held no chunk")
    tool_calls = [calls[i] for i in sorted(calls)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(content) or (None if tool_calls else ""),
    }
    if text := "".join(reasoning):
        message["reasoning_content"] = text
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {**completion, "object": "chat.completion", "choices": [{**choice_out, "message": message}]}


def _add_call_part(calls: dict[int, dict[str, Any]], part: Mapping[str, Any]) -> None:
    index = part.get("index")
    at = len(calls) if index is None else int(index)
    call = calls.setdefault(at, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = part.get("id") or call["id"]
    function = part.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
