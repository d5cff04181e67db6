"""Any `openai` client as a Model, so that the same loop runs over a server. It does not import openai."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from laploop.models import Model
from laploop.models.request import Request

# Fields that OpenAI's own API does not have: servers of the llama.cpp and vLLM kind read them from the body.
_EXTRA = ("top_k", "min_p", "repeat_penalty", "enable_thinking", "thinking_budget")


class OpenAIModel(Model):
    """Chat completions of an OpenAI-compatible server.

    Args:
        client: an `openai.OpenAI` (or anything with `chat.completions.create` that returns pydantic chunks).
            Its errors come through as they are.
        name: the model's name at the server.

    Fields that OpenAI's API lacks (top_k, min_p, enable_thinking, …) are sent, when set, in `extra_body`.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        return self._chunks(self.client.chat.completions.create(**self.body(request)))

    def body(self, request: Request) -> dict[str, Any]:
        """The arguments of `client.chat.completions.create`: only what differs from the default is sent."""
        body: dict[str, Any] = {"model": self.name, "messages": list(request.messages), "stream": True}
        body["stream_options"] = {"include_usage": True}
        extra: dict[str, Any] = {}
        for field in fields(Request):
            value = getattr(request, field.name)
            if field.name == "messages" or value == field.default or value == ():
                continue
            if not request.tools and field.name in ("tool_choice", "parallel_tool_calls"):
                continue  # OpenAI refuses both where there are no tools
            plain = list(value) if isinstance(value, tuple) else value
            (extra if field.name in _EXTRA else body)[field.name] = plain
        return {**body, "extra_body": extra} if extra else body

    @staticmethod
    def _chunks(stream: Any) -> Iterator[dict[str, Any]]:
        try:
            for chunk in stream:
                yield chunk.model_dump()
        finally:
            stream.close()
