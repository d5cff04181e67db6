"""Two files of results side by side: which rows belong together, the ratio, and its interval."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.scripts.bench.compare import BadResultsError, _rank_sums, compare, ratio_interval, read_results

RATES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=8)


def row(samples: list[float], **more: Any) -> dict[str, Any]:
    return {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "n_threads": 2, "cpu_info": "A", "samples_ts": samples, **more}


@given(RATES, st.floats(0.01, 100))
def test_a_file_that_is_k_times_as_fast_has_the_ratio_k(rates: list[float], k: float) -> None:
    found = ratio_interval(rates, [k * rate for rate in rates])
    assert found.low <= k * 1.000001 and found.high >= k * 0.999999
    if len(set(rates)) == 1:
        assert found.ratio == pytest.approx(k)


@given(RATES, RATES)
def test_exchanged_files_have_the_inverse(first: list[float], second: list[float]) -> None:
    there, back = ratio_interval(first, second), ratio_interval(second, first)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert (there.low, there.high) == (pytest.approx(1 / back.high), pytest.approx(1 / back.low))
    assert there.low <= there.ratio <= there.high and there.level == back.level


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 3), (4, 4)])
def test_rank_sums_are_those_of_all_orders(n: int, m: int) -> None:
    counts = [0] * (n * m + 1)
    for places in itertools.combinations(range(n + m), n):
        counts[sum(places) - n * (n - 1) // 2] += 1
    assert list(_rank_sums(n, m)) == counts


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    draw, held = random.Random(1), 0
    for _ in range(2000):
        first, second = ([draw.lognormvariate(centre, 0.1) for _ in range(5)] for centre in (0.0, 0.05))
        found = ratio_interval(first, second)
        held += found.low <= 2.718281828**0.05 <= found.high
    assert found.level == pytest.approx(1 - 2 * 4 / 252)  # of 252 orders of five and five
    assert held / 2000 == pytest.approx(found.level, abs=0.015)


def test_few_samples_are_told_to_give_a_low_level() -> None:
    assert ratio_interval([1.0], [2.0]) == (pytest.approx(2), pytest.approx(2), pytest.approx(2), 0)
    assert ratio_interval([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]).level == pytest.approx(0.9)


def test_rows_belong_together_by_test_and_by_what_varies_inside_a_file() -> None:
    first = [row([10, 11], n_threads=1), row([20, 21], n_threads=2), row([5], n_gen=8, n_prompt=0, n_threads=1)]
    second = [row([30, 31], n_threads=2, cpu_info="B"), row([12, 13], n_threads=1, cpu_info="B")]
    found = compare(first, second)
    assert list(found.rows) == ["pp512 n_threads=1", "pp512 n_threads=2"]
    assert found.rows["pp512 n_threads=2"][:2] == (20.5, 30.5)
    assert found.only_first == ["tg8 n_threads=1"] and not found.only_second
    assert found.differences == {"cpu_info": ("A", "B")}


def test_what_differs_between_files_as_a_whole_is_what_is_compared() -> None:
    found = compare([row([10], n_threads=1, type_k="f16")], [row([20], n_threads=4, type_k="q8_0")])
    assert found.rows["pp512"][2].ratio == pytest.approx(2)
    assert found.differences == {"n_threads": ("1", "4"), "type_k": ("f16", "q8_0")}


def test_runs_in_turns_that_were_appended_to_a_file_count_as_one() -> None:
    found = compare([row([10]), row([12]), row([11])], [row([10, 11, 12])])
    assert found.rows["pp512"][:2] == (11, 11) and found.rows["pp512"][2].ratio == pytest.approx(1)
    assert statistics.median([10, 11, 12]) == found.rows["pp512"][0]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[1]", "no", '[{"n_prompt": 1}]', json.dumps([row([])]), json.dumps([row([0.0])]), "\x80"]
)
def test_a_file_that_holds_no_results_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadResultsError, match=r"a\.json holds no results"):
        read_results(path)


def test_lists_and_lines_are_read(tmp_path: Path) -> None:
    rows = [row([1.0]), row([2.0])]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert read_results(tmp_path / "a.json") == read_results(tmp_path / "b.jsonl") == rows
