"""One chat request, checked: what a caller may ask of a model, before any model is involved.

Field names and meanings are OpenAI's chat completions', plus llama.cpp's sampling names. A field that is not known is
an error, never ignored. It does not know templates, tokens or grammars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from laploop.engine.values import shown
from typing_extensions import TypedDict

from ..errors import RequestError
from . import request_checks as checks
from .message_checks import checked_messages

Message = dict[str, Any]
ToolChoice = str | Mapping[str, Any]


class RequestOptions(TypedDict, total=False):
    """Everything a request may hold beside its messages; see `Request`, and docs/python-api.md for the whole table."""

    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: ToolChoice | None
    parallel_tool_calls: bool | None
    response_format: Mapping[str, Any] | None
    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    seed: int | None
    max_tokens: int | None
    max_completion_tokens: int | None
    stop: str | Sequence[str] | None
    logprobs: bool | None
    top_logprobs: int | None
    enable_thinking: bool | None
    thinking_budget: int | None
    reasoning_effort: str | None
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    metadata: Mapping[str, str] | None
    store: bool | None
    service_tier: str | None
    modalities: Sequence[str] | None


@dataclass(frozen=True)
class Request:
    """A checked request.

    Args:
        messages: the conversation, OpenAI messages.
        tools: tools in OpenAI form, or None.
        tool_choice: "auto", "none", "required", {"type": "function", …} or {"type": "allowed_tools", …}.
        parallel_tool_calls: whether one reply may hold several calls.
        response_format: {"type": "text" | "json_object"} or {"type": "json_schema", "json_schema": {"schema": …}}.
        n: how many choices, 1 to 128; with a seed, choice i has the seed + i.
        temperature, top_p, top_k, min_p: sampling; None takes the model's default for this kind of round.
        presence_penalty, frequency_penalty, repeat_penalty: penalties on tokens already generated; None for none.
        logit_bias: token id → amount from -100 (as good as never) to 100 (as good as always) added to its logit. What
            a grammar forbids stays forbidden.
        seed: makes sampling repeatable; None draws one.
        max_tokens: most tokens of the answer, thinking not counted; None for what the context holds.
        max_completion_tokens: OpenAI's newer name of max_tokens; the same here.
        stop: texts that end the answer; they are not part of it. They do not count inside thoughts and calls.
        logprobs: whether each choice tells the log-probabilities of its content's tokens.
        top_logprobs: how many alternatives for each of these tokens, 0 to 20.
        enable_thinking: None takes the template's default.
        thinking_budget: most tokens of thinking; then the block is closed and the answer follows. 0 switches it off.
        reasoning_effort: OpenAI's way to say both: "none", "minimal" (128 tokens), "low" (512), "medium" (2048), "high"
            (as many as there is room for).
        user, safety_identifier, prompt_cache_key, metadata: the caller's notes on a request. A model here neither
            sends nor stores anything, so that they change nothing; `OpenAIModel` passes them on.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int | None = None
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    reasoning_effort: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: Mapping[str, str] | None = None

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Request:
        """Check a caller's messages and options. None means not given.

        What two fields can say is settled here: `max_tokens`, `enable_thinking` and `thinking_budget` hold what
        `max_completion_tokens` and `reasoning_effort` ask for.

        Raises:
            RequestError: an unknown field, a wrong type or value, a broken message, a call without its result.
        """
        if not isinstance(options, Mapping):
            raise RequestError(f"the options of a request must be a mapping of fields, got {shown(options)}")
        checks.check_names(options, RequestOptions.__annotations__)
        given = {k: v for k, v in options.items() if v is not None}
        checks.check_options(given)
        settled = {k: v for k, v in given.items() if k in cls.__dataclass_fields__}
        stop = given.get("stop", ())
        return cls(
            checked_messages(messages),
            **settled
            | _settled_thinking(given)
            | {
                "tools": tuple(given.get("tools", ())),
                "stop": (stop,) if isinstance(stop, str) else tuple(stop),
                "logit_bias": {int(k): v for k, v in given.get("logit_bias", {}).items()} or None,
                "max_tokens": given.get("max_tokens", given.get("max_completion_tokens")),
            },
        )

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the answer by `response_format`; None for free text."""
        form = self.response_format or {"type": "text"}
        if form["type"] == "text":
            return None
        schema: Mapping[str, Any] | None = form.get("json_schema", {}).get("schema")
        return {"type": "object"} if schema is None else schema

    @property
    def answer_is_strict(self) -> bool:
        """Whether `response_format` has `strict`: no object has other keys than its schema lists."""
        return bool((self.response_format or {}).get("json_schema", {}).get("strict"))

    @property
    def tool_names(self) -> list[str]:
        """Names of the offered tools, in order."""
        return [str(t["function"]["name"]) for t in self.tools]

    @property
    def shown_tools(self) -> list[dict[str, Any]]:
        """The tools as a prompt shows them: without `strict`, which is a word to the decoder and not to the model."""
        return [
            {**tool, "function": {k: v for k, v in tool["function"].items() if k != "strict"}} for tool in self.tools
        ]

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

    @property
    def follows_results(self) -> bool:
        """Whether the reply is to what tools returned."""
        return bool(self.messages) and self.messages[-1]["role"] == "tool"

    def calling(self) -> Request:
        """The same request, but that the reply has to hold a call."""
        if self.must_call:
            return self
        tools = [{"type": "function", "function": {"name": name}} for name in self.allowed_names]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}
        return replace(self, tool_choice=choice)


def _settled_thinking(given: Mapping[str, Any]) -> dict[str, Any]:
    """`enable_thinking` and `thinking_budget` as all three fields on thinking together mean them."""
    enabled, budget = given.get("enable_thinking"), given.get("thinking_budget")
    if effort := given.get("reasoning_effort"):
        enabled, figure = checks.EFFORTS[effort]
        budget = figure if budget is None else budget
    return {"enable_thinking": False if budget == 0 else enabled, "thinking_budget": budget}
