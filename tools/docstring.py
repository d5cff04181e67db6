"""What a docstring says about a function: one text, one line per parameter, and the result. It knows no
types.

Google, NumPy and reST sections are read by docstring_parser.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .signature import innermost


@dataclass(frozen=True, slots=True)
class FunctionDoc:
    """`summary`: first paragraph and what follows it; `parameters`: text by name; `returns`: the result, or
    ''."""

    summary: str
    parameters: Mapping[str, str]
    returns: str

    @property
    def description(self) -> str:
        """The text for a tool: what it does and, where documented, what it returns."""
        if not self.returns:
            return self.summary
        return f"{self.summary} Returns: {self.returns}".strip()


def read_docstring(function: Callable[..., Any]) -> FunctionDoc:
    """Return what the docstring of `function` says; whitespace is made single spaces."""
    target = innermost(function)
    is_object = not (inspect.isroutine(target) or isinstance(target, type))
    text = inspect.getdoc(target.__call__ if is_object and not _own_doc(target) else target) or ""
    if not text.strip():
        return FunctionDoc("", {}, "")
    import docstring_parser

    parsed = docstring_parser.parse(text)
    parameters: dict[str, str] = {}
    for item in parsed.params:
        for name in item.arg_name.split(","):  # NumPy: "a, b : int"
            parameters[name.strip().lstrip("*")] = _line(item.description)
    returns = _line(parsed.returns.description) if parsed.returns else ""
    if parsed.returns and not returns:
        returns = _line(parsed.returns.type_name)
    summary = _line(f"{parsed.short_description or ''} {parsed.long_description or ''}")
    return FunctionDoc(summary, {name: said for name, said in parameters.items() if said}, returns)


def _own_doc(target: Any) -> bool:
    """Whether an object's class has its own docstring (and not one that a dataclass made up)."""
    text: str = type(target).__doc__ or ""
    return bool(text) and not text.startswith(f"{type(target).__name__}(")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
