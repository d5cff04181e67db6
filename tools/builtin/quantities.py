"""What the calculator knows beyond arithmetic: percentages, units, dates. It evaluates no expressions itself.

Each form is a pattern over the whole input, so that plain arithmetic keeps its meaning: `7 % 3` is a remainder, `20%` a
percentage; 1000-10-10 alone is a subtraction, a date minus a date is a number of days. Factors are exact by definition
(international yard and pound of 1959; the SI brochure, 9th edition).
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable

from ..errors import ToolError

_KINDS: dict[str, dict[str, float]] = {
    "length": {"mm": 0.001, "cm": 0.01, "m": 1, "km": 1000, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344,
               "nmi": 1852, "里": 500, "尺": 1 / 3, "寸": 1 / 30},
    "mass": {"mg": 1e-6, "g": 0.001, "kg": 1, "t": 1000, "oz": 0.028349523125, "lb": 0.45359237, "st": 6.35029318,
             "斤": 0.5, "两": 0.05},
    "time": {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400, "week": 604800},
    "area": {"cm2": 1e-4, "m2": 1, "ha": 1e4, "km2": 1e6, "ft2": 0.09290304, "acre": 4046.8564224,
    "mi2": 2589988.110336,
             "亩": 2000 / 3},
    "volume": {"ml": 1e-6, "cl": 1e-5, "l": 1e-3, "m3": 1, "tsp": 4.92892159375e-6, "tbsp": 1.478676478125e-5,
               "floz": 2.95735295625e-5, "cup": 2.365882365e-4, "pt": 4.73176473e-4, "gal": 3.785411784e-3},
    "speed": {"m/s": 1, "km/h": 1 / 3.6, "mph": 0.44704, "kn": 1852 / 3600},
    "data": {"bit": 0.125, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20,
    "gib": 2**30,
             "tib": 2**40},
    "energy": {"j": 1, "kj": 1e3, "cal": 4.184, "kcal": 4184, "wh": 3600, "kwh": 3.6e6},
    "pressure": {"pa": 1, "hpa": 100, "kpa": 1e3, "bar": 1e5, "atm": 101325, "psi": 6894.757293168361},
    "angle": {"deg": 1, "rad": 57.29577951308232},
}  # fmt: skip
_TEMPERATURES: dict[str, tuple[float, float]] = {"c": (1, 0), "f": (5 / 9, -160 / 9), "k": (1, -273.15)}  # to °C
_NAMES = {  # other spellings → the one above
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "inch": "in", "inches": "in", '"': "in",
    "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "米": "m", "公里": "km", "千米": "km", "厘米": "cm",
    "毫米": "mm",
    "英里": "mi", "英尺": "ft", "英寸": "in", "milligram": "mg", "gram": "g", "kilogram": "kg", "kilo": "kg",
    "ton": "t",
    "tonne": "t", "ounce": "oz", "pound": "lb", "lbs": "lb", "克": "g", "千克": "kg", "公斤": "kg", "吨": "t",
    "磅": "lb",
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "day": "d", "秒": "s", "分钟": "min",
    "小时": "h",
    "天": "d", "周": "week", "m²": "m2", "km²": "km2", "平方米": "m2", "平方公里": "km2", "hectare": "ha",
    "公顷": "ha",
    "milliliter": "ml", "liter": "l", "litre": "l", "升": "l", "毫升": "ml", "gallon": "gal", "pint": "pt",
    "teaspoon": "tsp",
    "tablespoon": "tbsp", "m³": "m3", "kmh": "km/h", "kph": "km/h", "knot": "kn", "byte": "b", "joule": "j",
    "calorie": "cal", "degree": "deg", "°": "deg", "radian": "rad", "celsius": "c", "fahrenheit": "f", "kelvin": "k",
    "°c": "c", "°f": "f", "摄氏度": "c", "华氏度": "f",
}  # fmt: skip
_UNIT = r"[^\W\d_]+(?:[²³]|\d)?(?:/[a-z]+)?|°[CcFf]?|\""
_CONVERSION = re.compile(
    rf"(?P<value>.*?[\d)])\s*(?P<of>{_UNIT})\s*(?:\s(?:in|to|into|as)\s|→|->|=|等于多少|是多少|换算成)\s*(?P<to>{_UNIT})",
    re.DOTALL,
)
_PERCENT_OF = re.compile(r"(?P<percent>.+?)\s*(?:%|\spercent)\s*(?:of|的)\s*(?P<whole>.+)", re.DOTALL | re.IGNORECASE)
_PERCENT_MORE = re.compile(r"(?P<base>.+?)\s*(?P<sign>[+-])\s*(?P<percent>\d+(?:\.\d+)?)\s*%", re.DOTALL)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%(?!\s*[\w(.])")
_DATE = r"\d{4}-\d{1,2}-\d{1,2}"
_DAYS_BETWEEN = re.compile(
    rf"(?P<a>{_DATE})\s+-\s+(?P<b>{_DATE})|(?:days\s+)?(?:between|from)\s+(?P<c>{_DATE})\s+(?:and|to|until)\s+(?P<d>{_DATE})",
    re.IGNORECASE,
)
_DATE_MOVED = re.compile(
    rf"(?P<date>{_DATE})\s*(?P<sign>[+-])\s*(?P<n>\d{{1,6}})\s*(?P<unit>day|week|month|year)s?", re.IGNORECASE
)


class QuantityError(ToolError):
    """Units that do not go together, or a date that does not exist."""


def percentages(text: str) -> str:
    """The expression with percentages written as arithmetic; others as they are."""
    if of := _PERCENT_OF.fullmatch(text):
        return f"({of['percent']}) / 100 * ({of['whole']})"
    if more := _PERCENT_MORE.fullmatch(text):  # 80 + 20% is 96, as pocket calculators have it
        return f"({percentages(more['base'])}) * (1 {more['sign']} {more['percent']} / 100)"
    return _PERCENT.sub(r"(\1 / 100)", text)


def quantity(text: str, calculate: Callable[[str], int | float]) -> int | float | str | None:
    """The value of a conversion or a calculation with dates, or None where the text is neither.

    Args:
        text: the whole input.
        calculate: gives the value of the arithmetic in it.

    Raises:
        QuantityError: units of two kinds, a day that does not exist.
    """
    text = text.strip().rstrip("=?？").strip()
    if between := _DAYS_BETWEEN.fullmatch(text):
        later, earlier = (between["a"], between["b"]) if between["a"] else (between["d"], between["c"])
        return (_date(later) - _date(earlier)).days
    if moved := _DATE_MOVED.fullmatch(text):
        n = int(moved["n"]) * (1 if moved["sign"] == "+" else -1)
        return _moved(_date(moved["date"]), n, moved["unit"].lower()).isoformat()
    conversion = _CONVERSION.fullmatch(text)
    if conversion is None:
        return None
    of, to = _unit(conversion["of"]), _unit(conversion["to"])
    if of is None or to is None:
        return None
    return _converted(calculate(conversion["value"]), of, to)


def _unit(word: str) -> str | None:
    """The unit in our spelling, or None for a word that is none."""
    known = {*_TEMPERATURES, *(unit for kind in _KINDS.values() for unit in kind)}
    lower = word.lower()
    for spelling in (lower, lower.rstrip("s"), lower.replace("metre", "meter").rstrip("s")):
        unit = _NAMES.get(spelling, spelling)
        if unit in known:
            return unit
    return None


def _converted(value: float, of: str, to: str) -> float:
    if of in _TEMPERATURES and to in _TEMPERATURES:
        (factor, offset), (to_factor, to_offset) = _TEMPERATURES[of], _TEMPERATURES[to]
        return (value * factor + offset - to_offset) / to_factor
    for units in _KINDS.values():
        if of in units and to in units:
            return value * units[of] / units[to]
    kind = next((name for name, units in _KINDS.items() if of in units), "temperature")
    others = ", ".join(_KINDS.get(kind, _TEMPERATURES))
    raise QuantityError(f"{of} is a unit of {kind} and {to} is not; {of} can become {others}")


def _date(text: str) -> datetime.date:
    try:
        return datetime.date(*map(int, text.split("-")))
    except ValueError as error:
        raise QuantityError(f"{text} is not a date ({error}); write e.g. 2024-02-29") from error


def _moved(date: datetime.date, n: int, unit: str) -> datetime.date:
    """`date` and n units; the 31st becomes the last day of a shorter month."""
    try:
        if unit in ("day", "week"):
            return date + datetime.timedelta(days=n * (7 if unit == "week" else 1))
        months = date.year * 12 + date.month - 1 + n * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        return date.replace(year=year, month=month + 1, day=min(date.day, calendar.monthrange(year, month + 1)[1]))
    except (OverflowError, ValueError) as error:
        raise QuantityError(f"there is no such date: years go from 1 to 9999 ({error})") from error
