"""What llama.cpp ends the process for instead of refusing: rules over the header, each with the assertion it spares.

Found by giving mutated headers to llama.cpp (scripts/benchmarks/gguf_fuzz.py) and by reading its assertions. A key that
is not there breaks no rule: what a file must have is llama.cpp's to say, which it does without crashing. Knows neither
files nor bytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_LAYERS = 512  # llama-hparams.h: LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # llama-hparams.h: LLAMA_MAX_EXPERTS
_TOKENS = "tokenizer.ggml.tokens"
_NOT_FOR_WEIGHTS = {"I8", "I16", "I32", "I64", "F64"}


def broken_rules(metadata: Mapping[str, Any], tensors: Sequence[Any]) -> Iterator[str]:
    """Each rule that the header breaks, as the end of a sentence on the file.

    Args:
        metadata: as `read_gguf` gives it.
        tensors: objects with `name`, `shape` (fastest first) and `type`.
    """
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        return  # a part of a split model, or no model: llama.cpp says so

    def number(name: str) -> Any:
        value = metadata.get(f"{arch}.{name}")
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    layers = number("block_count")
    if layers is not None and not 0 < layers <= MAX_LAYERS:  # llama-model.cpp: n_layer_all
        yield f"{arch}.block_count is {layers:,}, expected 1 to {MAX_LAYERS}"
    heads, kv_heads = number("attention.head_count"), number("attention.head_count_kv")
    if heads and kv_heads and heads % kv_heads:  # ggml.c: ggml_can_mul_mat
        yield f"{arch}.attention.head_count_kv is {kv_heads:,}, no divisor of its {heads:,} heads"
    for name in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"):
        eps = number(name)
        if eps is not None and not (math.isfinite(eps) and eps >= 0):  # ggml-cpu/ops.cpp: eps >= 0
            yield f"{arch}.{name} is {eps}, expected 0 or more"
    experts, used = number("expert_count") or 0, number("expert_used_count") or 0
    if experts > MAX_EXPERTS or used > experts or (experts and not used):  # llama-model.cpp: n_expert_used_max
        yield f"{arch}.expert_used_count is {used:,} of {experts:,} experts (at most {MAX_EXPERTS})"
    yield from _vocabulary(metadata)
    for tensor in tensors:
        if tensor.type in _NOT_FOR_WEIGHTS and tensor.name.endswith((".weight", ".bias")):  # ggml-cpu: no such type
            yield f"tensor {tensor.name!r} has the type {tensor.type}, with which nothing can be computed"
        elif len(tensor.shape) == 1 and tensor.name.endswith("norm.weight") and tensor.type != "F32":
            yield f"tensor {tensor.name!r} has the type {tensor.type}, expected F32"  # ggml-cpu/binary-ops.cpp


def _vocabulary(metadata: Mapping[str, Any]) -> Iterator[str]:
    tokens = metadata.get(_TOKENS)
    if tokens is None:
        return
    if not isinstance(tokens, list) or not all(isinstance(token, bytes) for token in tokens):
        yield f"{_TOKENS} is no list of strings"
        return
    # llama-vocab.cpp: id_to_token.size() == token_to_id.size(); a name ends at a zero byte, an empty one gets a number.
    names = [token.partition(b"\0")[0] or b"[EMPTY_%d]" % i for i, token in enumerate(tokens)]
    if twice := len(names) - len(set(names)):
        yield f"{_TOKENS} names {twice:,} tokens twice"
    for name in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
        numbers = metadata.get(name)  # read as 32-bit numbers, whatever they are
        if numbers is not None and not (isinstance(numbers, array) and numbers.itemsize == 4):
            yield f"{name} is no array of 32-bit numbers"
    merges = metadata.get("tokenizer.ggml.merges")
    if merges is not None and not (isinstance(merges, list) and all(isinstance(merge, bytes) for merge in merges)):
        yield "tokenizer.ggml.merges is no list of strings"
