"""Replies in OpenAI's shapes: chunks of a stream, and the completion that they add up to.

Does not know where the text came from.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .parsing.parser import ParsedOutput

ChatCompletion = dict[str, Any]
ChatCompletionChunk = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one choice cost.

    Args:
        n_prompt: tokens of the prompt; all choices of a reply have the same.
        n_completion: tokens generated.
        n_cached: tokens of the prompt that were not evaluated anew.
        n_reasoning: tokens of the thinking block, its marks included; those of the answer are the rest.
        timings: llama.cpp's names: cache_n, prompt_n, prompt_ms, predicted_n, predicted_ms, …; none for a script.
    """

    n_prompt: int
    n_completion: int
    n_cached: int = 0
    n_reasoning: int = 0
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a choice ended: what it said, its raw text, what it cost, what of it does not fit its schemas
    (see `violations.violations`), and the SHA-256 of the rendered prompt where there was one."""

    parsed: ParsedOutput
    raw_output: str
    cost: Cost
    violations: Sequence[Mapping[str, Any]] = ()
    prompt_sha256: str | None = None


#: Makes a chunk of one choice: `stamp(delta, logprobs=None, calling=None)`.
Stamp = Callable[..., ChatCompletionChunk]
#: Makes a choice, given its index: yields its stamped chunks, the role first, and returns how it ended.
Chooser = Callable[[int, Stamp], Generator[ChatCompletionChunk, None, Outcome]]


def reply_chunks(model: str, n: int, choose: Chooser) -> Iterator[ChatCompletionChunk]:
    """The chunks of a reply: its choices one after the other; the very last one carries usage and timings.

    Args:
        model: the model's name.
        n: how many choices.
        choose: makes one.
    """
    head = {
        "id": "chatcmpl-" + uuid.uuid4().hex[:24],
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
    }
    costs: list[Cost] = []
    for index in range(n):
        stamp = functools.partial(_chunk, head, index)
        outcome = yield from choose(index, stamp)
        costs.append(outcome.cost)
        last = stamp({})
        choice = last["choices"][0]
        choice["finish_reason"] = outcome.parsed.finish_reason
        if outcome.parsed.invalid_tool_calls:
            choice["invalid_tool_calls"] = outcome.parsed.invalid_tool_calls
        if outcome.violations:
            choice["schema_violations"] = list(outcome.violations)
        choice["raw_output"] = outcome.raw_output
        if outcome.prompt_sha256 is not None:
            choice["prompt_sha256"] = outcome.prompt_sha256
        yield {**last, **_total(costs)} if index == n - 1 else last


def _chunk(
    head: Mapping[str, Any],
    index: int,
    delta: Mapping[str, Any],
    *,
    logprobs: Mapping[str, Any] | None = None,
    calling: str | None = None,
) -> ChatCompletionChunk:
    choice = {"index": index, "delta": dict(delta), "finish_reason": None, "logprobs": logprobs}
    if calling is not None:
        choice["calling"] = calling
    return {**head, "choices": [choice]}


def _total(costs: Sequence[Cost]) -> dict[str, Any]:
    """Usage and timings of a whole reply. The prompt counts once: later choices find it in the cache."""
    first = costs[0]
    n_completion = sum(c.n_completion for c in costs)
    usage = {
        "prompt_tokens": first.n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": first.n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": first.n_cached},
        "completion_tokens_details": {"reasoning_tokens": sum(c.n_reasoning for c in costs)},
    }
    if not first.timings:
        return {"usage": usage}
    timings = {name: sum(c.timings[name] for c in costs) for name in first.timings}
    timings["cache_n"] = first.n_cached
    for kind in ("prompt", "predicted"):
        n, ms = timings[f"{kind}_n"], timings[f"{kind}_ms"]
        timings[f"{kind}_per_second"] = 1000 * n / ms if ms else 0.0
    return {"usage": usage, "timings": timings}


def in_openais_form(chunks: Iterator[ChatCompletionChunk], include_usage: bool) -> Iterator[ChatCompletionChunk]:
    """The chunks as OpenAI sends them where `stream_options` is given.

    With usage it comes last, in a chunk without choices, and every other chunk says `"usage": null`; without, no chunk
    speaks of it. Timings go where usage goes.
    """
    head: dict[str, Any] = {}
    costs: dict[str, Any] = {"usage": None}
    try:
        for chunk in chunks:
            costs |= {key: chunk[key] for key in ("usage", "timings") if chunk.get(key)}
            head = {key: chunk[key] for key in ("id", "object", "created", "model") if key in chunk}
            if chunk.get("choices"):
                kept = {k: v for k, v in chunk.items() if k not in ("usage", "timings")}
                yield {**kept, "usage": None} if include_usage else kept
        if include_usage:
            yield {**head, "choices": [], **costs}
    finally:
        if (close := getattr(chunks, "close", None)) is not None:
            close()


def accumulate(chunks: Iterable[Mapping[str, Any]]) -> ChatCompletion:
    """Fold a stream of chunks into the completion that the plain call would have returned, with all its choices.

    Works for chunks of any OpenAI-compatible server (as dicts).

    Raises:
        ValueError: the stream held no chunk.
    """
    completion: ChatCompletion = {}
    choices: dict[int, _Choice] = {}
    for chunk in chunks:
        completion |= {k: v for k, v in chunk.items() if k not in ("choices", "object") and v is not None}
        for part in chunk.get("choices") or ():
            index = part.get("index") or 0
            choices.setdefault(index, _Choice(index)).add(part)
    if not completion and not choices:
        raise ValueError("the stream held no chunk")
    whole = [choices[i].whole() for i in sorted(choices)] or [_Choice(0).whole()]
    return {**completion, "object": "chat.completion", "choices": whole}


class _Choice:
    """One choice, folded from its parts."""

    def __init__(self, index: int) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._rest: dict[str, Any] = {"index": index, "finish_reason": None}

    def add(self, part: Mapping[str, Any]) -> None:
        """Take the part of it that a chunk holds."""
        delta = part.get("delta") or {}
        self._content.append(delta.get("content") or "")
        # vLLM and OpenRouter call it "reasoning".
        self._reasoning.append(delta.get("reasoning_content") or delta.get("reasoning") or "")
        for call in delta.get("tool_calls") or ():
            _add_call_part(self._calls, call)
        for name, tokens in (part.get("logprobs") or {}).items():
            self._logprobs.setdefault(name, []).extend(tokens or ())
        known = ("delta", "index", "logprobs", "calling")
        self._rest |= {k: v for k, v in part.items() if k not in known and v is not None}

    def whole(self) -> dict[str, Any]:
        """The choice of a completion."""
        tool_calls = [self._calls[i] for i in sorted(self._calls)]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._content) or (None if tool_calls else ""),
        }
        if text := "".join(self._reasoning):
            message["reasoning_content"] = text
        if tool_calls:
            message["tool_calls"] = tool_calls
        logprobs = {name: tokens or None for name, tokens in self._logprobs.items()} or None
        return {**self._rest, "logprobs": logprobs, "message": message}


def _add_call_part(calls: dict[int, dict[str, Any]], part: Mapping[str, Any]) -> None:
    index = part.get("index")
    at = len(calls) if index is None else int(index)
    call = calls.setdefault(at, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = part.get("id") or call["id"]
    function = part.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
