"""Two files of results, side by side: how many times as fast, and how sure that is.

Reads what `-o json` or `-o jsonl` of laploop or of llama-bench wrote. Rows belong together where the test is the same
and every setting that varies inside either file; what differs between the files as a whole (the machine, the build,
the model) is named, since that is what is compared.

The ratio is the median of the ratios of all pairs of samples (Hodges and Lehmann, on logarithms), and its interval
holds those that the rank-sum test of Mann and Whitney does not refuse: no assumption about how times are spread, and
one disturbed sample does no harm. With few samples the interval cannot reach 95 %; the level that it has is told.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

LEVEL = 0.95
_TEST = ("n_prompt", "n_gen", "n_depth")
#: Settings that tell rows of a file apart.
SETTINGS = ("model_type", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn")
#: What may explain a difference between the files.
CIRCUMSTANCES = (*SETTINGS, "cpu_info", "gpu_info", "backends", "build_commit")
Key = tuple[Any, ...]


class BadResultsError(ValueError):
    """A file does not hold results of a benchmark."""


class Interval(NamedTuple):
    """A ratio with the bounds of its confidence interval, and the level that they have (at most what was asked)."""

    ratio: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two files compared.

    Args:
        rows: test → median tokens per second of both, and the ratio of the second to the first.
        differences: circumstance → its values in both files, where they differ.
        only_first, only_second: tests without a partner.
    """

    rows: Mapping[str, tuple[float, float, Interval]]
    differences: Mapping[str, tuple[str, str]]
    only_first: Sequence[str]
    only_second: Sequence[str]


def read_results(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON or JSON Lines file.

    Raises:
        BadResultsError: it holds something else; says what is missing.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_list = text.lstrip().startswith("[")
        rows = json.loads(text) if is_list else [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise BadResultsError(f"{path} holds no results: {error}. Write them with -o json or -o jsonl.") from None
    if not rows:
        raise BadResultsError(f"{path} holds no results: it is empty. Write them with -o json or -o jsonl.")
    for row in rows:
        lacks = [name for name in (*_TEST, "samples_ts") if not isinstance(row, dict) or name not in row]
        if lacks or not _are_rates(row["samples_ts"]):
            what = f"a row has no {lacks[0]}" if lacks else "samples_ts are not positive numbers"
            raise BadResultsError(
                f"{path} holds no results of a benchmark: {what}. Write them with -o json or -o jsonl."
            )
    return rows


def compare(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> Comparison:
    """Lay the rows of two files side by side. Rows of a file that agree in all that counts are one, with the samples of
    all: so programs can be run in turns, each appending to its file."""
    varying = [name for name in SETTINGS if any(len({row.get(name) for row in rows}) > 1 for rows in (first, second))]
    pooled = [_pooled(rows, varying) for rows in (first, second)]
    names = {key: _name(key, varying) for rows in pooled for key in rows}
    both = [key for key in pooled[0] if key in pooled[1]]
    return Comparison(
        rows={
            names[key]: (
                statistics.median(pooled[0][key]),
                statistics.median(pooled[1][key]),
                ratio_interval(pooled[0][key], pooled[1][key]),
            )
            for key in both
        },
        differences={
            name: (told[0], told[1])
            for name in CIRCUMSTANCES
            if name not in varying
            and (told := [", ".join(sorted({str(row.get(name, "")) for row in rows})) for rows in (first, second)])
            and told[0] != told[1]
        },
        only_first=[names[key] for key in pooled[0] if key not in pooled[1]],
        only_second=[names[key] for key in pooled[1] if key not in pooled[0]],
    )


def ratio_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """How many times as large `second` is, with an interval of at least `level`, or of what so few samples give.

    Args:
        first, second: positive.
    """
    logs = sorted(math.log(b) - math.log(a) for a in first for b in second)
    counts = _rank_sums(len(first), len(second))
    total = sum(counts)
    skipped = max(1, sum(below <= total * (1 - level) / 2 for below in itertools.accumulate(counts)))
    reached = 1 - 2 * sum(counts[:skipped]) / total
    return Interval(
        math.exp(statistics.median(logs)), math.exp(logs[skipped - 1]), math.exp(logs[-skipped]), max(0.0, reached)
    )


@lru_cache(maxsize=64)
def _rank_sums(n: int, m: int) -> tuple[int, ...]:
    """How many of the orders of n and m samples have each value of Mann and Whitney's U, from 0 to n*m: the
    coefficients of Gauss' binomial, the product of (1 - x**(m + i)) / (1 - x**i)."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def _pooled(rows: Sequence[Mapping[str, Any]], varying: Sequence[str]) -> dict[Key, list[float]]:
    pooled: dict[Key, list[float]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in (*_TEST, *varying))
        pooled.setdefault(key, []).extend(row["samples_ts"])
    return pooled


def _name(key: Key, varying: Sequence[str]) -> str:
    n_prompt, n_gen, n_depth = key[:3]
    test = "+".join([f"pp{n_prompt}"] * bool(n_prompt) + [f"tg{n_gen}"] * bool(n_gen))
    settings = [f"{name}={value}" for name, value in zip(varying, key[3:], strict=True)]
    return " ".join([test + (f" @ d{n_depth}" if n_depth else ""), *settings])


def _are_rates(values: Any) -> bool:
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, (int, float)) and math.isfinite(value) and value > 0 for value in values)
    )
