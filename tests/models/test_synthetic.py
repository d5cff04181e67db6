"""Synthetic models: the real shapes and sizes, and llama.cpp runs them."""

from __future__ import annotations

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
