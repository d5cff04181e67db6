"""What may stand in a request beside its messages, field by field. Raises RequestError with the field's name, what it
was, what is allowed.

Does not know what a field does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ..errors import RequestError
from .tool_checks import check_choice, tool_names

_RESPONSE_FORMATS = ("text", "json_object", "json_schema")


class _Range:
    """A number from `low` to `high`; `low` itself only where `with_low`."""

    def __init__(self, low: float, high: float = math.inf, *, whole: bool = False, with_low: bool = True) -> None:
        self.low, self.high, self.whole, self.with_low = low, high, whole, with_low

    def takes(self, value: Any) -> bool:
        """Whether `value` is such a number; booleans are none."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        above = value >= self.low if self.with_low else value > self.low
        return above and value <= self.high and value not in (math.inf, -math.inf)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.low == -math.inf:
            return kind
        low = f"{'≥' if self.with_low else '>'} {self.low}"
        return f"{kind} {low}" if self.high == math.inf else f"{kind} {low} and ≤ {self.high}"


# OpenAI's API reference, "Create chat completion", where it limits what has a limit by its nature; limits that only
# protect a shared server (4 stop texts, a temperature of 2, penalties of 2) are none here.
_NUMBERS = {
    "n": _Range(1, 128, whole=True),
    "top_logprobs": _Range(0, 20, whole=True),
    "temperature": _Range(0),
    "top_p": _Range(0, 1, with_low=False),
    "min_p": _Range(0, 1),
    "top_k": _Range(0, whole=True),
    "presence_penalty": _Range(-math.inf),
    "frequency_penalty": _Range(-math.inf),
    "repeat_penalty": _Range(0, with_low=False),
    "seed": _Range(-math.inf, whole=True),
    "max_tokens": _Range(1, whole=True),
    "max_completion_tokens": _Range(1, whole=True),
    "thinking_budget": _Range(0, whole=True),
}
_TOKEN, _BIAS = _Range(0, whole=True), _Range(-100, 100)
_FLAGS = ("enable_thinking", "parallel_tool_calls", "logprobs")
_TEXTS = ("user", "safety_identifier", "prompt_cache_key")
#: OpenAI's `reasoning_effort`, whose figures are ours: whether to think, and for how many tokens at most.
EFFORTS: dict[str, tuple[bool, int | None]] = {
    "none": (False, None),
    "minimal": (True, 128),
    "low": (True, 512),
    "medium": (True, 2048),
    "high": (True, None),
}
# Fields that may only say what is so anyway: what they may say, and why nothing else.
_ONLY = {
    "store": ((False,), "no reply is kept here"),
    "service_tier": (("auto", "default"), "there is one machine, this one"),
    "modalities": ((["text"],), "the models here write text"),
}
# Fields that others know: what to use instead.
_INSTEAD = {
    "functions": 'tools, each {"type": "function", "function": …}',
    "function_call": "tool_choice",
    "stream": "stream() for chunks, create() for the whole reply",
    "stream_options": "stream(), whose chunks it is about",
    "model": "the model object, which answers for itself",
    "max_new_tokens": "max_tokens",
    "chat_template_kwargs": "enable_thinking",
    "guided_json": "response_format",
    "grammar": "response_format",
    "verbosity": "a sentence on the length in the messages",
    "web_search_options": "a tool that searches",
}


