"""What may stand in a request beside its messages, field by field. Raises RequestError with the field's name, what it
was, what is allowed.

Does not know what a field does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from laploop.engine.values import MAX_INT, Range, shown

from .plain import check_keys, check_plain, check_text, fail
from .tool_checks import check_choice, tool_names

# What each type of response format holds beside its type.
_RESPONSE_FORMATS: dict[str, tuple[str, ...]] = {"text": (), "json_object": (), "json_schema": ("json_schema",)}

# OpenAI's API reference, "Create chat completion", where it limits what has a limit by its nature; limits that only
# protect a shared server (4 stop texts, a temperature of 2, penalties of 2) are none here. Those of the sampling's
# numbers are the engine's, see `SamplingParams`.
_MOST = 1_000_000
_NUMBERS = {
    "n": Range(1, 128, whole=True),
    "top_logprobs": Range(0, 20, whole=True),
    "temperature": Range(0, _MOST),
    "top_p": Range(0, 1, with_low=False),
    "min_p": Range(0, 1),
    "top_k": Range(0, MAX_INT, whole=True),
    "presence_penalty": Range(-_MOST, _MOST),
    "frequency_penalty": Range(-_MOST, _MOST),
    "repeat_penalty": Range(1 / _MOST, _MOST),
    "seed": Range(-math.inf, whole=True),
    "max_tokens": Range(1, whole=True),
    "max_completion_tokens": Range(1, whole=True),
    "thinking_budget": Range(0, whole=True),
}
_TOKEN, _BIAS = Range(0, MAX_INT, whole=True), Range(-100, 100)
_MOST_STOP_CHARS = 200_000  # together; looking for them takes some 250 bytes for each
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


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse fields that are not known.

    Raises:
        RequestError: names the first, and what to use instead where that can be said.
    """
    known = list(known)
    if unknown := [name for name in names if name not in known]:
        way_out = f"use {_INSTEAD[unknown[0]]}" if unknown[0] in _INSTEAD else f"supported: {', '.join(known)}"
        fail(f"unsupported request field {shown(unknown[0])}; {way_out}")


def check_options(options: Mapping[str, Any]) -> None:
    """Check everything but the messages.

    Args:
        options: those that were given; none is None.

    Raises:
        RequestError: a value has the wrong type or is out of range, or two contradict each other.
    """
    for name, allowed in _NUMBERS.items():
        if name in options and not allowed.takes(options[name]):
            fail(f"{name} must be {allowed}, got {shown(options[name])}")
    for name in _FLAGS:
        if not isinstance(options.get(name, True), bool):
            fail(f"{name} must be True or False, got {shown(options[name])}")
    for name in _TEXTS:
        check_text(options.get(name, ""), name)
    for name, (values, why) in _ONLY.items():
        value = options.get(name)
        if name in options and not any(type(value) is type(v) and value == v for v in values):
            said = " or ".join(json.dumps(value) for value in values)
            fail(f"{name} can only be {said}, got {shown(value)}: {why}")
    _check_metadata(options.get("metadata", {}))
    _check_bias(options.get("logit_bias", {}))
    _check_effort(options)
    _check_rivals(options)
    _check_stop(options.get("stop", ()))
    _check_response_format(options.get("response_format", {"type": "text"}))
    check_choice(options.get("tool_choice", "auto"), tool_names(options.get("tools", ())))


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping) or not all(isinstance(t, str) for pair in metadata.items() for t in pair):
        fail(f"metadata must map texts to texts, got {shown(metadata)}")
    check_plain(metadata, "metadata")


def _check_bias(biases: Any) -> None:
    if not isinstance(biases, Mapping):
        fail(f"logit_bias must map token ids to numbers, got {shown(biases)}")
    tokens = set()
    for key, bias in biases.items():
        # JSON has no other keys than texts.
        token = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 10 else key
        if not _TOKEN.takes(token):
            fail(f"logit_bias is for token ids, which are whole numbers ≥ 0; got {shown(key)}")
        if not _BIAS.takes(bias):
            fail(f"logit_bias of token {token} must be {_BIAS}, got {shown(bias)}")
        if token in tokens:
            fail(f"logit_bias names the token {token} twice")
        tokens.add(token)


