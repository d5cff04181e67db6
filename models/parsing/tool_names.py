"""What a text protocol's output may name as its action: an offered tool, none, the final answer, or something unknown.

Knows the request's tools and the words of the protocol, not the text around a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..dialect import LabelVariants

_DRESS = " \t`'\"*[]<>"  # what models put around a name
_NAME = re.compile(r"[\w.\-]+")


class ToolNames:
    """Judges names.

    Args:
        tools: those that are offered, in OpenAI form.
        variants: words that stand for no tool, for the final answer, for no input.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], variants: LabelVariants) -> None:
        self._offered: dict[str, str | None] = {}  # name → its parameter, if all it takes is one text
        for function in (tool["function"] for tool in tools):
            properties = (function.get("parameters") or {}).get("properties") or {}
            texts = [k for k, v in properties.items() if isinstance(v, Mapping) and v.get("type") == "string"]
            self._offered[str(function["name"])] = texts[0] if len(texts) == len(properties) == 1 else None
        self._nothing = tuple(word.casefold() for word in variants.no_action)
        self._answers = frozenset(word.casefold() for word in variants.answer_actions)
        self._no_input = frozenset(word.casefold() for word in ("", "{}", *variants.no_input))

    def is_offered(self, name: str | None) -> bool:
        """Whether it is the name of an offered tool."""
        return name in self._offered

    def may_go_on(self, text: str) -> bool:
        """Whether the name of an offered tool begins with `text`."""
        return any(name.startswith(text) for name in self._offered)

    def text_parameter(self, name: str) -> str | None:
        """The parameter of a tool that takes one text and nothing else."""
        return self._offered.get(name)

    def clean(self, line: str) -> str:
        """The name on a line of its own, without quotes, brackets and full stops."""
        name = line.strip()
        return name if name in self._offered else name.strip(_DRESS).rstrip(".,;:").strip(_DRESS)

    def could_be_tool(self, name: str) -> bool:
        """Whether it is spelled like the name of a tool, known or not."""
        return name in self._offered or _NAME.fullmatch(name) is not None

    def means_answer(self, name: str | None) -> bool:
        """Whether it says that the input is the final answer."""
        return name is not None and name not in self._offered and name.casefold() in self._answers

    def means_nothing(self, name: str | None) -> bool:
        """Whether it says that no tool is wanted."""
        if name is None or name in self._offered:
            return False
        word = name.casefold()
        return not word or word in self._nothing or word.startswith(tuple(f"{w} " for w in self._nothing))

    def is_no_input(self, text: str) -> bool:
        """Whether an input says that there is none."""
        return text.strip().casefold() in self._no_input
