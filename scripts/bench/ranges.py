"""Lists and ranges of numbers on the command line, as llama-bench reads them: "512,1024", "1-8", "256-1024+256",
"1-16*2", and pairs "512,128"."""

from __future__ import annotations

import re

_PART = re.compile(r"(-?\d+)(?:-(\d+)(?:([+*])(\d+))?)?")
_FORMS = "a number, first-last, first-last+step or first-last*factor, several by commas"
_MOST = 1000


def numbers(text: str, *, least: int = 0, most: int = 2**31 - 1) -> list[int]:
    """The numbers of a list.

    Raises:
        ValueError: it is none, a range that is empty or has no end, or a number that is out of bounds.
    """
    found: list[int] = []
    for part in text.removesuffix(",").split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part!r} is not {_FORMS}")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[4] or 1)
        by_factor = match[3] == "*"
        if last < first or step < 1 or (by_factor and (step < 2 or first < 1)):
            raise ValueError(f"the range {part!r} has no end or nothing in it; write {_FORMS}")
        while first <= last:
            if not least <= first <= most:
                raise ValueError(f"{first} is not between {least} and {most}")
            if len(found) == _MOST:
                raise ValueError(f"{part!r} makes more than {_MOST} tests")
            found.append(first)
            first = first * step if by_factor else first + step
    return found


def pair(text: str) -> tuple[int, int]:
    """Two numbers: tokens of a prompt, and tokens generated behind it.

    Raises:
        ValueError: it is something else.
    """
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise ValueError(f"{text!r} is not two numbers such as 512,128")
    first, second = (numbers(part)[0] for part in parts)
    return first, second
