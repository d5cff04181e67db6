"""The calculator agrees with Python's arithmetic, understands how people write it, and stays bounded."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laploop.tools import ToolError, builtin_tools
from laploop.tools.builtin.calculator import calculate


def shown(value: float) -> int | float:
    """What the calculator shows of a Python number: 15 significant digits, whole numbers without a point."""
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.15g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


atoms = st.integers(0, 10**12).map(str) | st.floats(0.001, 10**6).map(lambda x: f"{x:.4f}")
expressions = st.recursive(
    atoms,
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner) | st.builds("-{}".format, inner),
    max_leaves=8,
)


@given(expressions)
def test_law_equals_python(expression: str) -> None:
    assume(len(expression) <= 500)
    assert calculate(expression) == shown(eval(expression))


@given(atoms, st.sampled_from(["/", "//", "%", "**"]), atoms.filter(lambda text: float(text) < 50))
def test_law_division_and_powers_of_mixed_numbers(left: str, sign: str, right: str) -> None:
    try:
        expected = eval(f"{left} {sign} {right}")
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="division by zero"):
            calculate(f"{left} {sign} {right}")
        return
    got = calculate(f"{left} {sign} {right}")
    assert got == expected if isinstance(expected, int) else math.isclose(got, expected, rel_tol=1e-14)


@given(st.lists(st.integers(-(10**30), 10**30), min_size=1, max_size=6), st.data())
def test_law_integers_are_exact(numbers: list[int], data: st.DataObject) -> None:
    signs = data.draw(st.lists(st.sampled_from("+-*"), min_size=len(numbers) - 1, max_size=len(numbers) - 1))
    text = str(numbers[0]) + "".join(f" {sign} ({number})" for sign, number in zip(signs, numbers[1:], strict=True))
    assert calculate(text) == eval(text)


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20).filter(bool))
def test_law_quotients(a: int, b: int) -> None:
    got = calculate(f"({a}) / ({b})")
    exact = Fraction(a, b)
    assert got == exact if exact.denominator == 1 else math.isclose(got, a / b, rel_tol=1e-14)
    assert (calculate(f"({a}) // ({b})"), calculate(f"({a}) % ({b})")) == (a // b, a % b)


@given(st.integers(-30, 30), st.integers(0, 60))
def test_law_integer_powers(base: int, exponent: int) -> None:
    assert calculate(f"({base})^{exponent}") == base**exponent


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("23 × 17", 391), ("23×17=", 391), ("２３＊１７", 391), ("（1＋2）×3", 9), ("10 ÷ 4", 2.5),
        ("10÷5", 2), ("2^10", 1024),
        ("2**3**2", 512), ("-2**2", -4), ("3²+4²", 25), ("−5 + 3", -2), ("0.1 + 0.2", 0.3),
        ("1/3", 0.333333333333333),
        ("007 + 1", 8), ("1e3", 1000), (".5 * 2", 1), ("sqrt(144)", 12), ("sqrt(2)", 1.4142135623731),
        ("math.sqrt(9)", 3),
        ("max(1，2、3)", 3), ("min(4, 2)", 2), ("round(2.567, 2)", 2.57), ("round(7.5)", 8), ("abs(-3)", 3),
        ("floor(2.9)", 2),
        ("ceil(2.1)", 3), ("log10(1000)", 3), ("log(8, 2)", 3), ("log(e)", 1), ("exp(0)", 1),
        ("sin(pi / 2)", 1), ("cos(0)", 1),
        ("tan(0)", 0), ("2π", None), ("π * 2", 6.28318530717959), ("17 % 5", 2), ("-17 // 5", -4),
        ("2 ** -1", 0.5), ("1+1", 2),
        ("10**100 + 1", 10**100 + 1), ("+5", 5), ("[1+2]*3", 9),
    ],
)  # fmt: skip
def test_spellings(expression: str, result: Any) -> None:
    if result is None:
        with pytest.raises(ToolError, match="operator is missing"):
            calculate(expression)
    else:
        got = calculate(expression)
        assert type(got) is type(result) and got == pytest.approx(result, rel=1e-13)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "empty"), ("  ", "empty"), ("=", "empty"), ("1 +", "not a complete"), ("(1", "not a complete"),
        ("1)", "not a complete"),
        ("1/0", "division by zero"), ("5 % 0", "division by zero"), ("0 ** -1", "division by zero"),
        ("1,234 * 2", "1234"),
        ("9**9**9", "1,000 digits"), ("2**100000", "1,000 digits"), ("10**600 * 10**600", "1,000 digits"),
        ("1e300 * 1e300", "too large"),
        ("exp(1000)", "too large"), ("10**999 / 3", "too large"), ("(-8) ** 0.5", "not a real number"),
        ("sqrt(-1)", "not defined"),
        ("log(0)", "not defined"), ("round(1.5, 2000)", "not defined"), ("sqrt(1, 2)", "not defined"),
        ("max()", "not defined"),
        ("__import__('os')", "not arithmetic"),
        ("2 * get_weather('Oslo')['temperature']", "call it first"), ("open", "not known"), ("x + 1", "not known"),
        ("(1).real", "not arithmetic"),
        ("lambda: 1", "not arithmetic"), ("1 if 1 else 2", "operator is missing"),
        ("1 < 2", "not arithmetic"), ("'a'", "not arithmetic"),
        ("os.system(1)", "is not a function"), ("5!", "not arithmetic"), ("23 乘以 17", "not arithmetic"),
        ("1j", "operator is missing"),
        ("0x10", "operator is missing"), ("True", "not arithmetic"), ("max(*3)", "not"),
        ("max(key=1)", "not arithmetic"), ("1 2", "operator"),
        ("(" * 51 + "1" + ")" * 51, "nested"), ("1+" * 300 + "1", "characters"),
        ("2(3)", "is not a function"), ("not 1", "operator"),
        ("1 and 2", "operator"), ("a.b.c(1)", "is not a function"), ("1;2", "not arithmetic"),
        ("1\x002", "not arithmetic"),
    ],
)  # fmt: skip
def test_refused_with_a_reason(expression: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        calculate(expression)


@given(st.text(max_size=60) | st.text("0123456789+-*/%^().e, sqrtmax", max_size=60))
def test_law_any_text_gives_a_number_or_a_tool_error(text: str) -> None:
    try:
        result = calculate(text)
    except ToolError:
        return
    assert isinstance(result, (int, float)) and math.isfinite(result)


def test_long_unary_chain_is_bounded() -> None:
    assert calculate("-" * 400 + "1") == 1


def test_tool_gives_expression_and_result() -> None:
    calculator = next(item for item in builtin_tools() if item.name == "calculator")
    assert calculator.invoke('{"expression": "23 × 17"}').content == '{"expression": "23 × 17", "result": 391}'
    assert calculator.invoke({"expression": "1/0"}).content == "calculator: division by zero"
