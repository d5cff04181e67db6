"""Jinja for templates that strangers wrote: they come in a GGUF, so that they may not take the machine with them.

jinja2's sandbox keeps a template away from Python's internals. This one also keeps it from taking all time and memory:
whatever makes or repeats something (loops, calls, filters, operators, output) is paid for from an allowance, and what
Python could not be stopped in is refused before it begins. Knows no messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .template_allowance import LimitError, allowed
from .template_filters import Formats, check_int, filters, formatted, paid, size_of_method, spend_fields

MAX_TEMPLATE_CHARS = 200_000
# What templates may call of Python's own types. The others can be given a number and make as much.
_OF_TEXTS = """
    capitalize casefold center count endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal
    isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition
    removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip
    swapcase title upper zfill
"""
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_OF_TEXTS.split()),
    dict: frozenset(["copy", "get", "items", "keys", "values"]),
    list: frozenset(["copy", "count", "index"]),
    tuple: frozenset(["count", "index"]),
}


class SandboxedTemplates(ImmutableSandboxedEnvironment):
    """The environment. What it compiles is rendered inside an `allowance`.

    Args:
        **settings: of jinja2.Environment. Constants are not folded: that would compute while compiling.
    """

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **settings: Any) -> None:
        super().__init__(optimized=False, finalize=_written, **settings)
        self.filters = filters()
        self.filters |= {_COUNTED: _counted, _WEIGHED: _weighed}
        self.globals["namespace"] = _Namespace
        del self.globals["lipsum"]

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter; what it makes is paid for."""
        self.filters[name] = paid(function)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise LimitError(f"it has {len(source)} characters, at most {MAX_TEMPLATE_CHARS} are taken")
        template = super()._parse(source, name, filename)
        _Metered().visit(template)
        return template

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls."""  # the names are jinja2's: no argument of a template is called so
        purse = allowed()
        purse.spend(sum(map(purse.weight, (*args, *kwargs.values()))))
        if isinstance(__obj, BuiltinMethodType):
            owner = __obj.__self__
            if not any(isinstance(owner, kind) and __obj.__name__ in names for kind, names in _METHODS.items()):
                raise SecurityError(f"{__obj.__name__} of a {type(owner).__name__} is not for templates")
            if isinstance(owner, str):
                if __obj.__name__ == "join":  # what it is given may be told only once
                    args = tuple(map(list, args))
                purse.spend(size_of_method(owner, __obj.__name__, (*args, *kwargs.values())))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str | list):
            purse.spend(sys.getsizeof(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what a template computes."""
        purse = allowed()
        if operator == "%" and isinstance(left, str):
            return formatted(left, *(right if isinstance(right, tuple) else (right,)))
        if isinstance(left, int) and isinstance(right, int):
            check_int(operator, left, right)
        elif operator == "*":
            many, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(times, int):
                purse.spend(sys.getsizeof(many) * times)
        elif operator == "+":
            purse.spend(sys.getsizeof(left) + sys.getsizeof(right))
        result = super().call_binop(context, operator, left, right)
        purse.weight(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and `str.format_map`, with limits of their own."""
        name = getattr(value, "__name__", "")
        if not isinstance(value, BuiltinMethodType) or name not in ("format", "format_map"):
            return None
        template = value.__self__
        if not isinstance(template, str):
            return None

        def written(*args: Any, **kwargs: Any) -> str:
            given = args[0] if name == "format_map" else kwargs
            by_place = () if name == "format_map" else args
            spend_fields(template, "{", (*by_place, *given.values()))
            return Formats(self).vformat(template, by_place, given)

        return written


# -- the tree ---------------------------------------------------------------------------------------------------------

_COUNTED, _WEIGHED = "counted by the sandbox", "weighed by the sandbox"  # no template can spell these


class _Metered(NodeTransformer):
    """Puts what has to be paid for where the environment sees it."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "join")

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        """Text between tags passes `finalize` only as a constant."""
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _WEIGHED)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _WEIGHED) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _WEIGHED)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    purse = allowed()
    for item in items:
        purse.spend(0)
        yield item


def _weighed(value: Any) -> Any:
    purse = allowed()
    purse.spend(sys.getsizeof(value))
    purse.weight(value)
    return value


@jinja2.pass_context  # so that nothing is written while compiling
def _written(_: Context, value: Any) -> str:
    purse = allowed()
    text = purse.text(value)
    purse.spend(sys.getsizeof(text))
    return text


class _Namespace(Namespace):
    """Its attributes may hold it, or each other, again and again; so they are not shown."""

    def __repr__(self) -> str:
        return "<Namespace>"
