"""One chat request, checked: what a caller may ask of a model, before any model is involved.

Field names and meanings are OpenAI's chat completions', plus llama.cpp's sampling names. A field that is not known is
an error, never ignored. It does not know templates, tokens or grammars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from typing_extensions import TypedDict

from .errors import RequestError

Message = dict[str, Any]
ToolChoice = str | Mapping[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
_MESSAGE_KEYS = {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"}
# Keys that OpenAI's own client writes back into an assistant message; harmless while they are empty.
_EMPTY_ONLY = {"refusal", "audio", "annotations", "function_call"}


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
        stop = given.pop("stop", ())
        request = cls(
            messages=tuple(_checked_message(m, i) for i, m in enumerate(messages)),
            tools=tuple(given.pop("tools", ())),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            **given,
        )
        _check_pairs(request.messages)
        request._check_values()
        return request

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

    def _check_values(self) -> None:
        if not self.messages:
            raise RequestError("messages is empty: at least one message is needed")
        names = []
        for i, tool in enumerate(self.tools):
            function = tool.get("function") if isinstance(tool, Mapping) else None
            if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
                raise RequestError(f'tools[{i}] is not {{"type": "function", "function": {{"name": …}}}}')
            names.append(function["name"])
        if twice := {n for n in names if names.count(n) > 1}:
            raise RequestError(f"two tools are called {sorted(twice)[0]!r}")
        self._check_choice(names)
        for name, low, high in (
            ("temperature", 0, None),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("top_k", 0, None),
            ("max_tokens", 1, None),
            ("thinking_budget", 0, None),
        ):
            value = getattr(self, name)
            if value is not None and (value < low or (high is not None and value > high)):
                raise RequestError(
                    f"{name} must be {'≥ ' + str(low) if high is None else f'{low}…{high}'}, got {value}"
                )
        if any(not s for s in self.stop):
            raise RequestError("an empty stop string would stop at once")
        kind = (self.response_format or {"type": "text"}).get("type")
        if kind not in ("text", "json_object", "json_schema"):
            raise RequestError(f"response_format type {kind!r}; known: text, json_object, json_schema")

    def _check_choice(self, names: list[str]) -> None:
        choice = self.tool_choice
        if isinstance(choice, str):
            if choice not in ("auto", "none", "required"):
                raise RequestError(
                    f'tool_choice {choice!r}; known: "auto", "none", "required", one function, allowed_tools'
                )
            if choice == "required" and not names:
                raise RequestError('tool_choice is "required" but no tools are offered')
            return
        try:
            named = (
                [choice["function"]["name"]]
                if choice["type"] == "function"
                else [t["function"]["name"] for t in choice["allowed_tools"]["tools"]]
            )
        except (KeyError, TypeError):
            raise RequestError(
                'tool_choice must be {"type": "function", "function": {"name": …}} or '
                '{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}'
            ) from None
        if missing := [n for n in named if n not in names]:
            raise RequestError(f"tool_choice names {missing[0]!r}; offered: {', '.join(names) or 'none'}")
        if self.must_call and not named:
            raise RequestError("tool_choice requires a call but allows no tool")


def _checked_message(message: Mapping[str, Any], i: int) -> Message:
    role = message.get("role")
    if role not in ROLES:
        raise RequestError(f"messages[{i}] has role {role!r}; known: {', '.join(ROLES)}")
    for key, value in message.items():
        if key not in _MESSAGE_KEYS and (key not in _EMPTY_ONLY or value):
            raise RequestError(f"messages[{i}] has the field {key!r}, which is not supported")
    if role == "tool" and not message.get("tool_call_id"):
        raise RequestError(f"messages[{i}] is a tool result without tool_call_id")
    return dict(message)


def _check_pairs(messages: Sequence[Message]) -> None:
    """Every call is followed at once by exactly one result, and no result comes without its call."""
    open_ids: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in open_ids:
                raise RequestError(f"messages[{i}] answers the call {call_id!r}, which no message before it makes")
            open_ids.remove(call_id)
            continue
        if open_ids:
            raise RequestError(f"the call {open_ids[0]!r} has no result: a tool message must follow it")
        if message["role"] == "assistant":
            open_ids = [str(c.get("id")) for c in message.get("tool_calls") or ()]
    if open_ids:
        raise RequestError(f"the call {open_ids[0]!r} has no result: a tool message must follow it")
