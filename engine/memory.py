"""How much memory a model will take, and how much there is: asked before it is loaded, because afterwards is too late.

Read from the header alone; the parts are llama.cpp's buffers, by formulas that were held against its own log
(docs/log.md). Knows CPU memory; what lies on a GPU is not judged.
"""

from __future__ import annotations

import dataclasses
import platform
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import EngineConfig
from .errors import BackendError, BadModelFileError
from .gguf import GGUFFile, TensorInfo, kv_bytes, read_gguf, shard_paths

#: Tokens of a context where nobody asks for another length.
DEFAULT_N_CTX = 8192
# ggml's block sizes (ggml-common.h): bytes of an element of the KV cache.
ELEMENT_BYTES = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}  # fmt: skip
# What llama.cpp copies into a layout of its own while it loads (ggml-cpu/repack.cpp), on the usual machines.
_REPACKED_X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
_REPACKED_ARM = _REPACKED_X86 | {"Q5_K", "Q6_K", "Q8_0"}
# Vocabulary: llama.cpp's maps, our lists, llguidance's tree (145 MB for Qwen's 151,936 tokens, 51 for 49,152).
_BYTES_PER_TOKEN = 1000
_LIBRARIES_BYTES = 9_000_000  # what a model of nearly no size takes
_DRAFT_OUTPUTS = 16
_CELLS = 256  # llama.cpp rounds the context up to a multiple
_UNLIMITED = 2**60  # cgroup v1 writes a number near 2**63 for "none"


