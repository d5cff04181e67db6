"""Jinja's filters and operators, and Python's methods of texts, where they could make much of little.

Each pays from the rendering's allowance before it makes anything, or refuses. Knows values; not how a template is
compiled.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from string import Formatter
from typing import Any

import jinja2
from jinja2.filters import FILTERS, make_attrgetter, sync_do_slice, sync_do_sum
from jinja2.sandbox import SandboxedFormatter

from .template_allowance import LimitError, allowed

_MAX_INT_BITS = 20_000
_MAX_WIDTH = 1_000  # of a field in a format
_MAX_COMPARISONS = 1_000_000_000  # of characters, in searches that try every place
# Slow, at random, or for web pages.
_LEFT_OUT = ("filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


def filters() -> dict[str, Callable[..., Any]]:
    """Jinja's filters by name, paid for."""
    own = {"center": _center, "format": formatted, "indent": _indent, "join": _join, "replace": _replace}
    own |= {"round": _round, "safe": _plain, "e": _escape, "escape": _escape, "forceescape": _escape, "int": _int}
    own |= {"batch": _batch, "slice": _slice, "sum": _sum, "trim": _trim, "string": _plain}
    kept = {name: function for name, function in FILTERS.items() if name not in _LEFT_OUT}
    return {name: paid(function) for name, function in (kept | own).items()}


def paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose arguments and result are paid for."""

    @wraps(function)  # with jinja2's marks for what it wants to be passed
    def called(*args: Any, **kwargs: Any) -> Any:
        purse = allowed()
        for value in args:
            purse.weight(value)
        result = function(*args, **kwargs)
        purse.spend(sys.getsizeof(result) if isinstance(result, str | list) else 0)
        return result

    return called


def check_int(operator: str, left: int, right: int) -> None:
    """Refuse to compute a whole number that is too long."""
    bits = left.bit_length() + right.bit_length()
    if operator == "**":
        bits = left.bit_length() * max(right, 0)
    if operator in ("*", "**") and bits > _MAX_INT_BITS:
        raise LimitError(f"it makes a number of more than {_MAX_INT_BITS:,} bits")


def size_of_method(text: str, name: str, args: tuple[Any, ...]) -> int:
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
        return allowed().weight(first) + sys.getsizeof(text) * len(first)
    return sys.getsizeof(text)


def spend_fields(template: str, mark: str, values: Iterable[Any]) -> None:
    """Pay for a format with as many fields as it has marks."""
    purse = allowed()
    purse.spend(len(template) + template.count(mark) * max(map(purse.weight, values), default=0))


class Formats(SandboxedFormatter):
    """What `str.format` does, with fields of bounded width."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Write one field."""
        _check_width(format_spec)
        return Formatter.format_field(self, value, format_spec)


def _check_width(spec: str) -> None:
    for number in re.findall(r"\d+", spec):
        if len(number) > 4 or int(number) > _MAX_WIDTH:
            raise LimitError(f"it formats a field of more than {_MAX_WIDTH} characters")


def formatted(value: Any, *args: Any, **kwargs: Any) -> str:
    """What the operator % and the filter `format` make."""
    template = str(value)
    for spec in re.findall(r"%(?:\([^)]*\))?([^a-zA-Z%]*)", template):
        if "*" in spec:
            raise LimitError("it formats a field as wide as a value says")
        _check_width(spec)
    spend_fields(template, "%", (*args, *kwargs.values()))
    named = kwargs or (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else None)
    return template % (args if named is None else named)


def _center(value: Any, width: int = 80) -> str:
    allowed().spend(4 * width)
    return _plain(value).center(width)


@jinja2.pass_environment
def _indent(environment: Any, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _plain(value)
    allowed().spend((4 * width if isinstance(width, int) else sys.getsizeof(width)) * (text.count("\n") + 1))
    return str(FILTERS["indent"](text, width, first, blank))


@jinja2.pass_environment
def _join(environment: jinja2.Environment, value: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
    purse = allowed()
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    texts, between = [purse.text(item) for item in items], purse.text(d)
    purse.spend(sum(map(sys.getsizeof, texts)) + sys.getsizeof(between) * len(texts))
    return between.join(texts)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = _plain(value), _plain(old), _plain(new)
    allowed().spend(size_of_method(text, "replace", (old, new)))
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
    allowed().spend(8 * linecount)
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
        size_of_method(text, "strip", (str(chars),))
    return text.strip(chars)


def _plain(value: Any) -> str:
    return allowed().text(value)


def _escape(value: Any) -> str:
    return str(FILTERS["forceescape"](_plain(value)))
