"""Models of a known shape with random weights: as fast and as large as the real ones, and they know nothing.

Tokens per second do not depend on the values, so a machine can be measured, and a batch compared with single tokens,
before a byte is fetched. Knows shapes (`shapes.json`, from the families' config.json) and the mixes of llama.cpp's
quantisation types (llama.cpp, src/llama-quant.cpp); not how a model is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from laploop.engine.gguf import DEFAULT_ALIGNMENT, GGUFFile, TensorInfo
from laploop.engine.gguf_types import TENSOR_TYPES
from laploop.engine.gguf_writer import TensorSpec, write_gguf
from numpy.typing import NDArray

from ..errors import ModelNotFoundError

#: Short quant name → (type of most matrices, type of the sensitive ones, llama.cpp's general.file_type).
MIXES: dict[str, tuple[str, str, int]] = {
    "q4_0": ("Q4_0", "Q4_0", 2),
    "q4_1": ("Q4_1", "Q4_1", 3),
    "q4_k_m": ("Q4_K", "Q6_K", 15),
    "q5_k_m": ("Q5_K", "Q6_K", 17),
    "q6_k": ("Q6_K", "Q6_K", 18),
    "q8_0": ("Q8_0", "Q8_0", 7),
    "f16": ("F16", "F16", 1),
}
#: Where a block of a type keeps its half-precision scales (bytes from its start), and how large they may be.
_SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 5e-3),),
    "Q4_1": ((0, 5e-3), (2, 3.75e-2)),
    "Q5_0": ((0, 2.5e-3),),
    "Q5_1": ((0, 2.5e-3), (2, 3.9e-2)),
    "Q8_0": ((0, 4e-4),),
    "Q4_K": ((0, 1e-4), (2, 7.5e-4)),
    "Q5_K": ((0, 5e-5), (2, 7.5e-4)),
    "Q6_K": ((208, 2e-5),),
}
_BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
#: What llama.cpp takes for rows that are no multiple of 256 (llama-quant.cpp, tensor_type_fallback).
_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
#: Types that a synthetic model can have.
TYPES = (*_BLOCK_BYTES, "F16")
TENSOR_TYPE_BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_N_BYTES = 256


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer's dimensions.

    Args:
        tied: the output matrix is the token embedding.
        n_experts, n_experts_used, n_ff_expert: of a mixture of experts; 0 for a plain feed-forward.
        window: tokens that layers with a sliding window see; 0 for none.
    """

    arch: str
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx: int
    rope_base: float
    tied: bool
    n_experts: int = 0
    n_experts_used: int = 0
    n_ff_expert: int = 0
    window: int = 0


@lru_cache(maxsize=1)
def shapes() -> dict[str, Shape]:
    """The known shapes by short name."""
    text = (files(__package__) / "shapes.json").read_text("utf-8")
    return {name: Shape(**values) for name, values in json.loads(text).items()}


def write_synthetic(path: str | Path, spec: str, *, seed: int = 0) -> int:
    """Write a random-weight GGUF.

    Args:
        path: where.
        spec: shape and quant, such as "qwen3-1.7b:q4_k_m" (the quant is q8_0 if it is left out).
        seed: of the weights.

    Returns:
        The size of the file in bytes.

    Raises:
        ModelNotFoundError: unknown shape or quant; names the known ones.
    """
    name, shape, quant = _parsed(spec)
    return _write(path, shape, MIXES[quant], f"synthetic {name} {quant}", seed)


def write_shape(path: str | Path, shape: Shape, tensor_type: str, *, seed: int = 0) -> int:
    """Write a random-weight GGUF all of whose matrices have one of `TYPES`; returns its size in bytes."""
    return _write(path, shape, (tensor_type, tensor_type, 0), f"synthetic {tensor_type}", seed)


