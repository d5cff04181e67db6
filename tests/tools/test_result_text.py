"""Any value has a text, and none of it is lost or meaningless."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import to_text


@dataclass
class Inner:
    when: datetime.date


class Level(enum.IntEnum):
    HIGH = 3


class Plain:
    def __init__(self) -> None:
        self.city, self._secret = "Rome", 1


class Spoken:
    def __str__(self) -> str:
        return "spoken"


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""), ("北京 \"x\"", "北京 \"x\""), (None, "null"), (0, "0"), (False, "false"), (0.0, "0.0"),
        ([], "[]"),
        ({}, "{}"), ({"城市": "北京"}, '{"城市": "北京"}'), (float("nan"), '"NaN"'),
        ([float("-inf")], '["-Infinity"]'),
        ({3, 1, 2}, "[1, 2, 3]"), (frozenset("ba"), '["a", "b"]'), ((1, "x"), '[1, "x"]'),
        (datetime.datetime(2024, 5, 6, 7, 8, tzinfo=datetime.timezone.utc), '"2024-05-06T07:08:00+00:00"'),
        (datetime.date(2024, 5, 6), '"2024-05-06"'), (datetime.timedelta(hours=1), '"1:00:00"'),
        (b"abc", '"abc"'), (b"\xff\x00", '{"base64": "/wA=", "size_bytes": 2}'),
        (Inner(datetime.date(2024, 1, 2)), '{"when": "2024-01-02"}'), (Level.HIGH, "3"),
        (Pair(1, [2]), '{"left": 1, "right": [2]}'),
        (pathlib.PurePosixPath("a/b"), '"a/b"'), (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"'), (np.float32(0.5), "0.5"),
        (np.int64(7), "7"),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]"), (np.bool_(True), "true"),
        (np.array(["x"]), '["x"]'),
        ((n * n for n in range(3)), "[0, 1, 4]"), (OrderedDict(b=1, a=2), '{"b": 1, "a": 2}'),
        ({1: "a", None: 2}, '{"1": "a", "null": 2}'),
        ({1: "a", "1": "b"}, '[["1", "a"], ["1", "b"]]'), (Plain(), '{"city": "Rome"}'),
        (object(), '"<object>"'),
        (Spoken(), '"spoken"'), (ValueError("no"), '"ValueError: no"'), (10**30, "1" + "0" * 30),
    ],
)  # fmt: skip
def test_forms(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_cycles_end() -> None:
    value: dict[str, Any] = {"a": []}
    value["a"].append(value)
    assert to_text(value) == '{"a": ["<cycle>"]}'


def test_the_same_object_twice_is_no_cycle() -> None:
    part = [1]
    assert to_text([part, part]) == "[[1], [1]]"


def test_lone_surrogates_become_a_replacement() -> None:
    assert to_text("a\ud800b").encode("utf-8") == b"a?b"


texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


@given(json_values)
def test_law_json_values_come_back_from_their_text(value: Any) -> None:
    if not isinstance(value, str):
        assert json.dumps(json.loads(to_text(value))) == json.dumps(value)
