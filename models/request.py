"""One chat request, checked: what a caller may ask of a model, before any model is involved.

Field names and meanings are OpenAI's chat completions', plus llama.cpp's sampling names. A field that is not known is
an error, never ignored. It does not know templates, tokens or grammars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from typing_extensions import TypedDict

from . import request_checks as checks
from .errors import RequestError

Message = dict[str, Any]
ToolChoice = str | Mapping[str, Any]


class RequestOptions(TypedDict, total=False):
    """Everything a request may hold beside its messages; see `Request`."""

    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    response_format: Mapping[str, Any] | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None
    seed: int | None
    max_tokens: int | None
    stop: str | Sequence[str] | None
    enable_thinking: bool | None
    thinking_budget: int | None


@dataclass(frozen=True)
class Request:
    """A checked request.

    Args:
        messages: the conversation, OpenAI messages.
        tools: tools in OpenAI form, or None.
        tool_choice: "auto", "none", "required", {"type": "function", …} or {"type": "allowed_tools", …}.
        parallel_tool_calls: whether one reply may hold several calls.
        response_format: {"type": "text" | "json_object"} or {"type": "json_schema", "json_schema": {"schema": …}}.
        temperature, top_p, top_k, min_p: sampling; None takes the model's default for this kind of round.
        presence_penalty, frequency_penalty, repeat_penalty: penalties on tokens already generated; None for none.
        seed: makes sampling repeatable; None draws one.
        max_tokens: most tokens of the answer, thinking not counted; None for what the context holds.
        stop: texts that end the answer; they are not part of it.
        enable_thinking: None takes the template's default.
        thinking_budget: most tokens of thinking; then the block is closed and the answer follows.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    enable_thinking: bool | None = None
    thinking_budget: int | None = None

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Request:
        """Check a caller's messages and options.

        Raises:
            RequestError: an unknown field, a wrong type or value, a broken message, a call without its result.
        """
        known = [f.name for f in fields(cls) if f.name != "messages"]
        if unknown := [name for name in options if name not in known]:
            raise RequestError(f"unsupported request field {unknown[0]!r}; supported: {', '.join(known)}")
        given = {k: v for k, v in options.items() if v is not None}
        checks.check_options(given)
        stop = given.pop("stop", ())
        return cls(
            messages=checks.checked_messages(messages),
            tools=tuple(given.pop("tools", ())),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            **given,
        )

    @property
    def tool_names(self) -> list[str]:
        """Names of the offered tools, in order."""
        return [str(t["function"]["name"]) for t in self.tools]

    @property
    def allowed_names(self) -> list[str]:
        """Names of the tools that may be called in this reply, by `tool_choice`."""
        choice = self.tool_choice
        if choice == "none":
            return []
        if isinstance(choice, str):
            return self.tool_names
        if choice["type"] == "function":
            return [choice["function"]["name"]]
        wanted = {t["function"]["name"] for t in choice["allowed_tools"]["tools"]}
        return [name for name in self.tool_names if name in wanted]

    @property
    def must_call(self) -> bool:
        """Whether the reply has to hold a call."""
        choice = self.tool_choice
        if isinstance(choice, str):
            return choice == "required"
        return bool(choice["type"] == "function" or choice["allowed_tools"].get("mode") == "required")