def synthetic_header(spec: str) -> GGUFFile:
    """The header that `write_synthetic` would write, for estimates about files that are not here. Raises as it does."""
    name, shape, quant = _parsed(spec)
    rows, offset = [], 0
    for tensor in _tensors(shape, MIXES[quant]):
        rows.append(TensorInfo(tensor.name, tensor.shape, tensor.type, offset, tensor.size_bytes))
        offset += -(-tensor.size_bytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
    metadata = _metadata(shape, f"synthetic {name} {quant}", MIXES[quant][2])
    return GGUFFile(Path(f"{name}-{quant}.gguf"), metadata, tuple(rows), 0, offset, 3)


def _parsed(spec: str) -> tuple[str, Shape, str]:
    name, _, quant = spec.lower().partition(":")
    quant = quant or "q8_0"
    if name not in shapes():
        raise ModelNotFoundError(f"no shape is known by the name {name!r}; known: {', '.join(shapes())}")
    if quant not in MIXES:
        raise ModelNotFoundError(f"no synthetic model can be made in {quant!r}; known: {', '.join(MIXES)}")
    return name, shapes()[name], quant


def _write(path: str | Path, shape: Shape, mix: tuple[str, str, int], title: str, seed: int) -> int:
    tensors = list(_tensors(shape, mix))
    rng = np.random.Generator(np.random.SFC64(seed))
    return write_gguf(path, _metadata(shape, title, mix[2]), tensors, (_content(tensor, rng) for tensor in tensors))


def _tensors(shape: Shape, mix: tuple[str, str, int]) -> Iterator[TensorSpec]:
    for tensor in _named_tensors(shape, mix):
        is_whole = tensor.shape[0] % TENSOR_TYPE_BY_NAME[tensor.type].block_size == 0
        yield tensor if is_whole else tensor._replace(type=_FALLBACK.get(tensor.type, "F16"))


def _named_tensors(shape: Shape, mix: tuple[str, str, int]) -> Iterator[TensorSpec]:
    base, fine, _ = mix
    is_mixed = base in ("Q4_0", "Q4_1", "Q4_K", "Q5_K") and mix[2]
    head = "Q6_K" if is_mixed else base  # the output matrix is always kept finer
    n_q, n_kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    yield TensorSpec("token_embd.weight", (shape.n_embd, shape.n_vocab), head if shape.tied else base)
    for i in range(shape.n_layers):
        block, better = f"blk.{i}.", fine if _more_bits(i, shape.n_layers) else base
        # llama.cpp's 70B rule: eight heads share these weights
        value = "Q5_K" if better == "Q4_K" and shape.n_layers == 80 else better
        yield TensorSpec(block + "attn_norm.weight", (shape.n_embd,), "F32")
        yield TensorSpec(block + "attn_q.weight", (shape.n_embd, n_q), base)
        yield TensorSpec(block + "attn_k.weight", (shape.n_embd, n_kv), base)
        yield TensorSpec(block + "attn_v.weight", (shape.n_embd, n_kv), value)
        yield TensorSpec(block + "attn_output.weight", (n_q, shape.n_embd), base)
        if shape.arch in ("qwen3", "qwen3moe", "gemma3"):
            yield TensorSpec(block + "attn_q_norm.weight", (shape.head_dim,), "F32")
            yield TensorSpec(block + "attn_k_norm.weight", (shape.head_dim,), "F32")
        if shape.arch == "qwen2":
            yield TensorSpec(block + "attn_q.bias", (n_q,), "F32")
            yield TensorSpec(block + "attn_k.bias", (n_kv,), "F32")
            yield TensorSpec(block + "attn_v.bias", (n_kv,), "F32")
        if shape.arch == "gemma3":
            yield TensorSpec(block + "post_attention_norm.weight", (shape.n_embd,), "F32")
            yield TensorSpec(block + "post_ffw_norm.weight", (shape.n_embd,), "F32")
        yield TensorSpec(block + "ffn_norm.weight", (shape.n_embd,), "F32")
        experts: tuple[int, ...] = (shape.n_experts,) if shape.n_experts else ()
        n_ff, kind = (shape.n_ff_expert, "_exps.weight") if experts else (shape.n_ff, ".weight")
        if experts:
            yield TensorSpec(block + "ffn_gate_inp.weight", (shape.n_embd, *experts), "F32")
        yield TensorSpec(block + "ffn_gate" + kind, (shape.n_embd, n_ff, *experts), base)
        yield TensorSpec(block + "ffn_up" + kind, (shape.n_embd, n_ff, *experts), base)
        yield TensorSpec(block + "ffn_down" + kind, (n_ff, shape.n_embd, *experts), better)
    yield TensorSpec("output_norm.weight", (shape.n_embd,), "F32")
    if not shape.tied:
        yield TensorSpec("output.weight", (shape.n_embd, shape.n_vocab), head)


def _more_bits(i: int, n_layers: int) -> bool:
    """llama.cpp's `use_more_bits`: the first and last eighth of the layers, and each third between."""
    return i < n_layers // 8 or i >= 7 * n_layers // 8 or (i - n_layers // 8) % 3 == 2


def _content(tensor: TensorSpec, rng: np.random.Generator) -> bytes:
    if tensor.type == "F32":  # norms are ones, biases zeros; which experts are chosen is random
        if len(tensor.shape) > 1:
            return rng.normal(0, 0.02, tensor.size_bytes // 4).astype("<f4").tobytes()
        return np.full(tensor.shape[0], 0 if tensor.name.endswith(".bias") else 1, "<f4").tobytes()
    if tensor.type == "F16":
        values: NDArray[np.float16] = rng.integers(-128, 128, tensor.size_bytes // 2, np.int8) * np.float16(4e-4)
        return values.astype("<f2").tobytes()
    block_bytes = _BLOCK_BYTES[tensor.type]
    blocks = rng.integers(0, 256, tensor.size_bytes, np.uint8).reshape(-1, block_bytes)  # (n, block_bytes) uint8
    for at, largest in _SCALES[tensor.type]:
        # Random bits would hold infinities; scales must be small and finite.
        scales = rng.uniform(largest / 2, largest, len(blocks)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def _metadata(shape: Shape, name: str, file_type: int) -> dict[str, Any]:
    arch = shape.arch
    tokens = _vocabulary(shape.n_vocab)
    more = {
        "expert_count": shape.n_experts,
        "expert_used_count": shape.n_experts_used,
        "expert_feed_forward_length": shape.n_ff_expert,
        "attention.sliding_window": shape.window,
    }
    return {
        "general.architecture": arch,
        "general.name": name,
        "general.file_type": file_type,
        f"{arch}.block_count": shape.n_layers,
        f"{arch}.context_length": shape.n_ctx,
        f"{arch}.embedding_length": shape.n_embd,
        f"{arch}.feed_forward_length": shape.n_ff,
        f"{arch}.attention.head_count": shape.n_heads,
        f"{arch}.attention.head_count_kv": shape.n_kv_heads,
        f"{arch}.attention.key_length": shape.head_dim,
        f"{arch}.attention.value_length": shape.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": shape.rope_base,
        **{f"{arch}.{key}": value for key, value in more.items() if value},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in _SPECIAL else 1 for token in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.padding_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


def _vocabulary(n: int) -> list[str]:
    """A token for each byte, words that nobody writes, and the marks."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    letters = [chr(b) if b in plain else chr(next(extra)) for b in range(_N_BYTES)]
    return [*letters, *(f"w{i}" for i in range(n - _N_BYTES - len(_SPECIAL))), *_SPECIAL]
