"""A conversation with tools as plain text, for chat templates that have no place for tools.

The tools and the rules go into the system message, calls become lines with labels (`Thought:`, `Action:`,
`Action Input:`), results user messages that begin with `Observation:`. `assistant_text` is the inverse of the parser,
and what the grammar makes a model write is what it gives back: a rendered history repeats the outputs letter by letter.
Knows messages and labels; neither the parser nor the grammar, and no template's source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .dialect import Dialect, Labels, LabelVariants
from .errors import TemplateError
from .language import language_of
from .parsing.labels import LabelReader, label_reader
from .protocol_rules import protocol_rules
from .requests.request import Request
from .template import content_text, render_prompt

Message = dict[str, Any]
_NO_VARIANTS = LabelVariants()


def speaks_protocol(request: Request) -> bool:
    """Whether a request has anything that needs the protocol: tools, or calls in its history."""
    return bool(request.tools) or any(m["role"] == "tool" or m.get("tool_calls") for m in request.messages)


def wants_thought(request: Request) -> bool:
    """Whether replies may begin with a thought."""
    return request.enable_thinking is not False and request.thinking_budget != 0


def protocol_messages(request: Request, dialect: Dialect, template: str) -> list[Message]:
    """The messages of `request` as `template` can render them without knowing of tools.

    Args:
        request: tool_choice does not count, so that limiting it does not change the prompt.
        dialect: one with labels.
        template: Jinja source of a chat template.

    Raises:
        RequestError: a tool's name cannot stand on a line of its own; a message's content is no text.
    """
    assert dialect.labels
    messages = [dict(m) for m in request.messages]
    system = content_text(messages.pop(0).get("content")) if messages[0]["role"] in ("system", "developer") else ""
    said = next((content_text(m.get("content")) for m in messages if m["role"] == "user"), "")
    rules = protocol_rules(request, dialect.labels, language_of(system or said), thinking=wants_thought(request))
    text = f"{system}\n\n{rules}" if system else rules
    spoken = _spoken(messages, dialect.labels, dialect.variants)
    return _fitted([{"role": "system", "content": text}, *spoken], template)


def said_before(raw: bytes, labels: Labels) -> bytes:
    """An output without the label of a next section at its end, with which a model shows that it is done."""
    for label in (labels.observation, labels.thought):
        raw = raw.removesuffix(f"\n{label}".encode())
    return raw


def assistant_text(message: Mapping[str, Any], labels: Labels, variants: LabelVariants = _NO_VARIANTS) -> str:
    """What a model would have written for this assistant message: the inverse of the parser.

    Content, then the thought, then each call as two lines; without calls the thought, then the final answer. A reply
    that broke the format, whose content therefore begins with the label of a thought or an action, stays as it is.
    Other lines that the parser would read as labels are indented by one space.

    Args:
        message: an OpenAI assistant message.
        labels: the words of the protocol.
        variants: other words that the parser takes for them.
    """
    reader = label_reader(labels, variants)
    content = content_text(message.get("content"))
    thought = message.get("reasoning_content")
    parts = [f"{labels.thought} {indented(thought, reader)}"] if isinstance(thought, str) and thought else []
    if calls := message.get("tool_calls"):
        if content:
            parts.insert(0, indented(content, reader))
        parts += [_call_text(call["function"], labels) for call in calls]
    elif (label := reader.read(content, 0, True)) and label.kind not in ("answer", "observation"):
        parts.append(content)
    elif content:
        # An answer may speak of anything: only labels as we spell them end it.
        parts.append(f"{labels.answer} {indented(content, reader, exact=True)}")
    return "\n".join(parts)


def _call_text(function: Mapping[str, Any], labels: Labels) -> str:
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f"{labels.action} {function['name']}\n{labels.action_input} {arguments.strip()}"


def indented(text: str, reader: LabelReader, *, exact: bool = False) -> str:
    """The text with one space in front of each line that begins with a label: nobody takes it for one then.

    Args:
        text: what a user, a tool or a model said.
        reader: knows the labels in all their forms.
        exact: spare the forms that differ from the protocol's own.
    """
    lines = text.split("\n")
    for i, line in enumerate(lines):
        label = reader.read(line, 0, True)
        if label and (label.exact or not exact):
            lines[i] = " " + line
    return "\n".join(lines)


def _spoken(messages: Sequence[Message], labels: Labels, variants: LabelVariants) -> list[Message]:
    """The messages behind the first system message, without tool calls and without the role of a tool."""
    reader = label_reader(labels, variants)
    spoken: list[Message] = []
    names: dict[str, str] = {}  # call id → name, of the latest message with calls
    results: list[Message] = []

    def observe() -> None:
        if results:
            spoken.append({"role": "user", "content": _observations(results, names, labels, reader)})
            results.clear()

    for message in messages:
        role, content = message["role"], content_text(message.get("content"))
        if role == "tool":
            results.append(message)
            continue
        observe()
        if role == "assistant":
            names = {c["id"]: c["function"]["name"] for c in message.get("tool_calls") or ()}
            # An empty reasoning_content keeps `render_prompt` from looking for thoughts in the content.
            text = assistant_text(message, labels, variants)
            spoken.append({"role": role, "content": text, "reasoning_content": ""})
        else:
            spoken.append({"role": role, "content": indented(content, reader)})
    observe()
    return spoken


def _observations(results: Sequence[Message], names: Mapping[str, str], labels: Labels, reader: LabelReader) -> str:
    """One line begun with the label for each result; where there are several, each names its tool."""
    several = len(results) > 1
    return "\n".join(
        f"{labels.observation} {names[m['tool_call_id']] + ': ' if several else ''}"
        f"{indented(content_text(m.get('content')), reader)}"
        for m in results
    )


# -- what a template can take --------------------------------------------------------------------------------------


def _fitted(messages: list[Message], template: str) -> list[Message]:
    """The messages in an order of roles that the template renders whole."""
    if not _takes(template, ("system", "user", "assistant", "user")):
        system, rest = messages[0]["content"], messages[1:]
        if not rest or rest[0]["role"] != "user":
            rest.insert(0, {"role": "user", "content": ""})
        first = {**rest[0], "content": f"{system}\n\n{rest[0]['content']}".rstrip("\n")}
        messages = [first, *rest[1:]]
    if not _takes(template, ("user", "user", "assistant", "assistant", "user")):
        joined: list[Message] = []
        for message in messages:
            if joined and joined[-1]["role"] == message["role"]:
                text = f"{joined[-1]['content']}\n\n{message['content']}"
                joined[-1] = {**joined[-1], "content": text}
            else:
                joined.append(message)
        messages = joined
    return messages


@lru_cache(maxsize=64)
def _takes(template: str, roles: tuple[str, ...]) -> bool:
    """Whether a template renders messages of these roles, with the text of each: some refuse, some leave out."""
    messages = [{"role": role, "content": f"text {i}."} for i, role in enumerate(roles)]
    try:
        text = str(render_prompt(template, messages, variables={"bos_token": "", "eos_token": ""}))
    except TemplateError:
        return False
    return all(m["content"] in text for m in messages)
