"""What fits on a machine, which model is the best choice, and what a calibration predicts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import EngineConfig
from laploop.engine.memory import DEFAULT_N_CTX, estimate
from laploop.models.files import calibration as module
from laploop.models.files.calibration import Calibration, calibrate, measured
from laploop.models.files.catalogue import Catalogue
from laploop.models.files.fit import best, fits, headers
from laploop.models.files.store import Store
from laploop.models.files.synthetic import TYPES, synthetic_header

GB = 10**9
CONFIG = EngineConfig()
Known = dict[str, tuple[Any, Path | None]]
#: A machine of 10 GB/s and 100 GFLOP/s.
EVEN = Calibration(0.0, 0.0, 0.0, dict.fromkeys(TYPES, 10e9), dict.fromkeys(TYPES, 100e9))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """As on a machine that has none of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laploop.models.files.fit.on_disk", lambda entry, store: None)
        return headers(Catalogue.load(), Store(tmp_path_factory.mktemp("own")))


def test_every_model_of_the_catalogue_has_a_shape_of_its_size(known: Known) -> None:
    for entry in Catalogue.load().entries:
        header, _ = known[entry.name]
        if entry.size_bytes:  # the rest is the vocabulary and the template
            assert 0 <= entry.size_bytes - header.size_bytes < 8_000_000, entry.name


@pytest.mark.parametrize("gigabytes", [0.5, 1, 2, 4, 8, 64])
def test_what_runs_fits_and_what_does_not_is_too_large(known: Known, gigabytes: float) -> None:
    free = int(gigabytes * GB)
    for row in fits(Catalogue.load(), known, CONFIG, EVEN, free):
        assert row.runs == (row.needed_bytes <= free)
        if row.runs and row.n_ctx < DEFAULT_N_CTX:
            larger = dataclasses.replace(CONFIG, n_ctx=2 * row.n_ctx)
            assert estimate(known[row.entry.name][0], larger).needed_bytes > free


def test_a_context_that_was_asked_for_fits_or_does_not(known: Known) -> None:
    asked = EngineConfig(n_ctx=32768)
    for row in fits(Catalogue.load(), known, asked, None, 4 * GB):
        header, _ = known[row.entry.name]
        assert row.needed_bytes == estimate(header, asked).needed_bytes and row.tokens_per_s is None
        assert row.n_ctx == (
            min(32768, header.metadata[f"{header.metadata['general.architecture']}.context_length"]) if row.runs else 0
        )


def test_the_best_choice_is_the_largest_that_is_quick_enough(known: Known) -> None:
    def choice(speed: float, gigabytes: float) -> str | None:
        speeds = dataclasses.replace(EVEN, bytes_per_s=dict.fromkeys(TYPES, speed))
        row = best(fits(Catalogue.load(), known, CONFIG, speeds, int(gigabytes * GB)))
        return row.entry.name if row else None

    assert choice(100e9, 64) == "qwen3-8b:q4_k_m"
    assert choice(11e9, 64) == "qwen3-1.7b"
    assert choice(6e9, 64) == "qwen3-1.7b:q4_k_m"
    assert choice(100e9, 1.45) == "qwen2.5-coder-1.5b"
    assert choice(1e6, 64) == "qwen2.5-coder-0.5b", "the quickest, where none is quick; it knows tools"
    assert choice(100e9, 0.5) == "smollm2-135m"
    assert choice(100e9, 0.1) is None


def test_a_token_reads_every_weight_but_the_embedding_once() -> None:
    tied, untied = synthetic_header("qwen3-1.7b:q8_0"), synthetic_header("qwen3-8b:q8_0")
    assert tied.size_bytes / 10e9 == pytest.approx(EVEN.decode_s(tied), rel=0.01)
    embedding = next(t.size_bytes for t in untied.tensors if t.name == "token_embd.weight")
    assert (untied.size_bytes - (embedding or 0)) / 10e9 == pytest.approx(EVEN.decode_s(untied), rel=0.01)
    assert EVEN.prompt_s(tied) == pytest.approx(2 * 1.4e9 / 100e9, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "stands"), [("Q8_0", "Q8_0"), ("Q5_K", "Q5_K"), ("BF16", "F16"), ("Q8_K", "Q8_0"), ("IQ1_S", "Q4_0")]
)
def test_a_type_that_is_not_measured_has_a_neighbour_of_its_size(kind: str, stands: str) -> None:
    assert measured(kind) == stands
    assert measured("type 99") in TYPES


def test_a_calibration_is_made_once_and_adds_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small models, since only the bookkeeping is looked at."""
    monkeypatch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_WIDE", {**module._NARROW, "n_embd": 256, "n_ff": 256})
    monkeypatch.setattr(module, "_LEAST_BYTES", 1)
    monkeypatch.setattr(module, "largest_cache_bytes", lambda: 0)
    monkeypatch.setattr(module, "_LARGE_VOCAB", 2000)
    monkeypatch.setattr(module, "_matrix_elements", lambda: 10**6)
    config = EngineConfig(n_threads=1)
    told: list[str] = []
    first = calibrate([synthetic_header("qwen2.5-0.5b:q8_0")], config, lambda p: told.append(p.description))
    assert list(first.bytes_per_s) == ["Q8_0"] and first.bytes_per_s["Q8_0"] > 0 and told
    told.clear()
    assert calibrate([synthetic_header("qwen2.5-0.5b:q8_0")], config, lambda p: told.append(p.description)) == first
    assert told == []
    more = calibrate([synthetic_header("qwen2.5-0.5b:f16")], config)
    assert more.bytes_per_s["Q8_0"] == first.bytes_per_s["Q8_0"] and set(more.bytes_per_s) == {"Q8_0", "F16"}
    (kept,) = (tmp_path / "calibration").iterdir()
    kept.write_text("{damaged")
    assert calibrate([synthetic_header("qwen2.5-0.5b:q8_0")], config).step_s >= 0
    assert [item.name for item in (tmp_path / "calibration").iterdir()] == [kept.name], "its models are deleted"
