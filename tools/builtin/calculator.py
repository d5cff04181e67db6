"""calculator: arithmetic by walking Python's syntax tree. No `eval`, and nothing that grows without bound.

Limits stand before the work: length, nesting, digits of every intermediate result. Integers are exact; other
results are shown with 15 significant digits, which is what a double holds (0.1 + 0.2 is 0.3).
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from ..definition import Tool, tool
from ..errors import ToolError
from .quantities import percentages, quantity

Number = int | float

_MAX_CHARS = 500
_MAX_DEPTH = 50
_MAX_DIGITS = 1_000
_SPELLINGS = {ord(wide): chr(ord(wide) - 0xFEE0) for wide in map(chr, range(0xFF01, 0xFF5F))}  # full width
_WIDE = dict(_SPELLINGS)
_SPELLINGS |= str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "∕": "/", "−": "-", "–": "-", "—": "-", "、": ","}
)
_SPELLINGS |= str.maketrans(
    {"π": "pi", "²": "**2", "³": "**3", "【": "(", "】": ")", "[": "(", "]": ")", "\u3000": " "}
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)|(?P<sign>\*\*|//|[-+*/%(),]))",
    re.ASCII,
)
_CONSTANTS = {"pi": math.pi, "e": math.e}


class _CalculationError(ToolError):
    """The expression is not one, or its value is out of bounds."""


def calculator_tool() -> Tool:
    """Return calculator."""

    @tool(group="math")
    def calculator(
        expression: Annotated[str, "e.g. (3 + 4) * 2 or sqrt(2)", Field(min_length=1)],
    ) -> dict[str, Any]:
        """Calculate exactly: + - * / // % **, parentheses, sqrt, round, min, max, log, sin… Returns the
        result."""
        return {"expression": expression, "result": evaluate(expression)}

    return calculator


def evaluate(text: str) -> Number | str:
    """Return the value of a calculation: arithmetic, also with percentages; units ("3 km in miles"); dates
    ("2024-03-01 - 2024-02-01" is 29 days, "2024-01-31 + 1 month" a date).

    Raises:
        ToolError: as `calculate`; units that do not go together; a day that does not exist.
    """
    if len(text) <= _MAX_CHARS:  # `calculate` refuses the rest
        text = text.translate(_WIDE)
        found = quantity(text, lambda part: calculate(percentages(part)))
        if found is not None:
            return found if isinstance(found, str) else _shown(_bounded(found))
        text = percentages(text.strip().rstrip("=?").strip())
    return calculate(text)


def calculate(expression: str) -> Number:
    """Return the value of an arithmetic expression.

    Args:
        expression: at most 500 characters. `^` is a power; × ÷ and full-width characters are understood.

    Raises:
        ToolError: not arithmetic, undefined (division by zero), or more than 1,000 digits.
    """
    text = _python_spelling(expression)
    try:
        tree = ast.parse(text, mode="eval")
        return _shown(_value(tree.body))
    except SyntaxError as error:
        shown = repr(expression[:80])
        raise _CalculationError(f"{shown} is not a complete expression; write e.g. (3 + 4) * 2") from error
    except ZeroDivisionError as error:
        raise _CalculationError("division by zero") from error
    except (OverflowError, RecursionError, MemoryError) as error:
        raise _CalculationError("the result is too large") from error


def _python_spelling(expression: str) -> str:
    """Return the expression in Python's operators, made of known tokens only."""
    if len(expression) > _MAX_CHARS:
        raise _CalculationError(f"the expression has {len(expression):,} characters; at most {_MAX_CHARS} are allowed")
    text = expression.translate(_SPELLINGS).replace("^", "**").strip().rstrip("=?").strip()
    if not text:
        raise _CalculationError("the expression is empty; write for example (3 + 4) * 2")
    pieces: list[str] = []
    place, depth, after_value = 0, 0, False
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            unknown = text[place:].strip()[:20]
            raise _CalculationError(f"{unknown!r} is not arithmetic; use digits, operators and {_names()}")
        word = token["number"] or token["name"] or token["sign"]
        is_value = bool(token["number"] or token["name"])
        if (
            "_" in word[1:-1] and word[0] != "_" and text[token.end() : token.end() + 1] == "("
        ):  # small models nest the call of another tool
            raise _CalculationError(
                f"{word[:30]} cannot be called in here: call it first, and write the number it gave"
            )
        if after_value and is_value:
            raise _CalculationError(f"an operator is missing before {word[:20]!r}")
        after_value = is_value
        depth += (word == "(") - (word == ")")
        if depth > _MAX_DEPTH:
            raise _CalculationError(f"more than {_MAX_DEPTH} nested parentheses")
        pieces.append(_plain_number(word) if token["number"] else word)
        place = token.end()
    return " ".join(pieces)


