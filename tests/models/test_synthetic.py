"""Synthetic models: the real shapes and sizes, and llama.cpp runs them."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import pytest
from laploop.engine import Engine, EngineConfig, read_gguf
from laploop.models.errors import ModelNotFoundError
from laploop.models.files import synthetic as module
from laploop.models.files.synthetic import MIXES, Shape, shapes, write_synthetic

# The names of the real files' tensors and sizes: a tiny shape of each architecture, every mix.
TINY = {
    "qwen3": Shape("qwen3", 9, 256, 512, 4, 2, 64, 1024, 512, 1e6, True),
    "qwen2": Shape("qwen2", 9, 256, 512, 4, 2, 64, 1024, 512, 1e6, False),
    "llama": Shape("llama", 9, 256, 512, 4, 2, 64, 1024, 512, 5e5, True),
    "gemma3": Shape("gemma3", 12, 256, 512, 4, 2, 64, 1024, 512, 1e6, True, window=64),
    "qwen3moe": Shape("qwen3moe", 9, 256, 512, 4, 2, 64, 1024, 512, 1e6, False, 8, 2, 256),
}


@pytest.mark.parametrize("quant", MIXES)
@pytest.mark.parametrize("arch", TINY)
def test_llama_cpp_runs_every_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, quant: str) -> None:
    monkeypatch.setattr(module, "shapes", lambda: TINY)
    path = tmp_path / "m.gguf"
    size = write_synthetic(path, f"{arch}:{quant}")
    assert size == path.stat().st_size and [p.name for p in tmp_path.iterdir()] == ["m.gguf"]
    with Engine.load(path, EngineConfig(n_ctx=128, n_threads=1)) as engine:
        tokens = [t for step in engine.generate([1, 2, 3], max_tokens=8) for t in step.tokens]
    assert tokens and all(0 <= t < 1024 for t in tokens)


def test_the_mix_of_qwen3_1_7b_has_the_size_of_the_real_file() -> None:
    """The real Q4_K_M file has 1,107,409,472 bytes, of which the vocabulary, merges and template are about 6 MB."""
    tensors = list(module._tensors(shapes()["qwen3-1.7b"], MIXES["q4_k_m"]))
    real_bytes = 1_107_409_472
    ours = sum(t.size_bytes for t in tensors)
    assert real_bytes - 7_000_000 < ours < real_bytes  # the rest is the vocabulary, merges and template
    assert len(tensors) == 310


BILLIONS = {  # of parameters, as the families' model cards or llama.cpp's own tables give them
    "qwen3-0.6b": 0.596, "qwen3-1.7b": 1.721, "qwen3-4b": 4.022, "qwen3-8b": 8.191, "qwen3-14b": 14.768,
    "qwen3-32b": 32.762, "qwen3-30b-a3b": 30.532, "qwen2.5-0.5b": 0.494, "qwen2.5-1.5b": 1.544, "qwen2.5-3b": 3.086,
    "qwen2.5-7b": 7.616, "qwen2.5-14b": 14.770, "qwen2.5-32b": 32.764, "qwen2.5-72b": 72.706, "llama-3.2-1b": 1.236,
    "llama-3.2-3b": 3.213, "llama-3.1-8b": 8.030, "llama-3.3-70b": 70.554, "gemma-3-270m": 0.268, "gemma-3-1b": 1.000,
    "gemma-3-4b": 3.880, "gemma-3-12b": 11.766, "gemma-3-27b": 27.009,
}  # fmt: skip


@pytest.mark.parametrize("name", BILLIONS)
def test_a_shape_has_the_parameters_of_its_model(name: str) -> None:
    n_params = sum(math.prod(tensor.shape) for tensor in module._tensors(shapes()[name], MIXES["f16"]))
    assert n_params / 1e9 == pytest.approx(BILLIONS[name], abs=0.001)


def test_rows_that_are_no_multiple_of_256_fall_back_as_in_llama_cpp() -> None:
    """Q5_K fell back to Q5_0; llama-quant.cpp (tensor_type_fallback) takes Q5_1."""
    types = {tensor.name: tensor.type for tensor in module._tensors(shapes()["qwen2.5-0.5b"], MIXES["q5_k_m"])}
    assert types["blk.0.attn_q.weight"] == "Q5_1" and types["token_embd.weight"] == "Q8_0"


def test_what_is_written_is_what_the_gguf_package_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "shapes", lambda: TINY)
    path = tmp_path / "m.gguf"
    write_synthetic(path, "qwen3:q4_k_m")
    theirs, ours = gguf.GGUFReader(path), read_gguf(path)
    assert [(t.name, t.tensor_type.name, tuple(int(n) for n in t.shape), t.data_offset) for t in theirs.tensors] == [
        (t.name, t.type, t.shape, t.offset_bytes) for t in ours.tensors
    ]
    assert ours.metadata["general.name"] == "synthetic qwen3 q4_k_m"


@pytest.mark.parametrize("spec", ["gpt-7", "qwen3-1.7b:q3_k_s"])
def test_an_unknown_spec_names_the_known_ones(tmp_path: Path, spec: str) -> None:
    with pytest.raises(ModelNotFoundError, match="known: "):
        write_synthetic(tmp_path / "m.gguf", spec)
    assert not list(tmp_path.iterdir())
