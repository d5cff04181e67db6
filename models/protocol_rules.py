"""What a text protocol tells a model in the system message: the tools, and how to call them, in English or Chinese.

These sentences are measured and fragile. Knows labels and tools; not the rest of the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .dialect import Labels
from .errors import RequestError
from .language import Language
from .requests.request import Request


@dataclass(frozen=True, slots=True)
class _Words:
    """The protocol's rules in one language; names in braces are filled by str.format."""

    tools: str
    form: str
    answer: str
    last_thought: str
    text: str
    call: str
    thought: str
    name: str
    arguments: str
    more_calls: str
    results: str
    answer_only: str


# Measured on qwen2.5-coder-1.5b and 0.5b (docs/log.md): models copy what stands behind a label, so that it has to be
# the beginning of a thought; what stands first is done more often, which is the answer without a tool.
_WORDS: dict[Language, _Words] = {
    "en": _Words(
        tools="# Tools\nOne tool a line, as JSON:",
        form="# How to reply",
        answer="When you can answer, because no tool is needed or because the results are there, write:",
        last_thought="I need no tool …",
        text="the answer for the user",
        call="Only if the question needs one of these tools, write these lines instead, and stop after them:",
        thought="I need …, so I call …",
        name="the tool's name",
        arguments="its arguments, one JSON object",
        more_calls="Further calls that need no result of these follow at once, each as {action} and {action_input}.",
        results="Then its result comes to you as {observation} You never write that line yourself.",
        answer_only="Write your reply like this:",
    ),
    "zh": _Words(
        tools="# 工具\n每行一个工具，用 JSON 写成：",
        form="# 怎样回复",
        answer="不需要工具（问候、常识），或者已经收到 {result} 时，写：",
        last_thought="不需要工具……",
        text="给用户的回答",
        call="需要工具（查询、读取、计算）而还没有结果时，写下面几行，写完就停：",
        thought="我需要……，所以调用……",
        name="工具名",
        arguments="参数，一个 JSON 对象",
        more_calls="不依赖这次结果的其他调用，紧接着各写一组 {action} 和 {action_input}。",
        results="随后你会收到以 {observation} 开头的结果；这一行你自己不写。",
        answer_only="回复写成这样：",
    ),
}


def protocol_rules(request: Request, labels: Labels, language: Language, *, thinking: bool) -> str:
    """The tools of a request and how to call them, as one text."""
    words = _WORDS[language]
    named = {f.name: getattr(labels, f.name) for f in fields(labels)} | {"result": labels.observation.rstrip(":")}
    answer = f"{labels.thought} {words.last_thought}\n" if thinking else ""
    answer += f"{labels.answer} {words.text}"
    if not request.tools:
        return f"{words.answer_only}\n{answer}"
    tools = [json.dumps(_described(tool["function"]), ensure_ascii=False) for tool in request.tools]
    call = f"{labels.thought} {words.thought}\n" if thinking else ""
    call += f"{labels.action} {words.name}\n{labels.action_input} {words.arguments}"
    results = f"{words.more_calls}\n{words.results}" if request.parallel_tool_calls else words.results
    parts = [
        "\n".join([words.tools, *tools]),
        f"{words.form}\n{words.answer.format(**named)}\n{answer}",
        f"{words.call}\n{call}",
        results.format(**named),
    ]
    return "\n\n".join(parts)


def _described(function: Mapping[str, Any]) -> dict[str, Any]:
    name = function["name"]
    if name != name.strip() or not name.isprintable():
        raise RequestError(f"the tool name {name!r} cannot stand on a line of its own, as the text protocol needs it")
    return {k: function[k] for k in ("name", "description", "parameters") if function.get(k)}
