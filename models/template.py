"""Messages into a prompt, by the model's own template, so that no content can pose as a control token.

Templates are Jinja, sandboxed (`template_sandbox`), with Hugging Face's semantics (transformers,
`apply_chat_template`): `tojson` keeps order, non-ASCII and <>&. Content that holds the text of a special token is cut
inside it: the prompt is a tuple of pieces, and no token is formed across two of them. Does not know how pieces become
tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2
from laploop.engine.values import shown

from .call_writing import WrittenCall, calls_text
from .dialect import Wrapper
from .errors import RequestError, TemplateError
from .template_allowance import LimitError, allowance
from .template_sandbox import SandboxedTemplates

# A noncharacter: Unicode reserves it for use inside a program, so that no text may bring it along.
_CUT = "\ufdd0"
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_MOST_SPACE = 16  # characters between values of JSON
_MOST_SAID = 300  # characters of what a template says of itself
_WAY_OUT = "another file of this model may carry a better one"
# What counts as a mark where no vocabulary is at hand.
COMMON_MARKS = re.compile(r"<\|[^<>|\s]{1,40}\|>|</?(?:think|tool_call|tool_response|s|pad|unk|bos|eos)>")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt.

    Args:
        pieces: the text, cut wherever content would otherwise have formed a special token. str() joins them.
    """

    pieces: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(self.pieces)

    @property
    def opens_think(self) -> bool:
        """Whether it ends inside a thinking block that the template opened."""
        return self.pieces[-1].rstrip().endswith("<think>")

    def without_open_think(self) -> Prompt:
        """The same without such a block, for a text protocol, which has its own way to think."""
        *head, last = self.pieces
        return Prompt((*head, last.rstrip().removesuffix("<think>"))) if self.opens_think else self


class _Arguments(dict[str, Any]):
    """Arguments as an object, which templates expect, that `tojson` writes with the model's own spelling."""

    def __init__(self, text: str, guard: _Guard) -> None:
        # Escapes in the text are decoded only here: the values are guarded by themselves.
        super().__init__(guard.deep(json.loads(text)))
        self.text = guard.text(text)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, _Arguments) and not (ensure_ascii or indent or separators or sort_keys):
        return value.text
    if (indent and indent > _MOST_SPACE) or any(len(s) > _MOST_SPACE for s in separators or ()):
        raise LimitError(f"it asks for JSON with more than {_MOST_SPACE} characters between values")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Refusal(jinja2.TemplateError):
    """The template itself says that it does not take such messages."""


def _raise(message: str) -> None:
    raise _Refusal(message)


def _now(form: str) -> str:
    if len(form) > _MOST_SPACE * 10:
        raise LimitError("it asks for the time in a form that is too long")
    return datetime.now().strftime(form)


@lru_cache(maxsize=16)
def _compile(template: str) -> jinja2.Template:
    environment = SandboxedTemplates(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.add_filter("tojson", _tojson)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(template)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"the chat template cannot be compiled: line {error.lineno}: {error.message}") from error
    except Exception as error:  # Python compiles what Jinja wrote, and refuses some of it in its own ways
        raise TemplateError(f"the chat template cannot be compiled: {_said(error)}; {_WAY_OUT}") from error


def _said(error: Exception) -> str:
    text = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= _MOST_SAID else f"{text[: _MOST_SAID - 1]}…"


_SYSTEM, _USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}
_TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}


def check_template(template: str) -> None:
    """Compile a chat template, and render conversations as simple as can be.

    Raises:
        TemplateError: it has an error, and names the line; or it fails whatever it is given. One that refuses such
            messages in words of its own may take others.
    """
    _compile(template)
    fault = None
    for messages, tools in ([_USER], None), ([_SYSTEM, _USER], None), ([_USER], [_TOOL]):
        fault = _fault(template, messages, tools)
        if fault is None or isinstance(fault.__cause__, LimitError):
            break
    if fault:
        raise fault


def _fault(template: str, messages: list[Any], tools: list[Any] | None) -> TemplateError | None:
    try:
        render_prompt(template, messages, tools, variables={"bos_token": "", "eos_token": ""})
    except TemplateError as error:
        return None if isinstance(error.__cause__, _Refusal) else error
    return None


@lru_cache(maxsize=1)
def builtin_template() -> str:
    """Our own Qwen3 template, for files that carry none or a broken one."""
    return (files(__package__) / "templates" / "qwen3.jinja").read_text("utf-8")


