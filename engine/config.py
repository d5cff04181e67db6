"""How a model is loaded and how a token is chosen: two value types that check themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from .errors import EngineError
from .values import MAX_INT, Range, shown

# llama.cpp's names for KV cache types (-ctk, -ctv) and ggml's numbers for them (ggml.h, enum ggml_type).
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7}


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise EngineError(message)


def _check_numbers(settings: Any, ranges: Mapping[str, Range]) -> None:
    """None passes where it is the default."""
    for setting in fields(settings):
        value, allowed = getattr(settings, setting.name), ranges.get(setting.name)
        if allowed and not (value is None and setting.default is None):
            _require(allowed.takes(value), f"{setting.name} must be {allowed}, got {shown(value)}")


def _check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    _require(value in list(known), f"{name} {shown(value)}; known: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load a model. Defaults suit a laptop; names follow llama.cpp.

    Args:
        n_ctx: context length in tokens, shared by all sequences; 0 takes what the model was trained for, None 8192 or
            as much of it as fits in memory. Never more than the model was trained for.
        n_batch: most tokens per `llama_decode` call (-b).
        n_ubatch: most tokens computed at once inside it (-ub).
        n_threads: threads for single tokens; None takes what affinity, cgroup quota and physical cores allow.
        n_threads_batch: threads for prompts; None takes n_threads.
        n_gpu_layers: layers on the GPU (-ngl), -1 for all; None takes all where the build has a GPU, else 0.
        n_seq_max: generations that one decode can serve; more wait. It takes no memory up to 8 (docs/concurrency.md).
        flash_attn: "auto", "on" or "off" (-fa).
        type_k, type_v: KV cache types (-ctk, -ctv), see KV_TYPES. A quantised V cache needs flash attention.
        use_mmap: map the file instead of reading it.
        jump_forward: decode tokens that the grammar forces in one batch instead of sampling each.
        draft_max: most tokens that are drafted from the context and verified in one batch; 0 for none. None takes 15,
            and none any more once it was seen that drafts do not pay on this machine. Drafts change no text, but for
            the rounding of larger batches on K-quants.
        prefix_cache_bytes: most bytes of saved KV states on disk, shared by all models; 0 saves and loads none.
        prefix_cache_dir: where they lie; None for laploop's cache folder.

    Raises:
        EngineError: a value out of range; the message names it and the choices.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    n_ubatch: int = 256
    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_gpu_layers: int | None = None
    n_seq_max: int = 8
    flash_attn: Literal["auto", "on", "off"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    use_mmap: bool = True
    jump_forward: bool = True
    draft_max: int | None = None
    prefix_cache_bytes: int = 2_000_000_000
    prefix_cache_dir: Path | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, _ENGINE_NUMBERS)
        _require(
            self.n_seq_max <= self.n_batch,
            f"n_seq_max must be at most n_batch ({self.n_batch}), one token each a decode; got {self.n_seq_max}",
        )
        for name in ("use_mmap", "jump_forward"):
            value = getattr(self, name)
            _require(isinstance(value, bool), f"{name} must be True or False, got {shown(value)}")
        _check_choice("flash_attn", self.flash_attn, ("auto", "on", "off"))
        _check_choice("type_k", self.type_k, KV_TYPES)
        _check_choice("type_v", self.type_v, KV_TYPES)
        folder = self.prefix_cache_dir
        _require(
            folder is None or isinstance(folder, Path),
            f"prefix_cache_dir must be a pathlib.Path, or None for laploop's own folder; got {shown(folder)}",
        )
        quantised = self.type_v not in ("f32", "f16", "bf16")
        _require(
            not (quantised and self.flash_attn == "off"),
            f"type_v {self.type_v} needs flash attention, which is off",
        )

    @property
    def n_outputs(self) -> int:
        """Tokens of a batch that may have logits: one of each conversation, or a draft with the token before it."""
        return max(64, self.n_seq_max + 1, 1 + (self.draft_max or 0))


_NOT_NEGATIVE = Range(0, MAX_INT, whole=True)
_COUNT = Range(1, MAX_INT, whole=True)
_ENGINE_NUMBERS = {
    "n_ctx": _NOT_NEGATIVE,
    "n_batch": _COUNT,
    "n_ubatch": _COUNT,
    "n_threads": Range(1, 512, whole=True),  # ggml.h: GGML_MAX_N_THREADS
    "n_threads_batch": Range(1, 512, whole=True),
    "n_gpu_layers": Range(-1, MAX_INT, whole=True),
    "n_seq_max": Range(1, 255, whole=True),  # llama.h: LLAMA_MAX_SEQ is 256, and one is ours
    "draft_max": _NOT_NEGATIVE,
    "prefix_cache_bytes": Range(0, whole=True),
}
_COLDEST = 1e-6
# What single precision can still add to a logit, or multiply it by, so that the sum stays finite.
_MOST = 1_000_000
_SAMPLING_NUMBERS = {
    "temperature": Range(0, _MOST),
    "top_k": _NOT_NEGATIVE,
    "top_p": Range(0, 1, with_low=False),
    "min_p": Range(0, 1),
    "repeat_penalty": Range(1 / _MOST, _MOST),
    "presence_penalty": Range(-_MOST, _MOST),
    "frequency_penalty": Range(-_MOST, _MOST),
    "penalty_last_n": Range(0, 1_000_000, whole=True),  # llama.cpp keeps a ring of so many
    "n_greedy": _NOT_NEGATIVE,
    "n_logprobs": _NOT_NEGATIVE,
    "seed": Range(-math.inf, whole=True),
}
_BIAS = Range(-1e30, 1e30)
_ANY_SEED = 2**32 - 1  # llama.h: LLAMA_DEFAULT_SEED


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from the logits: llama.cpp's sampler chain, in its order.

    Args:
        temperature: 0 is greedy: the most probable token (biases and penalties still count, the rest has no effect); so
            is anything below a millionth, which logits cannot be divided by.
        top_k: keep the k most probable; 0 keeps all.
        top_p: keep the smallest set with this total probability; 1 keeps all.
        min_p: drop what is less probable than this share of the best; 0 drops nothing.
        repeat_penalty: divides the logits of the last `penalty_last_n` tokens; 1 for none.
        presence_penalty, frequency_penalty: as OpenAI defines them; 0 for none.
        penalty_last_n: tokens that penalties look back on.
        logit_bias: token → amount added to its logit.
        fork_bias: the same, but only where the grammar lets no text go on: at a fork between its forms, such as another
            object or the end of the list.
        n_greedy: the first tokens that are the most probable ones whatever the temperature; for a first token that
            is a decision, such as whether to call a tool.
        n_logprobs: give each token's probability and this many alternatives, see `TokenLogprob`; None for neither.
            Tokens are then decoded one by one, also those that a grammar forces.
        seed: None draws one; whole numbers that differ by 2**32 - 1 are the same (that one is llama.cpp's "draw one").

    Raises:
        EngineError: a value out of range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    fork_bias: Mapping[int, float] = field(default_factory=dict)
    n_greedy: int = 0
    n_logprobs: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, _SAMPLING_NUMBERS)
        for name in ("logit_bias", "fork_bias"):
            biases = getattr(self, name)
            _require(isinstance(biases, Mapping), f"{name} must map tokens to numbers, got {shown(biases)}")
            for token, bias in biases.items():
                _require(_NOT_NEGATIVE.takes(token), f"{name} is for tokens, {_NOT_NEGATIVE}; got {shown(token)}")
                _require(_BIAS.takes(bias), f"{name} of token {token} must be {_BIAS}, got {shown(bias)}")
        if self.temperature < _COLDEST:
            object.__setattr__(self, "temperature", 0.0)
        if self.seed is not None:
            object.__setattr__(self, "seed", self.seed % _ANY_SEED)


GREEDY = SamplingParams(temperature=0.0)
