"""Where a JSON value ends, whatever stands in its strings and however it is cut into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models.parsing.json_text import JsonScanner, members

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
containers = st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4)
spellings = st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}])


@given(containers, spellings, st.text(), st.lists(st.integers(0, 400), max_size=6))
def test_the_end_is_found_at_every_split(value: Any, how: Any, rest: str, cuts: list[int]) -> None:
    text = json.dumps(value, **how)
    whole = text + rest
    places = sorted({0, len(whole), *(c for c in cuts if c < len(whole))})
    scanner, taken = JsonScanner(), 0
    for start, end in pairwise(places):
        if not scanner.done:
            taken += scanner.feed(whole[start:end])
    assert scanner.done and not scanner.broken and taken == len(text)


@given(containers, st.data())
def test_a_value_cut_short_is_neither_done_nor_broken(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    scanner = JsonScanner()
    scanner.feed(text[: data.draw(st.integers(0, len(text) - 1))])
    assert not scanner.done and not scanner.broken


@pytest.mark.parametrize(
    ("text", "at"), [("{]", 1), ("[1}", 2), ('{"a": </tool_call>', 6), ("{'a': 1}", 1), ("[x]", 1), ("{a: 京}", 4)]
)
def test_what_can_never_be_json_is_broken_there(text: str, at: int) -> None:
    scanner = JsonScanner()
    assert scanner.feed(text) == at and scanner.broken and not scanner.done


def test_depth_is_bounded() -> None:
    scanner = JsonScanner()
    scanner.feed("[" * 200)
    assert "100 levels" in scanner.broken
    with pytest.raises(ValueError, match="deep"):
        members('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")


@given(st.dictionaries(st.text(), values, max_size=5), spellings)
def test_members_keep_each_values_own_text(value: dict[str, Any], how: Any) -> None:
    found = members(json.dumps(value, **how))
    assert {m.key: m.value for m in found} == value and list(value) == [m.key for m in found]
    assert {m.key: json.loads(m.text) for m in found} == value


def test_the_text_is_strict_json_even_where_the_model_was_not() -> None:
    (member,) = members('{"a": "line\nfeed"}')
    assert member.value == "line\nfeed" and json.loads(member.text) == "line\nfeed"
    assert members('{"a":  1.50 }')[0].text == "1.50"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "expected an object"),
        ('{"a": 1', "expected"),
        ('{"a" 1}', "':'"),
        ('{"a": 1 "b": 2}', "','"),
        ("{a: 1}", "double quotes"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1} x', "text after"),
        ('{"a": 1,}', "double quotes"),
        ("", "expected an object"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        members(text)