def render_prompt(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    enable_thinking: bool | None = None,
    add_generation_prompt: bool = True,
    *,
    marks: re.Pattern[str] = COMMON_MARKS,
    variables: Mapping[str, Any] | None = None,
    calls_in_content: Wrapper | None = None,
) -> Prompt:
    """Render messages with a chat template.

    Args:
        template: Jinja source.
        messages: OpenAI messages.
        tools: tools in OpenAI form.
        enable_thinking: passed to the template where it is not None.
        add_generation_prompt: end with the opening of the assistant's turn.
        marks: matches the text of every special token; `Vocabulary.special_pattern` of the model at hand.
        variables: more for the template, such as bos_token.
        calls_in_content: how calls are written into the content, for a template that leaves them out.

    Raises:
        TemplateError: the template cannot be compiled or refuses the messages.
        RequestError: a message cannot be expressed.
    """
    _check_given(template, messages, tools, marks, variables)
    guard = _Guard(marks)
    context: dict[str, Any] = {
        "messages": [_template_message(m, guard, "</think>" in template) for m in messages],
        "tools": guard.deep(list(tools)) if tools else None,
        "add_generation_prompt": add_generation_prompt,
        **(variables or {}),
    }
    if "xml_tools" in template:  # SmolLM3's name for them
        context["xml_tools"] = context["tools"]
    if calls_in_content:
        for message in context["messages"]:
            _write_calls(message, calls_in_content)
    if enable_thinking is not None:
        context["enable_thinking"] = enable_thinking
    compiled = _compile(template)
    try:
        with allowance():
            text = _written(compiled, context)
    except LimitError as error:
        raise TemplateError(f"the chat template was stopped: {error}; {_WAY_OUT}") from error
    except jinja2.TemplateError as error:
        raise TemplateError(f"the chat template refuses these messages: {_said(error)}") from error
    except Exception as error:  # whatever Python raises in a program that a stranger wrote
        raise TemplateError(f"the chat template failed: {_said(error)}; {_WAY_OUT}") from error
    # Half a surrogate pair, as an escape in arguments or in the template may spell it, is no text.
    return Prompt(tuple(_HALF_PAIR.sub("\ufffd", text).split(_CUT)))


def _written(compiled: jinja2.Template, context: dict[str, Any]) -> str:
    try:
        return compiled.render(context)
    except TypeError:
        if context["tools"] is not None:
            raise
        # Templates of tool use alone go through the list without asking whether there is one (Hermes 2 Pro).
        return compiled.render({**context, "tools": []})


def _check_given(template: Any, messages: Any, tools: Any, marks: Any, variables: Any) -> None:
    """Raise an error of ours for what can be no template, no messages and no tools; what is in them comes later."""
    if not isinstance(template, str):
        raise TemplateError(f"template is {shown(template)}; expected the Jinja source of a chat template")
    for name, value in (("messages", messages), ("tools", tools or [])):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        if not is_list or not all(isinstance(item, Mapping) for item in value):
            raise RequestError(f"{name} is {shown(value)}; expected a list of objects")
    if not isinstance(marks, re.Pattern) or not isinstance(variables or {}, Mapping):
        raise RequestError(f"marks must be a compiled pattern and variables an object, got {shown((marks, variables))}")


class _Guard:
    """Cuts content inside every special mark."""

    def __init__(self, marks: re.Pattern[str]) -> None:
        # Only the first character is taken, so that a mark that begins inside another one is cut too.
        self._beginning = re.compile(f"(?=(?:{marks.pattern}))(.)", marks.flags | re.DOTALL)

    def text(self, text: str) -> str:
        return self._beginning.sub(rf"\1{_CUT}", text.replace(_CUT, "\ufffd"))

    def deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.deep(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.deep(v) for v in value]
        return value


def _template_message(message: Mapping[str, Any], guard: _Guard, template_thinks: bool) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError(f"a message has the role {role!r}; a name such as 'user' is needed")
    role = "system" if role == "developer" else role
    content = content_text(message.get("content"))
    reasoning = message.get("reasoning_content")
    if role == "assistant" and not isinstance(reasoning, str) and template_thinks and "</think>" in content:
        # Histories of other programs carry the thoughts in the content. The template would look for the tags
        # itself, but it must not find any in content: split here, by its rule.
        reasoning, _, _ = content.partition("</think>")
        reasoning = reasoning.rstrip("\n").rpartition("<think>")[2].lstrip("\n")
        content = content.rpartition("</think>")[2].lstrip("\n")
    rendered: dict[str, Any] = {"role": role, "content": guard.text(content)}
    if isinstance(reasoning, str):
        rendered["reasoning_content"] = guard.text(reasoning)
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list | tuple):
            raise RequestError(f"tool_calls is {shown(calls)}; expected a list of calls")
        rendered["tool_calls"] = [_template_call(call, guard) for call in calls]
    for key in ("tool_call_id", "name"):
        if isinstance(message.get(key), str):
            rendered[key] = guard.text(message[key])
    return rendered


def _write_calls(message: dict[str, Any], wrapper: Wrapper) -> None:
    """Move a message's calls, whose texts are guarded already, into its content."""
    if calls := message.pop("tool_calls", None):
        written = [WrittenCall(c["function"]["name"], c["function"]["arguments"], str(c.get("id", ""))) for c in calls]
        content = message["content"]
        message["content"] = f"{content}\n{calls_text(wrapper, written)}" if content else calls_text(wrapper, written)


def content_text(content: Any) -> str:
    """A message's content as text: a string, the joined text parts of a list, "" for None.

    Raises:
        RequestError: anything else.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise RequestError(f"content is a {type(content).__name__}; expected text, or a list of text parts")
    parts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") not in ("text", "input_text", "output_text"):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RequestError(f"content part of type {kind!r}: only text is supported")
        if not isinstance(part.get("text"), str):
            raise RequestError("a content part of type 'text' has no text")
        parts.append(part["text"])
    return "".join(parts)


def _template_call(call: Mapping[str, Any], guard: _Guard) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError('a tool call is not {"id": …, "type": "function", "function": {"name": …, "arguments": …}}')
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        text = arguments.strip() or "{}"
        try:
            arguments = _Arguments(text, guard)
        except (ValueError, TypeError, RecursionError):
            arguments = guard.text(text)  # a broken history is shown to the model as it is
    else:
        arguments = guard.deep(arguments or {})
    rendered = {
        "type": "function",
        "function": {"name": guard.text(function["name"]), "arguments": arguments},
    }
    return rendered if call.get("id") is None else {"id": guard.text(str(call["id"])), **rendered}