def _fail(message: str) -> NoReturn:
    raise RequestError(message)


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse fields that are not known.

    Raises:
        RequestError: names the first, and what to use instead where that can be said.
    """
    known = list(known)
    if unknown := [name for name in names if name not in known]:
        way_out = f"use {_INSTEAD[unknown[0]]}" if unknown[0] in _INSTEAD else f"supported: {', '.join(known)}"
        _fail(f"unsupported request field {unknown[0]!r}; {way_out}")


def check_options(options: Mapping[str, Any]) -> None:
    """Check everything but the messages.

    Args:
        options: those that were given; none is None.

    Raises:
        RequestError: a value has the wrong type or is out of range, or two contradict each other.
    """
    for name, allowed in _NUMBERS.items():
        if name in options and not allowed.takes(options[name]):
            _fail(f"{name} must be {allowed}, got {options[name]!r}")
    for name in _FLAGS:
        if not isinstance(options.get(name, True), bool):
            _fail(f"{name} must be True or False, got {options[name]!r}")
    for name in _TEXTS:
        if not isinstance(options.get(name, ""), str):
            _fail(f"{name} must be a text, got {options[name]!r}")
    for name, (values, why) in _ONLY.items():
        if name in options and options[name] not in values:
            said = " or ".join(json.dumps(value) for value in values)
            _fail(f"{name} can only be {said}, got {options[name]!r}: {why}")
    _check_metadata(options.get("metadata", {}))
    _check_bias(options.get("logit_bias", {}))
    _check_rivals(options)
    _check_stop(options.get("stop", ()))
    _check_response_format(options.get("response_format", {"type": "text"}))
    check_choice(options.get("tool_choice", "auto"), tool_names(options.get("tools", ())))


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping) or not all(isinstance(t, str) for pair in metadata.items() for t in pair):
        _fail(f"metadata must map texts to texts, got {metadata!r}")


def _check_bias(biases: Any) -> None:
    if not isinstance(biases, Mapping):
        _fail(f"logit_bias must map token ids to numbers, got {biases!r}")
    for token, bias in biases.items():
        if not (_TOKEN.takes(token) or (isinstance(token, str) and token.isdecimal())):
            _fail(f"logit_bias is for token ids, which are whole numbers ≥ 0; got {token!r}")
        if not _BIAS.takes(bias):
            _fail(f"logit_bias of token {token} must be {_BIAS}, got {bias!r}")


def _check_rivals(options: Mapping[str, Any]) -> None:
    """Refuse two fields that say different things of the same."""
    if "top_logprobs" in options and not options.get("logprobs"):
        _fail("top_logprobs needs logprobs=True")
    old, new = options.get("max_tokens"), options.get("max_completion_tokens")
    if old and new and old != new:
        _fail(f"max_completion_tokens is the newer name of max_tokens; they are {new} and {old}: give one")
    if effort := options.get("reasoning_effort"):
        if not isinstance(effort, str) or effort not in EFFORTS:
            _fail(
                f"reasoning_effort {effort!r}; known: {', '.join(EFFORTS)}; for a budget of your own: thinking_budget"
            )
        if options.get("enable_thinking", EFFORTS[effort][0]) != EFFORTS[effort][0]:
            _fail(f"reasoning_effort {effort!r} contradicts enable_thinking={options['enable_thinking']}")


def check_stream_options(options: Any) -> None:
    """Check `stream_options`, an argument of `Model.stream` alone.

    Raises:
        RequestError: not a mapping, a field that is not known, or one that asks for what makes no sense here.
    """
    if not isinstance(options, Mapping):
        _fail(f'stream_options must be {{"include_usage": True}}, got {options!r}')
    for name, value in options.items():
        if name not in ("include_usage", "include_obfuscation"):
            _fail(f"stream_options has no {name!r}; known: include_usage")
        if not isinstance(value, bool | None):
            _fail(f"stream_options: {name} must be True or False, got {value!r}")
    if options.get("include_obfuscation"):
        _fail("stream_options: include_obfuscation hides lengths on a wire; there is none here")


def _check_stop(stop: Any) -> None:
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(s, str) for s in texts):
        _fail(f"stop must be a text or a list of texts, got {stop!r}")
    if not all(texts):
        _fail("an empty stop string would stop at once")


def _check_response_format(form: Any) -> None:
    kind = form.get("type") if isinstance(form, Mapping) else form
    if not isinstance(form, Mapping) or kind not in _RESPONSE_FORMATS:
        _fail(f'response_format must be {{"type": …}}; got type {kind!r}; known: {", ".join(_RESPONSE_FORMATS)}')
    if kind == "json_schema":
        inner = form.get("json_schema")
        if not isinstance(inner, Mapping) or not isinstance(inner.get("schema", {}), Mapping):
            _fail('response_format of type json_schema needs {"json_schema": {"name": …, "schema": {…}}}')