def _check_effort(options: Mapping[str, Any]) -> None:
    if "reasoning_effort" not in options:
        return
    effort = options["reasoning_effort"]
    if not isinstance(effort, str) or effort not in EFFORTS:
        fail(
            f"reasoning_effort {shown(effort)}; known: {', '.join(EFFORTS)}; for a budget of your own: thinking_budget"
        )
    if options.get("enable_thinking", EFFORTS[effort][0]) != EFFORTS[effort][0]:
        fail(f"reasoning_effort {effort!r} contradicts enable_thinking={options['enable_thinking']}")


def _check_rivals(options: Mapping[str, Any]) -> None:
    """Refuse two fields that say different things of the same."""
    if "top_logprobs" in options and not options.get("logprobs"):
        fail("top_logprobs needs logprobs=True")
    old, new = options.get("max_tokens"), options.get("max_completion_tokens")
    if old and new and old != new:
        fail(f"max_completion_tokens is the newer name of max_tokens; they are {shown(new)} and {shown(old)}: give one")


def check_stream_options(options: Any) -> None:
    """Check `stream_options`, an argument of `Model.stream` alone.

    Raises:
        RequestError: not a mapping, a field that is not known, or one that asks for what makes no sense here.
    """
    if not isinstance(options, Mapping):
        fail(f'stream_options must be {{"include_usage": True}}, got {shown(options)}')
    for name, value in options.items():
        if name not in ("include_usage", "include_obfuscation"):
            fail(f"stream_options has no {shown(name)}; known: include_usage")
        if not isinstance(value, bool | None):
            fail(f"stream_options: {name} must be True or False, got {shown(value)}")
    if options.get("include_obfuscation"):
        fail("stream_options: include_obfuscation hides lengths on a wire; there is none here")


def _check_stop(stop: Any) -> None:
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list | tuple) or not all(isinstance(s, str) for s in texts):
        fail(f"stop must be a text or a list of texts, got {shown(stop)}")
    if not all(texts):
        fail("an empty stop string would stop at once")
    check_plain(texts, "stop")
    if (n := sum(map(len, texts))) > _MOST_STOP_CHARS:
        fail(f"stop has {n} characters, at most {_MOST_STOP_CHARS} are looked for")


def _check_response_format(form: Any) -> None:
    kind = form.get("type") if isinstance(form, Mapping) else form
    if not isinstance(form, Mapping) or not isinstance(kind, str) or kind not in _RESPONSE_FORMATS:
        fail(f'response_format must be {{"type": …}}; got type {shown(kind)}; known: {", ".join(_RESPONSE_FORMATS)}')
    if kind != "json_schema" and ({"schema", "json_schema"} & form.keys()):
        fail(
            f'response_format of type {kind} takes no schema; a schema goes into {{"type": "json_schema", '
            '"json_schema": {"name": …, "schema": {…}}}'
        )
    check_keys(form, f"response_format of type {kind}", ("type", *_RESPONSE_FORMATS[kind]))
    check_plain(form, "response_format")
    if kind == "json_schema":
        _check_json_schema(form.get("json_schema"))


def _check_json_schema(inner: Any) -> None:
    if not isinstance(inner, Mapping) or not isinstance(inner.get("schema"), Mapping | None):
        fail('response_format of type json_schema needs {"json_schema": {"name": …, "schema": {…}}}')
    check_keys(inner, "response_format: json_schema", ("name", "description", "schema", "strict"))
    for key in ("name", "description"):
        if inner.get(key) is not None:
            check_text(inner[key], f"response_format: json_schema: {key}")
    if not isinstance(inner.get("strict"), bool | None):
        fail(f"response_format: json_schema: strict must be True or False, got {shown(inner['strict'])}")
