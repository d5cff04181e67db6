"""Any `openai` client as a Model, so that the same loop runs over a server. It does not import openai."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from laploop.models import Model
from laploop.models.requests.request import Request

from .server_calls import ServerCalls
from .server_errors import ends_early, is_refusal, plain_error

# Fields that OpenAI's own API does not have: servers of the llama.cpp and vLLM kind read them from the body.
_EXTRA = ("top_k", "min_p", "repeat_penalty", "enable_thinking", "thinking_budget")


class OpenAIModel(Model):
    """Chat completions of an OpenAI-compatible server.

    Args:
        client: an `openai.OpenAI` (or anything with `chat.completions.create` that returns pydantic chunks). Its time
            limit and its retries are the client's own: `openai.OpenAI(timeout=60, max_retries=0)`.
        name: the model's name at the server.

    Fields that OpenAI's API lacks (top_k, min_p, enable_thinking, …) are sent, when set, in `extra_body`. Where a
    server refuses `max_tokens`, `stream_options`, a message's `reasoning_content` or a choice of "allowed_tools", the
    request is made in another way, then and from then on: with `max_completion_tokens`, without usage, without the
    thoughts, with only the allowed tools offered.

    Raises, when asked:
        RequestError: the server refuses the request.
        ModelUnavailableError: it cannot be reached, or did not answer in time.
        ModelError: it failed, it refuses the key, or its reply broke off.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        self._refused: set[str] = set()

    def body(self, request: Request) -> dict[str, Any]:
        """The arguments of `client.chat.completions.create`: only what differs from the default is sent."""
        given = {
            field.name: list(value) if isinstance(value := getattr(request, field.name), tuple) else value
            for field in fields(Request)
            if getattr(request, field.name) not in (field.default, ())
        }
        if not request.tools:  # OpenAI refuses both where there are no tools
            given.pop("tool_choice", None)
            given.pop("parallel_tool_calls", None)
        if "max_completion_tokens" in given:  # two names of one thing
            given.pop("max_tokens", None)
        if "reasoning_effort" in given:  # the others say the same to servers of another kind
            given.pop("enable_thinking", None)
            given.pop("thinking_budget", None)
        if "max_tokens" in self._refused and "max_tokens" in given:
            given["max_completion_tokens"] = given.pop("max_tokens")
        if "allowed_tools" in self._refused and _is_allowed_tools(given.get("tool_choice")):
            given["tools"] = [t for t in given["tools"] if t["function"]["name"] in request.allowed_names]
            given["tool_choice"] = "required" if request.must_call else "auto"
        given["messages"] = [self._as_sent(message) for message in given["messages"]]
        body: dict[str, Any] = {"model": self.name, "stream": True}
        if "stream_options" not in self._refused:
            body["stream_options"] = {"include_usage": True}
        body |= {name: value for name, value in given.items() if name not in _EXTRA}
        extra = {name: value for name, value in given.items() if name in _EXTRA}
        return {**body, "extra_body": extra} if extra else body

    def _as_sent(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """With a text beside calls, be it empty: some servers take no null there, and some templates no gap."""
        sent = {name: value for name, value in message.items() if name not in self._refused}
        return sent | {"content": ""} if sent.get("tool_calls") and sent.get("content") is None else sent

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        return self._chunks(self._open(request))

    def _open(self, request: Request) -> Any:
        while True:
            body = self.body(request)
            try:
                stream = self.client.chat.completions.create(**body)
            except Exception as error:
                if refused := _what_can_be_said_otherwise(body, error):
                    self._refused.add(refused)
                    continue
                if plain := plain_error(error, self.name, self.client, body):
                    raise plain from error
                raise
            if inspect.iscoroutine(stream):
                stream.close()
                raise TypeError(
                    "OpenAIModel takes an openai.OpenAI, not an openai.AsyncOpenAI; for asyncio: Agent.arun"
                )
            return stream

    def _chunks(self, stream: Any) -> Iterator[dict[str, Any]]:
        calls, finished = ServerCalls(), False
        try:
            for chunk in stream:
                plain = chunk.model_dump()
                for choice in plain.get("choices") or ():
                    finished = finished or bool(choice.get("finish_reason"))
                    calls.mend(choice)
                yield plain
        except Exception as error:
            if plain := plain_error(error, self.name, self.client, {}):
                raise plain from error
            raise
        finally:
            stream.close()
        if not finished:
            raise ends_early(self.name, self.client)


def _what_can_be_said_otherwise(body: Mapping[str, Any], error: Exception) -> str | None:
    """The field that the server does not want; some answer with a status of their own fault, but name it."""
    complaint = str(error) if hasattr(error, "status_code") else ""
    if "max_tokens" in body and "max_completion_tokens" in complaint:
        return "max_tokens"
    if "stream_options" in body and "stream_options" in complaint:
        return "stream_options"
    if "reasoning_content" in complaint and any("reasoning_content" in message for message in body["messages"]):
        return "reasoning_content"
    about_choice = is_refusal(error) or "tool_choice" in complaint
    return "allowed_tools" if about_choice and _is_allowed_tools(body.get("tool_choice")) else None


def _is_allowed_tools(choice: Any) -> bool:
    return isinstance(choice, Mapping) and choice.get("type") == "allowed_tools"
