"""The calculator with percentages, units and dates; plain arithmetic keeps its meaning."""

from __future__ import annotations

import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import ToolError, builtin_tools
from laploop.tools.builtin.calculator import calculate, evaluate
from laploop.tools.builtin.quantities import _KINDS


@pytest.mark.parametrize(
    ("text", "result"),
    [
        # percentages
        ("20% of 150", 30), ("15 % of 80", 12), ("12.5 percent of 80", 10), ("80 + 20%", 96), ("80 - 25%", 60),
        ("100 + 50 + 10%", 165),
        ("150的20%", None), ("20%的150", 30), ("5%", 0.05), ("200 * 5%", 10), ("(1 + 5%) * 100", 105),
        ("２０％ of 150", 30),
        ("7 % 3", 1), ("7%3", 1), ("17 % (2 + 3)", 2), ("10 % 4 + 1", 3),
        # units
        ("3 km in miles", 1.864113576712), ("5 miles to km", 8.04672), ("1 in in cm", 2.54), ("6 ft to m", 1.8288),
        ("2 * 3 kg to g", 6000), ("70 kg in lb", 154.323583529414), ("100 F to C", 37.7777777777778),
        ("-40 °C in °F", -40), ("0 C in K", 273.15),
        ("1 gal to l", 3.785411784), ("90 km/h in m/s", 25), ("1 GiB in MB", 1073.741824),
        ("2 hours to minutes", 120), ("1.5 h in s", 5400),
        ("1 kwh to kj", 3600), ("1000 hPa to atm", 0.986923266716013), ("3公里换算成米", 3000), ("10 斤 to kg", 5),
        ("1 acre to m2", 4046.8564224),
        ("180 deg in rad", 3.14159265358979), ("5 kilometres in meters", 5000), ("1 week in days", 7),
        ("3 km = m", 3000),
        # dates
        ("2024-03-01 - 2024-02-01", 29), ("days between 2024-02-01 and 2024-03-01", 29),
        ("from 2023-12-31 to 2024-01-01", 1),
        ("2024-02-01 - 2024-03-01", -29), ("2024-02-28 + 2 days", "2024-03-01"),
        ("2024-01-31 + 1 month", "2024-02-29"),
        ("2024-02-29 + 1 year", "2025-02-28"), ("2024-03-01 - 2 weeks", "2024-02-16"),
        ("2024-1-5 + 10 days", "2024-01-15"),
        # as before
        ("1000-10-10", 980), ("2 in", None), ("sqrt(2)", 1.4142135623731), ("23 × 17 =", 391),
    ],
)  # fmt: skip
def test_values(text: str, result: int | float | str | None) -> None:
    if result is None:
        with pytest.raises(ToolError):
            evaluate(text)
    else:
        assert evaluate(text) == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3 km in kg", "km is a unit of length and kg is not"), ("3 C in m", "c is a unit of temperature"),
        ("2023-02-29 - 2023-01-01", "2023-02-29 is not a date"), ("9999-12-31 + 1 day", "no such date"),
        ("2024-13-01 + 1 day", "not a date"),
        ("3 apples in pears", "apples"), ("1" * 600 + " km in m", "at most 500"), ("10**5000 km in m", "digits"),
        ("1/0 km in m", "division by zero"),
        ("__import__('os') km in m", ""), ("2024-01-01 + 999999 years", "no such date"),
    ],
)  # fmt: skip
def test_what_cannot_be(text: str, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        evaluate(text)
    assert said in str(caught.value)


UNITS = [(kind, unit) for kind, units in _KINDS.items() for unit in units]


@given(st.sampled_from(UNITS), st.sampled_from(UNITS), st.integers(1, 10**6))
def test_law_there_and_back_is_the_same(one: tuple[str, str], other: tuple[str, str], value: int) -> None:
    text = f"{value} {one[1]} to {other[1]}"
    if one[0] != other[0]:
        with pytest.raises(ToolError, match="is a unit of"):
            evaluate(text)
        return
    there = evaluate(text)
    assert isinstance(there, (int, float))
    back = evaluate(f"{there:.15f} {other[1]} to {one[1]}") if there > 1e-3 else value
    assert isinstance(back, (int, float)) and math.isclose(back, value, rel_tol=1e-9)


@given(st.dates(), st.integers(0, 9999))
def test_law_dates_are_pythons(date: datetime.date, n: int) -> None:
    try:
        moved = date + datetime.timedelta(days=n)
    except OverflowError:
        with pytest.raises(ToolError):
            evaluate(f"{date} + {n} days")
        return
    assert evaluate(f"{date} + {n} days") == moved.isoformat()
    assert evaluate(f"{moved} - {date}") == n


@given(st.text("0123456789+-*/%().^ ", max_size=30))
def test_law_what_was_arithmetic_is_the_same(text: str) -> None:
    try:
        before = calculate(text)
    except ToolError:
        return
    if "%" not in text:
        assert evaluate(text) == before


def test_the_tool_gives_them_too() -> None:
    (tool,) = [item for item in builtin_tools() if item.name == "calculator"]
    assert tool.invoke({"expression": "20% of 150"}).value["result"] == 30
    assert tool.invoke({"expression": "2024-01-31 + 1 month"}).value["result"] == "2024-02-29"