def _plain_number(word: str) -> str:
    """Python refuses leading zeros: 007 is 7."""
    return word.lstrip("0") or "0" if word.isdigit() else word


def _value(node: ast.expr, depth: int = 0) -> Number:
    if depth > 2 * _MAX_CHARS:
        raise _CalculationError("the expression is nested too deeply")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand, depth + 1)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, depth + 1), _value(node.right, depth + 1)
        return _bounded(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and not node.keywords:
        return _call(node, [_value(item, depth + 1) for item in node.args])
    if isinstance(node, ast.Tuple):
        raise _CalculationError("a comma may only stand between arguments; write 1234, not 1,234")
    if isinstance(node, (ast.Name, ast.Attribute)):
        raise _CalculationError(
            f"{ast.unparse(node)[:30]!r} is not known: look its number up and write that; known are {_names()}"
        )
    raise _CalculationError(f"{ast.unparse(node)[:30]!r} is not arithmetic")


def _call(node: ast.Call, values: list[Number]) -> Number:
    name = ast.unparse(node.func).removeprefix("math.")
    if name not in _FUNCTIONS:
        raise _CalculationError(f"{name[:30]!r} is not a function; use {_names()}")
    try:
        return _bounded(_FUNCTIONS[name](*values))
    except (TypeError, ValueError) as error:
        shown = ", ".join(f"{value:.15g}" if isinstance(value, float) else str(value)[:20] for value in values)
        raise _CalculationError(f"{name}({shown}) is not defined ({error})") from error


def _bounded(value: Any) -> Number:
    if isinstance(value, int):
        if value.bit_length() > _MAX_DIGITS * 3.3219280948873626:  # log2(10)
            raise _CalculationError(f"the result has more than {_MAX_DIGITS:,} digits")
        return value
    if not math.isfinite(value):
        raise OverflowError
    return float(value)


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and right != 0 and left % right == 0:
        return left // right
    return left / right


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent > 0 and base not in (-1, 0, 1) and exponent * math.log10(abs(base)) > _MAX_DIGITS + 1:
            raise _CalculationError(f"the result has more than {_MAX_DIGITS:,} digits")
        if exponent < 0 and base in (-1, 1):
            return int(base**-exponent)
    result: Any = base**exponent
    if isinstance(result, complex):  # such as (-8) ** 0.5
        raise _CalculationError("the result is not a real number")
    return float(result) if isinstance(result, float) else int(result)


def _square_root(value: Number) -> Number:
    if isinstance(value, int) and value >= 0:
        root = math.isqrt(value)
        return root if root * root == value else math.sqrt(value)
    return math.sqrt(value)


def _round(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > _MAX_DIGITS:
        raise ValueError("the number of digits must be a small integer")
    return round(value, digits) if digits else round(value)


def _shown(value: Number) -> Number:
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.15g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _names() -> str:
    return ", ".join((*_FUNCTIONS, *_CONSTANTS))


_OPERATORS: dict[type, Callable[[Any, Any], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _divide,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _square_root, "abs": abs, "round": _round, "min": min, "max": max, "floor": math.floor,
    "ceil": math.ceil, "log": math.log, "log10": math.log10, "exp": math.exp,
    "sin": math.sin, "cos": math.cos, "tan": math.tan,
}  # fmt: skip
