"""Jinja for templates that strangers wrote: they come in a GGUF, so that they may not take the machine with them.

jinja2's sandbox keeps a template away from Python's internals. This one also keeps it from taking all time and memory:
whatever makes or repeats something (loops, calls, filters, operators, output) is paid for from an allowance, and what
Python could not be stopped in is refused before it begins. Knows no messages.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from string import Formatter
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter, sync_do_slice, sync_do_sum
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_TEMPLATE_CHARS = 200_000
MAX_BYTES = 200_000_000  # made in one rendering, all together; also the most that one value may be written out to
MAX_CPU_S = 3.0  # of the rendering thread: a busy machine does not count
_MAX_INT_BITS = 20_000
_MAX_WIDTH = 1_000  # of a field in a format
_STEP_BYTES = 100  # what one iteration or call counts as
_MAX_COMPARISONS = 1_000_000_000  # of characters, in searches that try every place

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
# Slow, at random, or for web pages.
_NO_FILTERS = ("filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


class LimitError(jinja2.TemplateError):
    """A template asked for more than it may have."""


class _Allowance:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._deadline = time.thread_time() + MAX_CPU_S
        self._weights: dict[int, tuple[Any, int]] = {}  # id → the container, kept alive, and its weight

    def spend(self, n_bytes: int) -> None:
        """Pay for `n_bytes` more, before they are made."""
        self._left -= max(0, n_bytes) + _STEP_BYTES
        if self._left < 0:
            raise LimitError(f"it makes more than {MAX_BYTES:,} bytes")
        if time.thread_time() > self._deadline:
            raise LimitError(f"it computes for more than {MAX_CPU_S:g} seconds")

    def weight(self, value: Any) -> int:
        """Bytes that a value would come to written out, what it holds twice counted twice; at most MAX_BYTES."""
        if not isinstance(value, list | tuple | dict):
            return sys.getsizeof(value)
        known = self._weights.get(id(value))
        if known is None:
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            total = sys.getsizeof(value) + sum(map(self.weight, parts))
            if total > MAX_BYTES:
                raise LimitError(f"it makes a value of more than {MAX_BYTES:,} bytes")
            known = self._weights[id(value)] = value, total
        return known[1]

    def text(self, value: Any) -> str:
        """A value as Jinja writes it."""
        self.weight(value)
        return value if isinstance(value, str) else str(value)


_current: ContextVar[_Allowance] = ContextVar("_current")


@contextmanager
def allowance() -> Iterator[None]:
    """Let the templates rendered inside together have what one rendering may have."""
    token = _current.set(_Allowance())
    try:
        yield
    finally:
        _current.reset(token)


class SandboxedTemplates(ImmutableSandboxedEnvironment):
    """The environment. What it compiles is rendered inside an `allowance`.

    Args:
        **settings: of jinja2.Environment. Constants are not folded: that would compute while compiling.
    """

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **settings: Any) -> None:
        super().__init__(optimized=False, finalize=_written, **settings)
        own = {"center": _center, "format": _format, "indent": _indent, "join": _join, "replace": _replace}
        own |= {"round": _round, "safe": _plain, "e": _escape, "escape": _escape, "forceescape": _escape, "int": _int}
        own |= {"batch": _batch, "slice": _slice, "sum": _sum, "trim": _trim, "string": _plain}
        kept = {name: function for name, function in FILTERS.items() if name not in _NO_FILTERS}
        self.filters = {name: _paid(function) for name, function in (kept | own).items()}
        self.filters |= {_COUNTED: _counted, _WEIGHED: _weighed}
        self.globals["namespace"] = _Namespace
        del self.globals["lipsum"]

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter; what it makes is paid for."""
        self.filters[name] = _paid(function)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise LimitError(f"it has {len(source)} characters, at most {MAX_TEMPLATE_CHARS} are taken")
        template = super()._parse(source, name, filename)
        _Metered().visit(template)
        return template

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls."""  # the names are jinja2's: no argument of a template is called so
        allowed = _current.get()
        allowed.spend(sum(map(allowed.weight, (*args, *kwargs.values()))))
        if isinstance(__obj, BuiltinMethodType):
            owner = __obj.__self__
            if not any(isinstance(owner, kind) and __obj.__name__ in names for kind, names in _METHODS.items()):
                raise SecurityError(f"{__obj.__name__} of a {type(owner).__name__} is not for templates")
            if isinstance(owner, str):
                allowed.spend(_size_of_method(owner, __obj.__name__, args))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str | list):
            allowed.spend(sys.getsizeof(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what a template computes."""
        allowed = _current.get()
        if operator == "%" and isinstance(left, str):
            return _format(left, *(right if isinstance(right, tuple) else (right,)))
        if isinstance(left, int) and isinstance(right, int):
            _check_int(operator, left, right)
        elif operator == "*":
            many, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(times, int):
                allowed.spend(sys.getsizeof(many) * times)
        elif operator == "+":
            allowed.spend(sys.getsizeof(left) + sys.getsizeof(right))
        result = super().call_binop(context, operator, left, right)
        allowed.weight(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and `str.format_map`, with limits of their own."""
        name = getattr(value, "__name__", "")
        if not isinstance(value, BuiltinMethodType) or name not in ("format", "format_map"):
            return None
        template = value.__self__
        if not isinstance(template, str):
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            given = args[0] if name == "format_map" else kwargs
            by_place = () if name == "format_map" else args
            _spend_fields(template, "{", (*by_place, *given.values()))
            return _Formats(self).vformat(template, by_place, given)

        return formatted


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
    allowed = _current.get()
    for item in items:
        allowed.spend(0)
        yield item


def _weighed(value: Any) -> Any:
    allowed = _current.get()
    allowed.spend(sys.getsizeof(value))
    allowed.weight(value)
    return value


@jinja2.pass_context  # so that nothing is written while compiling
def _written(_: Context, value: Any) -> str:
    allowed = _current.get()
    text = allowed.text(value)
    allowed.spend(sys.getsizeof(text))
    return text


class _Namespace(Namespace):
    """Its attributes may hold it, or each other, again and again; so they are not shown."""

    def __repr__(self) -> str:
        return "<Namespace>"


# -- filters, methods and operators that could make much of little ----------------------------------------------------


def _paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose arguments and result are paid for."""

    @wraps(function)  # with jinja2's marks for what it wants to be passed
    def paid(*args: Any, **kwargs: Any) -> Any:
        allowed = _current.get()
        for value in args:
            allowed.weight(value)
        result = function(*args, **kwargs)
        allowed.spend(sys.getsizeof(result) if isinstance(result, str | list) else 0)
        return result

    return paid


def _check_int(operator: str, left: int, right: int) -> None:
    bits = left.bit_length() + right.bit_length()
    if operator == "**":
        bits = left.bit_length() * max(right, 0)
    if operator in ("*", "**") and bits > _MAX_INT_BITS:
        raise LimitError(f"it makes a number of more than {_MAX_INT_BITS:,} bits")


def _size_of_method(text: str, name: str, args: tuple[Any, ...]) -> int:
    """Most bytes that a method of `text` makes, where that does not go by the length of `text` alone."""
    if name.startswith("r") or "strip" in name:
        for part in args:
            if isinstance(part, str) and len(part) * len(text) > _MAX_COMPARISONS:
                raise LimitError(f"it looks for {len(part)} characters among {len(text)}")
    first = args[0] if args else None
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        n = first if isinstance(first, int) else 8
        return 4 * n * (text.count("\t") if name == "expandtabs" else 1)
    if name == "replace" and len(args) > 1 and isinstance(first, str) and isinstance(args[1], str):
        return sys.getsizeof(text) + sys.getsizeof(args[1]) * text.count(first)
    if name == "join" and isinstance(first, list | tuple | dict | str):
        return _current.get().weight(first) + sys.getsizeof(text) * len(first)
    return sys.getsizeof(text)


def _spend_fields(template: str, mark: str, values: Iterable[Any]) -> None:
    allowed = _current.get()
    allowed.spend(len(template) + template.count(mark) * max(map(allowed.weight, values), default=0))


class _Formats(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        _check_width(format_spec)
        return Formatter.format_field(self, value, format_spec)


def _check_width(spec: str) -> None:
    for number in re.findall(r"\d+", spec):
        if len(number) > 4 or int(number) > _MAX_WIDTH:
            raise LimitError(f"it formats a field of more than {_MAX_WIDTH} characters")


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    template = str(value)
    for spec in re.findall(r"%(?:\([^)]*\))?([^a-zA-Z%]*)", template):
        if "*" in spec:
            raise LimitError("it formats a field as wide as a value says")
        _check_width(spec)
    _spend_fields(template, "%", (*args, *kwargs.values()))
    named = kwargs or (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else None)
    return template % (args if named is None else named)


def _center(value: Any, width: int = 80) -> str:
    _current.get().spend(4 * width)
    return _plain(value).center(width)


@jinja2.pass_environment
def _indent(environment: Any, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _plain(value)
    _current.get().spend((4 * width if isinstance(width, int) else sys.getsizeof(width)) * (text.count("\n") + 1))
    return str(FILTERS["indent"](text, width, first, blank))


@jinja2.pass_environment
def _join(environment: jinja2.Environment, value: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
    allowed = _current.get()
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    texts, between = [allowed.text(item) for item in items], allowed.text(d)
    allowed.spend(sum(map(sys.getsizeof, texts)) + sys.getsizeof(between) * len(texts))
    return between.join(texts)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = _plain(value), _plain(old), _plain(new)
    _current.get().spend(_size_of_method(text, "replace", (old, new)))
    return text.replace(old, new, -1 if count is None else count)


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 100:
        raise LimitError(f"it rounds to {precision} digits")
    return FILTERS["round"](value, precision, method)


def _int(value: Any, default: Any = 0, base: int = 10) -> Any:
    if isinstance(value, str) and len(value) > _MAX_WIDTH:
        return default
    return FILTERS["int"](value, default, base)


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    _current.get().spend(8 * linecount)
    return FILTERS["batch"](value, linecount, fill_with)


def _slice(value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
    items = list(value)
    if slices > len(items) + _MAX_WIDTH:
        raise LimitError(f"it cuts {len(items)} items into {slices} slices")
    return sync_do_slice(items, slices, fill_with)


@jinja2.pass_environment
def _sum(environment: jinja2.Environment, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):
        raise TypeError("sum is for numbers")
    return sync_do_sum(environment, iterable, attribute, start)


def _trim(value: Any, chars: Any = None) -> str:
    text = _plain(value)
    if chars is not None:
        _size_of_method(text, "strip", (str(chars),))
    return text.strip(chars)


def _plain(value: Any) -> str:
    return _current.get().text(value)


def _escape(value: Any) -> str:
    return str(FILTERS["forceescape"](_plain(value)))
