"""A measured test: llama-bench's fields in its order, and the figures that follow from the samples.

The fields and their types are those of tools/llama-bench/llama-bench.cpp (`test::get_fields`, `get_field_type`), so
that files of both programs go into one table. What laploop cannot set has llama-bench's default there.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Field → its type in JSON and SQL.
FIELDS: dict[str, type] = {
    "build_commit": str, "build_number": int, "cpu_info": str, "gpu_info": str, "backends": str,
    "model_filename": str, "model_type": str, "model_size": int, "model_n_params": int, "n_batch": int,
    "n_ubatch": int, "n_threads": int, "cpu_mask": str, "cpu_strict": bool, "poll": int, "type_k": str, "type_v": str,
    "n_gpu_layers": int, "n_cpu_moe": int, "split_mode": str, "main_gpu": int, "no_kv_offload": bool,
    "flash_attn": int, "devices": str, "tensor_split": str, "tensor_buft_overrides": str, "load_mode": str,
    "lazy_mode": str, "embeddings": bool, "no_op_offload": int, "no_host": bool, "repack": bool, "fit_target": int,
    "fit_min_ctx": int, "n_prompt": int, "n_gen": int, "n_depth": int, "test_time": str, "avg_ns": int,
    "stddev_ns": int, "avg_ts": float, "stddev_ts": float,
}  # fmt: skip
_UNSET: dict[str, Any] = {
    "build_number": 0, "cpu_mask": "0x0", "cpu_strict": False, "poll": 50, "n_cpu_moe": 0, "split_mode": "layer",
    "main_gpu": 0, "no_kv_offload": False, "devices": "auto", "tensor_split": "0.00", "tensor_buft_overrides": "none",
    "load_mode": "mmap", "lazy_mode": "auto", "embeddings": False, "no_op_offload": 0, "no_host": False,
    "repack": True, "fit_target": 0, "fit_min_ctx": 0,
}  # fmt: skip
NOTABLE_DRIFT, NOTABLE_OTHERS, NOTABLE_SPREAD = 0.05, 0.1, 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """A test and its samples.

    Args:
        name: of the test, such as "pp512".
        facts: the fields that do not follow from the samples.
        samples_ns: one for each repetition, in the order of time.
        others_cores: cores that other processes kept busy during the samples; None where the system does not tell.
        stolen_cores: cores that a hypervisor gave to others meanwhile; None likewise.
        interleaved: the repetitions of all tests took turns.
        environment: what else may explain the figures.
    """

    name: str
    facts: Mapping[str, Any]
    samples_ns: Sequence[int]
    others_cores: float | None = None
    stolen_cores: float | None = None
    interleaved: bool = True
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples_ts(self) -> list[float]:
        """Tokens per second of each sample."""
        n_tokens = self.facts["n_prompt"] + self.facts["n_gen"]
        return [1e9 * n_tokens / max(1, sample) for sample in self.samples_ns]

    @property
    def median_ts(self) -> float:
        """Median of the tokens per second."""
        return statistics.median(self.samples_ts)

    @property
    def drift(self) -> float:
        """How much the speed changed from the first sample to the last, as a share of the median, along the median of
        the slopes between all pairs (Theil and Sen), which one disturbed sample does not move."""
        slopes = self._slopes()
        return statistics.median(slopes) * (len(self.samples_ns) - 1) / self.median_ts if slopes else 0.0

    def _slopes(self) -> list[float]:
        rates = self.samples_ts
        return [(rates[j] - rates[i]) / (j - i) for i in range(len(rates)) for j in range(i + 1, len(rates))]

    def _goes_one_way(self) -> bool:
        """Whether nearly all pairs agree on the direction (Kendall's tau of 0.8): chance does so in one of twelve cases
        at four samples, and less with more."""
        slopes = self._slopes()
        return len(self.samples_ns) > 3 and abs(sum((s > 0) - (s < 0) for s in slopes)) >= 0.8 * len(slopes)

    @property
    def spread(self) -> float:
        """Difference between the fastest and the slowest sample, as a share of the median."""
        return (max(self.samples_ts) - min(self.samples_ts)) / self.median_ts

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know."""
        notes = []
        if abs(self.drift) >= NOTABLE_DRIFT and self._goes_one_way():
            notes.append(f"drift: {self.drift:+.0%} from the first repetition to the last")
        if self.spread >= NOTABLE_SPREAD:
            notes.append(f"spread: {self.spread:.0%} between the slowest and the fastest")
        if (self.others_cores or 0) >= NOTABLE_OTHERS:
            notes.append(f"busy machine: other processes used {self.others_cores:.1f} cores meanwhile")
        if (self.stolen_cores or 0) >= NOTABLE_OTHERS:
            notes.append(f"busy host: the hypervisor took {self.stolen_cores:.1f} cores away meanwhile")
        return notes

    def values(self) -> dict[str, Any]:
        """llama-bench's fields with their values, in its order."""
        rates, n = self.samples_ts, len(self.samples_ns)
        figures = {
            "avg_ns": int(statistics.fmean(self.samples_ns)),
            "stddev_ns": int(statistics.stdev(self.samples_ns)) if n > 1 else 0,
            "avg_ts": statistics.fmean(rates),
            "stddev_ts": statistics.stdev(rates) if n > 1 else 0.0,
        }
        known = {**_UNSET, **self.facts, **figures}
        return {name: known[name] for name in FIELDS}

    def as_json(self) -> dict[str, Any]:
        """llama-bench's object, with our own figures behind its fields under "laploop"."""
        return {
            **self.values(),
            "samples_ns": list(self.samples_ns),
            "samples_ts": self.samples_ts,
            "laploop": {
                "test": self.name,
                "median_ts": self.median_ts,
                "spread": self.spread,
                "drift": self.drift,
                "others_cores": self.others_cores,
                "stolen_cores": self.stolen_cores,
                "interleaved": self.interleaved,
                "notes": self.notes,
                "environment": dict(self.environment),
            },
        }
