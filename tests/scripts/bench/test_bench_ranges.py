"""Lists and ranges of numbers: what llama-bench reads, and what it would hang on or drop is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.scripts.bench.ranges import numbers, pair


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", [512]),
        ("512,", [512]),  # llama-bench takes the comma for the end
        ("16,32", [16, 32]),
        ("1-4", [1, 2, 3, 4]),
        ("10-20+5", [10, 15, 20]),
        ("256-1000+256", [256, 512, 768]),
        ("1-16*2", [1, 2, 4, 8, 16]),
        ("0,1-2,8-32*4", [0, 1, 2, 8, 32]),
    ],
)
def test_lists_are_read_as_llama_bench_reads_them(text: str, expected: list[int]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1,,2", "1-", "-1", "1.5", "1-8/2", "9" * 12])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        numbers(text)


@pytest.mark.parametrize("text", ["5-3", "1-8+0", "1-8*1", "0-8*2"])
def test_a_range_that_is_empty_or_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no end or nothing in it"):
        numbers(text)


def test_a_range_without_bound_makes_no_million_tests() -> None:
    with pytest.raises(ValueError, match="more than 1000"):
        numbers("1-1000000000")


def test_a_negative_number_is_a_number_where_it_may_be() -> None:
    assert numbers("-1,0", least=-1) == [-1, 0]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_a_written_list_is_read_back(values: list[int]) -> None:
    assert numbers(",".join(map(str, values))) == values


def test_pairs() -> None:
    assert pair("512,128") == (512, 128)
    for text in ("512", "1,2,3", "a,b", "-1,2", "1-2,3", ""):
        with pytest.raises(ValueError, match="two numbers"):
            pair(text)