@dataclass(frozen=True)
class MemoryEstimate:
    """The peak of a load and of what follows it, on top of what the process holds already; all in bytes.

    Args:
        weights_bytes: the tensors.
        repacked_bytes: those of them that are in memory twice while the file is mapped; the system may drop the copy in
            the file's layout.
        kv_bytes: the KV cache, allocated whole.
        compute_bytes: the largest intermediate results, and the logits.
        tables_bytes: the vocabulary, as llama.cpp, laploop and llguidance hold it, and the libraries' own.
    """

    weights_bytes: int
    repacked_bytes: int
    kv_bytes: int
    compute_bytes: int
    tables_bytes: int

    @property
    def total_bytes(self) -> int:
        """Most bytes that are in memory at once."""
        return self.needed_bytes + self.repacked_bytes

    @property
    def needed_bytes(self) -> int:
        """The bytes that must be in memory for every token."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.tables_bytes


def kv_cache_bytes(header: GGUFFile, config: EngineConfig) -> int:
    """Bytes of the KV cache that a model gets under a configuration. Raises BadModelFileError without a shape."""
    metadata = header.metadata
    k, v = ELEMENT_BYTES[config.type_k], ELEMENT_BYTES[config.type_v]
    whole = kv_bytes(metadata, -(-context_length(header, config) // _CELLS) * _CELLS, k, v)
    # Of hybrid models only every n-th layer has keys and values.
    every = metadata.get(f"{metadata.get('general.architecture')}.full_attention_interval", 1)
    return whole // max(1, int(every))


def context_length(header: GGUFFile, config: EngineConfig) -> int:
    """The context in tokens: what was asked for, and never more than the model was trained for."""
    wanted = DEFAULT_N_CTX if config.n_ctx is None else config.n_ctx
    trained = int(header.metadata.get(f"{header.metadata.get('general.architecture')}.context_length", 0))
    return min(wanted or trained, trained) if trained else wanted


def fitted(header: GGUFFile, config: EngineConfig, free_bytes: int | None) -> EngineConfig:
    """The configuration with a context that fits, where none was asked for; a warning says when that is less than
    usual. Unchanged where none fits: `check_memory` says so.

    Args:
        header: of the model's first part.
        config: how it would be loaded.
        free_bytes: the memory there is; None if that is not known.
    """
    if config.n_ctx is not None or free_bytes is None:
        return config
    usual = context_length(header, config)
    try:
        for n_ctx in (usual, *(n for n in (4096, 2048) if n < usual)):
            fit = dataclasses.replace(config, n_ctx=n_ctx)
            if estimate(header, fit).needed_bytes <= free_bytes:
                if n_ctx < usual:
                    warnings.warn(
                        f"the context holds {n_ctx} tokens: no more fit in the {_mb(free_bytes)} of free memory "
                        "(-c sets another length, -ctk q8_0 -ctv q8_0 a smaller KV type)",
                        stacklevel=3,
                    )
                return fit
    except BadModelFileError:  # a shape that we cannot read
        pass
    return config


def estimate(header: GGUFFile, config: EngineConfig, machine: str | None = None) -> MemoryEstimate:
    """What loading a model will take.

    Args:
        header: of its first part.
        config: how it will be loaded.
        machine: the processor, as `platform.machine` names it; None for this one.

    Raises:
        BadModelFileError: the header does not tell the model's shape.
    """
    parts = [header, *(read_gguf(part) for part in shard_paths(header.path)[1:])]
    arm = (machine or platform.machine()).lower() in ("arm64", "aarch64")
    types = _REPACKED_ARM if arm else _REPACKED_X86
    tensors = [tensor for part in parts for tensor in part.tensors]
    repacked = sum(t.size_bytes or 0 for t in tensors if _is_repacked(t, types)) if config.use_mmap else 0
    return MemoryEstimate(
        weights_bytes=sum(part.size_bytes - part.data_offset for part in parts),
        repacked_bytes=repacked,
        kv_bytes=kv_cache_bytes(header, config),
        compute_bytes=_compute_bytes(header.metadata, config, context_length(header, config)),
        tables_bytes=_LIBRARIES_BYTES + _BYTES_PER_TOKEN * _n_vocab(header.metadata),
    )


def _is_repacked(tensor: TensorInfo, types: frozenset[str]) -> bool:
    """Matrices of such a type with whole groups of rows; rows of the embedding are looked up, not multiplied."""
    is_matrix = len(tensor.shape) >= 2 and tensor.name.endswith(".weight") and tensor.shape[1] % 8 == 0
    return is_matrix and tensor.type in types and not tensor.name.startswith("token_embd")


def _n_vocab(metadata: dict[str, Any]) -> int:
    return len(metadata.get("tokenizer.ggml.tokens") or ())


def _compute_bytes(metadata: dict[str, Any], config: EngineConfig, n_ctx: int) -> int:
    """llama.cpp's compute buffer is as large as the largest of three phases of a batch, in floats a token."""
    arch = metadata.get("general.architecture")

    def shape(name: str, default: int) -> int:
        value = metadata.get(f"{arch}.{name}", default)
        return int(max(value)) if isinstance(value, array) else int(value)

    n_embd = shape("embedding_length", 0)
    n_heads = shape("attention.head_count", 1)
    n_q = n_heads * shape("attention.key_length", n_embd // max(1, n_heads))
    n_ff = max(
        shape("feed_forward_length", 4 * n_embd), shape("expert_feed_forward_length", 0) * shape("expert_used_count", 0)
    )
    n_vocab = _n_vocab(metadata)
    n_tokens = min(config.n_ubatch, config.n_batch, n_ctx)
    n_outputs = min(n_tokens, config.n_outputs)
    flash = config.flash_attn != "off"
    mask = n_tokens * n_ctx * (2 if flash else 4)
    attention = mask + 4 * n_tokens * ((0 if flash else n_ctx * n_heads) + 5 * n_embd + 2 * n_q)
    feed_forward = mask + 4 * n_tokens * (4 * n_ff + 2 * n_embd)
    output = 4 * n_outputs * (n_vocab + 2 * n_embd) + 4 * n_tokens * n_embd
    kept_logits = 4 * n_vocab * (config.n_seq_max + 1 + _DRAFT_OUTPUTS)
    return max(attention, feed_forward, output) + kept_logits


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that a process can still have: free memory and swap, and what its cgroups leave. None if unknown.

    Args:
        root: where /proc and /sys are mounted.
    """
    limits = list(_cgroups(root))
    facts = _numbers(root / "proc/meminfo")
    if "MemAvailable" in facts:
        limits.append((facts["MemAvailable"] + facts.get("SwapFree", 0)) * 1024)
    return max(0, min(limits)) if limits else None


def memory_bytes(root: Path = Path("/")) -> int | None:
    """The machine's memory; None if unknown."""
    kilobytes = _numbers(root / "proc/meminfo").get("MemTotal")
    return kilobytes * 1024 if kilobytes else None


def _cgroups(root: Path) -> Iterator[int]:
    """What each memory cgroup that the process is in leaves it; pages of files count as free, the system drops them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, limit, usage, prefix = mount, "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            base, limit, usage, prefix = mount / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
        else:
            continue
        group = base / path.lstrip("/")
        # A container may see its own group as the mount's root, whatever path it is told.
        for folder in {base, *(f for f in (group, *group.parents) if base in f.parents)}:
            try:
                most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
            except (OSError, ValueError):  # no such group here, or "max"
                continue
            if most < _UNLIMITED:
                stat = _numbers(folder / "memory.stat")
                yield most - used + stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)


def _numbers(path: Path) -> dict[str, int]:
    """The `name number` lines of a file; none if it is not there."""
    try:
        rows = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def check_memory(header: GGUFFile, config: EngineConfig, free_bytes: int | None) -> None:
    """Refuse a model that cannot fit.

    Args:
        header: of its first part.
        config: how it would be loaded.
        free_bytes: the memory there is; None if that is not known, which refuses nothing.

    Raises:
        BackendError: it needs more; the message has both numbers, the parts, and what would fit.
    """
    try:
        need = estimate(header, config)
    except BadModelFileError:  # a shape that we cannot read: llama.cpp shall say whether it can
        return
    if free_bytes is None or need.needed_bytes <= free_bytes:
        return
    raise BackendError(
        f"{header.path.name} needs about {_mb(need.needed_bytes)} of memory and {_mb(free_bytes)} are free: weights "
        f"{_mb(need.weights_bytes)}, KV cache {_mb(need.kv_bytes)} for {context_length(header, config)} tokens of "
        f"context, buffers {_mb(need.compute_bytes + need.tables_bytes)}. {_way_out(header, config, free_bytes)}"
    )


def _way_out(header: GGUFFile, config: EngineConfig, free_bytes: int) -> str:
    def fits(**changes: Any) -> bool:
        return estimate(header, dataclasses.replace(config, **changes)).needed_bytes <= free_bytes

    ways = []
    shorter = [n for n in (32768, 16384, 8192, 4096, 2048, 1024) if n < context_length(header, config)]
    if found := next((n for n in shorter if fits(n_ctx=n)), None):
        ways.append(f"a smaller context (-c {found})")
    if config.flash_attn != "off" and fits(type_k="q8_0", type_v="q8_0"):
        ways.append("a smaller KV type (-ctk q8_0 -ctv q8_0)")
    if ways:
        return f"{' or '.join(ways)[:1].upper()}{' or '.join(ways)[1:]} fits; so may a smaller quantisation."
    return "Choose a smaller quantisation or model, or end other programs."


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
