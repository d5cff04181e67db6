"""Which tools a model sees. Two ways: chosen before the first prompt, which then is shorter; masked in a request, which
leaves the prompt as it is. It runs nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from laploop.tools import Tool, ToolRegistry

from .choice import ToolChoice, permitted_names
from .errors import ConfigError

_WORD = re.compile(r"[a-z0-9]+|[\u3400-\u9fff\uf900-\ufaff]+")
_K1, _B = 1.5, 0.75  # the usual constants of BM25 (Robertson and Zaragoza 2009, section 3.3)


@dataclass(frozen=True, slots=True)
class RoundView:
    """What a callable that chooses the tools of a round is given: the number of the round to come, counted from 1, the
    history (do not change it), and the names that exist."""

    round: int
    messages: Sequence[dict[str, Any]]
    names: Sequence[str]


Visible = Sequence[str] | Callable[[RoundView], Iterable[str]]


class ToolSelector(Protocol):
    """Chooses the tools of a run before its first prompt."""

    def select(self, question: str, tools: Sequence[Tool]) -> list[Tool]:
        """Those that may be needed for `question`, in their order."""


@dataclass(frozen=True, slots=True)
class Bm25Selector:
    """The tools whose names and descriptions go best with the question, by BM25; all, where there are few.

    Args:
        max_tools: most tools. Those that a chosen one needs a value from come in addition.
    """

    max_tools: int = 16

    def select(self, question: str, tools: Sequence[Tool]) -> list[Tool]:
        """At most `max_tools` and what they need; ties go to the tools that come first."""
        if len(tools) <= self.max_tools:
            return list(tools)
        scores = bm25_scores(question, [_text_of(tool) for tool in tools])
        best = sorted(range(len(tools)), key=lambda n: (-scores[n], n))[: self.max_tools]
        return with_needed({tools[n].name for n in best}, tools)


def tools_of_run(
    tools: ToolRegistry,
    selector: ToolSelector | None,
    question: str,
    messages: Sequence[dict[str, Any]],
    tool_choice: ToolChoice,
) -> ToolRegistry:
    """The tools of a run: what the selector chooses, what the history has called, and what tool_choice names."""
    if selector is None:
        return tools
    everything = list(tools)
    chosen = {tool.name for tool in selector.select(question, everything)}
    if len(chosen) == len(everything):
        return tools
    called = {c.get("function", {}).get("name") for m in messages for c in m.get("tool_calls") or ()}
    if isinstance(tool_choice, dict):
        called.update(permitted_names(tool_choice, tools.names()))
    return ToolRegistry(tool for tool in everything if tool.name in chosen | called)


def with_needed(names: Iterable[str], tools: Sequence[Tool]) -> list[Tool]:
    """The tools of these names and, at any depth, those that their arguments come from."""
    needs = {tool.name: set(tool.needs.values()) for tool in tools}
    wanted: set[str] = set()
    todo = set(names)
    while todo:
        wanted |= todo
        todo = {source for name in todo for source in needs.get(name, ())} & needs.keys() - wanted
    return [tool for tool in tools if tool.name in wanted]


def bm25_scores(query: str, texts: Sequence[str]) -> list[float]:
    """How well each text goes with the query; 0 where they share no word."""
    documents = [Counter(words_of(text)) for text in texts]
    mean_length = sum(sum(d.values()) for d in documents) / max(1, len(documents)) or 1.0
    n_with = Counter(word for document in documents for word in document)
    asked = set(words_of(query))

    def score(document: Counter[str]) -> float:
        length = _K1 * (1 - _B + _B * sum(document.values()) / mean_length)
        total = 0.0
        for word in asked & document.keys():
            rarity = math.log(1 + (len(documents) - n_with[word] + 0.5) / (n_with[word] + 0.5))
            total += rarity * document[word] * (_K1 + 1) / (document[word] + length)
        return total

    return [score(document) for document in documents]


def words_of(text: str) -> list[str]:
    """Lower-case words, parts of snake_case and camelCase included; of Chinese, which has no spaces, pairs of
    characters."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()
    words = []
    for piece in _WORD.findall(split):
        if piece[0] < "\u3400":
            words.append(piece[:-1] if len(piece) > 3 and piece.endswith("s") else piece)
        else:
            words += [piece[n : n + 2] for n in range(len(piece) - 1)] or [piece]
    return words


def _text_of(tool: Tool) -> str:
    about = " ".join(str(p.get("description", "")) for p in tool.parameters.get("properties", {}).values())
    return f"{tool.name} {tool.name} {tool.group} {tool.description} {about}"


def names_of(wanted: Iterable[str], tools: Iterable[Tool]) -> list[str]:
    """The names that a list of tool names and group names stands for, in the tools' order.

    Raises:
        ConfigError: a name that is neither; lists both kinds.
    """
    tools, given = list(tools), set(wanted)
    groups = {tool.group for tool in tools} - {""}
    if unknown := sorted(given - groups - {tool.name for tool in tools}):
        raise ConfigError(
            f"there is no tool or group {unknown[0]!r}; tools: {', '.join(t.name for t in tools) or 'none'}; "
            f"groups: {', '.join(sorted(groups)) or 'none'}"
        )
    return [tool.name for tool in tools if tool.name in given or tool.group in given]
