"""The one module that calls llama.cpp: model, context, batch and sampler as Python objects that free themselves.

Thin: no policy, no text, no grammar. Every call that can fail is turned into a BackendError that carries llama.cpp's
own last words; its log goes to a buffer, never to the user's screen (LAPLOOP_LLAMA_LOG=1 prints it).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Before llama.cpp's library is loaded, which reads them once: OpenMP threads that wait spin for some microseconds and
# then sleep. A decode has about a thousand barriers. With threads that spin on, any second busy process makes each of
# them wait for a time slice; with threads that sleep at once, each has to be woken, and alone decoding takes nearly
# twice as long (measured: docs/log.md). The rounds are GNU OpenMP's own count. Who sets a variable is obeyed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "500")
import llama_cpp as C
from llama_cpp._ctypes_extensions import load_shared_library
from llama_cpp._ggml import libggml_base_path

from .config import KV_TYPES, EngineConfig, SamplingParams
from .errors import BackendError

_log: deque[str] = deque(maxlen=200)
_ERROR_LEVELS = (3, 4)  # ggml.h: GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR


@C.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _data: Any) -> None:
    line = text.decode("utf-8", "replace")
    if os.environ.get("LAPLOOP_LLAMA_LOG"):
        sys.stderr.write(line)
    if level in _ERROR_LEVELS:
        _log.append(line.rstrip())


# Another that needs no Python: a function of libc which looks at its first argument only.
_NO_LOG = ctypes.cast(ctypes.CDLL(None if os.name == "posix" else "msvcrt").abs, C.llama_log_callback)

_started = False


def start() -> None:
    """Start the back end once and take over its log."""
    global _started
    if not _started:
        C.llama_log_set(_on_log, ctypes.c_void_p(0))
        C.llama_backend_init()
        _started = True


@contextmanager
def _without_log() -> Iterator[None]:
    """Let llama.cpp log nothing: each of the hundreds of lines of a load would wait for whatever else of Python runs,
    which then is what makes llguidance's tables (`Guide`)."""
    if os.environ.get("LAPLOOP_LLAMA_LOG"):
        yield
        return
    C.llama_log_set(_NO_LOG, ctypes.c_void_p(0))
    try:
        yield
    finally:
        C.llama_log_set(_on_log, ctypes.c_void_p(0))


def last_words(n: int = 3) -> str:
    """The last lines that llama.cpp logged as warnings or errors, as one line."""
    return "; ".join(line for line in list(_log)[-n:] if line.strip())


def supports_gpu() -> bool:
    """Whether this build of llama.cpp can offload to a GPU."""
    start()
    return bool(C.llama_supports_gpu_offload())


def system_info() -> str:
    """llama.cpp's line on the instruction sets and back ends in use."""
    start()
    return str(C.llama_print_system_info().decode())


def build_facts() -> list[str]:
    """What tells this build of llama.cpp from others: version, the library itself, instruction sets, and the variable
    that changes what a quantised K cache holds (llama-kv-cache.cpp)."""
    library = Path(C.llama_cpp._lib._name)
    parts = sorted(f"{file.name} {file.stat().st_size}" for file in library.parent.iterdir() if file.is_file())
    digest = hashlib.blake2b(library.read_bytes(), digest_size=16).hexdigest()
    rotation = os.environ.get("LLAMA_ATTN_ROT_DISABLE", "")
    return [C.__version__, str(C.LLAMA_STATE_SEQ_VERSION), digest, *parts, system_info(), rotation]


class NativeModel:
    """Weights and vocabulary."""

    def __init__(self, path: Path, n_gpu_layers: int, use_mmap: bool) -> None:
        start()
        params = C.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.load_mode = C.LLAMA_LOAD_MODE_MMAP if use_mmap else C.LLAMA_LOAD_MODE_NONE
        _log.clear()
        # os.fsencode would use the ANSI code page on Windows; llama.cpp wants UTF-8 everywhere.
        name = str(path).encode("utf-8")
        with _without_log():
            self.pointer = C.llama_model_load_from_file(name, params)
        if not self.pointer:  # once more, to hear why
            self.pointer = C.llama_model_load_from_file(name, params)
        if not self.pointer:
            raise BackendError(f"llama.cpp could not load {path}: {last_words() or 'no reason given'}")
        self._free = weakref.finalize(self, C.llama_model_free, self.pointer)
        self._lock = RLock()
        self.vocab = C.llama_model_get_vocab(self.pointer)
        self.n_vocab = int(C.llama_vocab_n_tokens(self.vocab))
        self.n_ctx_train = (
            int(C.llama_model_n_ctx_train(self.pointer)) % 2**32
        )  # a uint32_t that llama.cpp gives as an int32_t
        self.n_params = int(C.llama_model_n_params(self.pointer))
        self.size_bytes = int(C.llama_model_size(self.pointer))
        self.eos = int(C.llama_vocab_eos(self.vocab))
        self.bos = int(C.llama_vocab_bos(self.vocab))
        self.add_bos = bool(C.llama_vocab_get_add_bos(self.vocab))
        #: Whether the cache has a cell for each token, so that a prefix of a sequence can be copied, and continued
        #: anywhere. Recurrent layers have one state for all; of sliding windows a state holds the last window only.
        self.has_plain_cells = not (
            C.llama_model_is_recurrent(self.pointer)
            or C.llama_model_is_hybrid(self.pointer)
            or C.llama_model_n_swa(self.pointer)
        )

    def close(self) -> None:
        """Free it, once nobody is using it; safe to call twice."""
        with self._lock:
            self._free()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep others from freeing it inside the `with` block.

        Raises:
            BackendError: it is freed already.
        """
        with self._lock:
            if not self._free.alive:
                raise BackendError("the model is closed")
            yield

    @property
    def description(self) -> str:
        """llama.cpp's description, such as "qwen2 1.5B Q4_K - Medium"."""
        buffer = ctypes.create_string_buffer(256)
        with self.in_use():
            C.llama_model_desc(self.pointer, buffer, 256)
        return buffer.value.decode("utf-8", "replace")

    def is_eog(self, token: int) -> bool:
        """Whether `token` ends a generation."""
        with self.in_use():
            return bool(C.llama_vocab_is_eog(self.vocab, token))

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` stands for; a special token's name."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            with self.in_use():
                n = C.llama_token_to_piece(self.vocab, token, buffer, size, 0, True)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def tokenize(self, text: bytes, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Tokens of UTF-8 text."""
        size = len(text) + 8
        while True:
            buffer = (C.llama_token * size)()
            with self.in_use():
                n = C.llama_tokenize(self.vocab, text, len(text), buffer, size, add_special, parse_special)
            if n >= 0:
                return list(buffer[:n])
            if n == -(2**31):
                raise BackendError(f"a text of {len(text)} bytes is too long to tokenize at once")
            size = -n


_FEWEST_MORE = 7
_MOST_SEQ = 256  # llama.h: LLAMA_MAX_SEQ


class NoRoomError(BackendError):
    """The KV cache has no cells left for a batch."""


class NativeContext:
    """KV cache and compute buffers. Not thread safe: one caller at a time."""

    def __init__(
        self, model: NativeModel, config: EngineConfig, *, n_ctx: int, threads: int, threads_batch: int
    ) -> None:
        params = C.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = config.n_batch
        params.n_ubatch = min(config.n_ubatch, config.n_batch)
        # More than are decoded at once, so that a conversation that rests is not forgotten as long as there are cells.
        # A power of two: buffers are made for a multiple of it. Where sequences have states of their own, more would
        # cost memory.
        more = min(1 << (config.n_seq_max + _FEWEST_MORE).bit_length(), _MOST_SEQ)
        params.n_seq_max = more if model.has_plain_cells else config.n_seq_max
        # Two are ours: `state` needs one for a moment, `put_aside` the other.
        self._spare = more - 1 if model.has_plain_cells else None
        self._aside = more - 2
        #: Sequences that it holds.
        self.n_seq = params.n_seq_max - 2 if model.has_plain_cells else config.n_seq_max
        # Room for the logits of every token of a batch would be 150 MB with Qwen's vocabulary; few are ever asked for.
        # But of one token a conversation at least, the spare one too: for fewer llama.cpp ends the process.
        self._n_outputs = max(min(config.n_batch, config.n_outputs), params.n_seq_max)
        params.n_outputs_max = self._n_outputs
        params.n_threads = threads
        params.n_threads_batch = threads_batch
        params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[config.flash_attn]
        params.type_k = KV_TYPES[config.type_k]
        params.type_v = KV_TYPES[config.type_v]
        params.kv_unified = True
        params.no_perf = True
        # A stop flag that needs no Python at all: llama.cpp calls strlen(flag) between graph nodes, which is 0 until
        # `abort` writes a character. A Python callback there would cost about 1 % of every decode.
        self._flag = ctypes.create_string_buffer(2)
        strlen = ctypes.CDLL(None if os.name == "posix" else "msvcrt").strlen
        params.abort_callback = ctypes.cast(strlen, C.ggml_abort_callback)
        params.abort_callback_data = ctypes.cast(self._flag, ctypes.c_void_p)
        _log.clear()
        self._model = model  # keeps the weights alive
        self.pointer = C.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise BackendError(
                f"llama.cpp could not make a context with n_ctx = {n_ctx}; the KV cache may not fit in memory. "
                f"Use a smaller n_ctx (-c) or KV type (-ctk q8_0 -ctv q8_0). {last_words()}".rstrip()
            )
        self.n_ctx = int(C.llama_n_ctx(self.pointer))
        self.n_batch = int(C.llama_n_batch(self.pointer))
        self._memory = C.llama_get_memory(self.pointer)
        self._batch = C.llama_batch_init(self.n_batch, 0, 1)
        self._free = weakref.finalize(self, _free_context, self.pointer, self._batch)
        as_array = np.ctypeslib.as_array
        self._tokens = as_array(self._batch.token, (self.n_batch,))  # (n_batch,) int32
        self._positions = as_array(self._batch.pos, (self.n_batch,))  # (n_batch,) int32
        self._logits_wanted = as_array(self._batch.logits, (self.n_batch,))  # (n_batch,) int8
        for i in range(self.n_batch):
            self._batch.n_seq_id[i] = 1

    def close(self) -> None:
        """Free it; safe to call twice."""
        self._free()

    def abort(self) -> None:
        """Make a `decode` stop within one graph node, now and until `allow`; may be called from any thread."""
        self._flag[0] = b"\x01"

    def allow(self) -> None:
        """Let `decode` run again after an `abort`."""
        self._flag[0] = b"\x00"

    def decode(self, runs: Sequence[tuple[int, int, Sequence[int], int]]) -> bool:
        """Evaluate runs of tokens, each (sequence id, first position, tokens, last tokens with logits), in one batch.

        Returns:
            False if `abort` stopped it; the cache then holds an unknown part of the batch.

        Raises:
            NoRoomError: the cache has too few free cells; nothing has changed.
            BackendError: llama.cpp refused.
        """
        n = 0
        if (wanted := sum(run[3] for run in runs)) > self._n_outputs:  # llama.cpp would end the process
            raise BackendError(f"logits of {wanted} tokens at once, the context holds those of {self._n_outputs}")
        for seq_id, position, tokens, n_logits in runs:
            end = n + len(tokens)
            self._tokens[n:end] = tokens
            self._positions[n:end] = np.arange(position, position + len(tokens))
            self._logits_wanted[n:end] = 0
            self._logits_wanted[end - n_logits : end] = 1
            for i in range(n, end):
                self._batch.seq_id[i][0] = seq_id
            n = end
        self._batch.n_tokens = n
        code = C.llama_decode(self.pointer, self._batch)
        if code == 0:
            return True
        if code == 2:
            return False
        if code == 1:
            raise NoRoomError(f"no room in the KV cache for {n} tokens more")
        raise BackendError(f"llama_decode failed on {n} tokens (code {code}). {last_words()}".rstrip())

    def logits(self, i: int, n_vocab: int) -> NDArray[np.float32]:
        """Logits of the batch's i-th token, (n_vocab,) float32: llama.cpp's own memory, valid until the next decode."""
        return np.ctypeslib.as_array(C.llama_get_logits_ith(self.pointer, i), (n_vocab,))

    def forget(self, seq_id: int, start: int) -> bool:
        """Drop a sequence's cells from position `start` on; False if this model cannot drop a part."""
        return bool(C.llama_memory_seq_rm(self._memory, seq_id, start, -1))

    @property
    def can_share(self) -> bool:
        """Whether `share` works: whether this model has a cell for each token."""
        return self._spare is not None

    def share(self, seq_id: int, other: int, n_tokens: int) -> None:
        """Let the empty sequence `other` begin with the first `n_tokens` of a sequence. No cell is copied: they belong
        to both, and are free again when neither holds them."""
        C.llama_memory_seq_cp(self._memory, seq_id, other, 0, n_tokens)

    def put_aside(self, seq_id: int, start: int) -> None:
        """Keep a sequence's cells from position `start` on from being used again, until `free_aside`."""
        C.llama_memory_seq_cp(self._memory, seq_id, self._aside, start, -1)

    def free_aside(self) -> None:
        """Free the cells that were put aside and that no sequence holds."""
        C.llama_memory_seq_rm(self._memory, self._aside, -1, -1)

    def move(self, seq_ids: Sequence[int], start: int, end: int) -> bool:
        """Move the cells of the positions from `start` to before `end`, which these sequences hold together, to the
        lowest free cells; False if llama.cpp refused, and they are lost."""
        C.llama_memory_seq_cp(self._memory, seq_ids[0], self._spare, start, end)
        data = bytearray(C.llama_state_seq_get_size(self.pointer, self._spare))
        n_bytes = C.llama_state_seq_get_data(self.pointer, _pointer_to(data), len(data), self._spare)
        for seq_id in (*seq_ids, self._spare):
            C.llama_memory_seq_rm(self._memory, seq_id, start, end)
        if n_bytes != C.llama_state_seq_set_data(self.pointer, _pointer_to(data), n_bytes, self._spare):
            return False
        for seq_id in seq_ids:
            C.llama_memory_seq_cp(self._memory, self._spare, seq_id, start, end)
        C.llama_memory_seq_rm(self._memory, self._spare, -1, -1)
        return True

    def clear(self) -> None:
        """Empty all sequences."""
        C.llama_memory_clear(self._memory, False)

    def state(self, seq_id: int, n_tokens: int) -> bytearray | None:
        """The keys and values of a sequence's first `n_tokens`, for `restore`; None if this model cannot give them."""
        if self._spare is None:
            return None
        # No cell is copied by this: the cells belong to both sequences for a while.
        C.llama_memory_seq_cp(self._memory, seq_id, self._spare, 0, n_tokens)
        try:
            data = bytearray(C.llama_state_seq_get_size(self.pointer, self._spare))
            n_bytes = C.llama_state_seq_get_data(self.pointer, _pointer_to(data), len(data), self._spare)
        finally:
            C.llama_memory_seq_rm(self._memory, self._spare, -1, -1)
        return data if data and n_bytes == len(data) else None

    def restore(self, seq_id: int, state: bytearray, n_tokens: int) -> bool:
        """Replace what a sequence holds by a `state` of `n_tokens`; where that fails it is empty afterwards.

        llama.cpp checks lengths, types and shapes, not the values: give it only what is known to be whole.
        """
        n_bytes = C.llama_state_seq_set_data(self.pointer, _pointer_to(state), len(state), seq_id)
        first, last = (
            int(ask(self._memory, seq_id)) for ask in (C.llama_memory_seq_pos_min, C.llama_memory_seq_pos_max)
        )
        if n_bytes == len(state) and (first, last) == (0, n_tokens - 1):
            return True
        self.forget(seq_id, 0)
        return False


def _pointer_to(data: bytearray) -> Any:
    return (ctypes.c_uint8 * len(data)).from_buffer(data)


def _free_context(context: Any, batch: Any) -> None:
    C.llama_batch_free(batch)
    C.llama_free(context)


class NativeSampler:
    """llama.cpp's sampler chain, in llama.cpp's order."""

    def __init__(self, params: SamplingParams, seed: int, n_vocab: int) -> None:
        self._chain = _chain(params, seed, n_vocab)
        self._free = weakref.finalize(self, C.llama_sampler_free, self._chain)
        self._free_greedy: weakref.finalize[..., NativeSampler] | None = None
        self._n_greedy = params.n_greedy if params.temperature > 0 else 0
        if self._n_greedy:
            self._greedy = _chain(replace(params, temperature=0.0), seed, n_vocab)
            self._free_greedy = weakref.finalize(self, C.llama_sampler_free, self._greedy)

    def close(self) -> None:
        """Free it; safe to call twice. Left to the garbage collector, its finalizer may swallow a Ctrl-C."""
        self._free()
        if self._free_greedy:
            self._free_greedy()

    def sample(self, context: NativeContext, i: int) -> int:
        """Choose a token from the (possibly masked) logits of the batch's i-th token, and remember it."""
        if self._n_greedy:
            self._n_greedy -= 1
            token = int(C.llama_sampler_sample(self._greedy, context.pointer, i))
            self.accept(token)
            return token
        return int(C.llama_sampler_sample(self._chain, context.pointer, i))

    def accept(self, token: int) -> None:
        """Remember a token that was not sampled (a forced one), for the penalties."""
        C.llama_sampler_accept(self._chain, token)


def _chain(params: SamplingParams, seed: int, n_vocab: int) -> Any:
    chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
    parts = []
    if params.logit_bias:
        parts.append(C.llama_sampler_init_logit_bias(n_vocab, *_biases(params.logit_bias)))
    if params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty:
        parts.append(
            C.llama_sampler_init_penalties(
                n_vocab, params.penalty_last_n, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            )
        )
    if params.temperature == 0:
        parts.append(C.llama_sampler_init_greedy())
    else:
        if params.top_k:
            parts.append(C.llama_sampler_init_top_k(params.top_k))
        if params.top_p < 1:
            parts.append(C.llama_sampler_init_top_p(params.top_p, 1))
        if params.min_p:
            parts.append(C.llama_sampler_init_min_p(params.min_p, 1))
        parts += [C.llama_sampler_init_temp(params.temperature), C.llama_sampler_init_dist(seed)]
    for part in parts:
        C.llama_sampler_chain_add(chain, part)
    return chain


def _biases(logit_bias: Mapping[int, float]) -> tuple[int, Any]:
    array = (C.llama_logit_bias * len(logit_bias))()
    for slot, (token, bias) in zip(array, logit_bias.items(), strict=True):
        slot.token, slot.bias = token, bias
    return len(logit_bias), array


class BareContext:
    """A context with one sequence and llama.cpp's own defaults, as llama-bench makes it: for measuring what the library
    itself can do. Not thread safe."""

    def __init__(self, model: NativeModel, config: EngineConfig, *, n_ctx: int, threads: int) -> None:
        params = C.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch, params.n_ubatch = config.n_batch, config.n_ubatch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[config.flash_attn]
        params.type_k, params.type_v = KV_TYPES[config.type_k], KV_TYPES[config.type_v]
        params.swa_full = False
        _log.clear()
        self._model = model  # keeps the weights alive
        self.pointer = C.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise BackendError(
                f"llama.cpp could not make a context of {n_ctx} tokens (n_batch {config.n_batch}, n_ubatch "
                f"{config.n_ubatch}, KV cache {config.type_k} and {config.type_v}, flash attention "
                f"{config.flash_attn}); smaller ones may fit. {last_words()}".rstrip()
            )
        self._memory = C.llama_get_memory(self.pointer)
        self._free = weakref.finalize(self, C.llama_free, self.pointer)

    def close(self) -> None:
        """Free it; safe to call twice."""
        self._free()

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Evaluate (n,) int32 tokens behind what the sequence holds, with logits of the last one, and wait for the end.

        Raises:
            BackendError: llama.cpp refused.
        """
        batch = C.llama_batch_get_one(tokens.ctypes.data_as(C.llama_token_p), len(tokens))
        if code := C.llama_decode(self.pointer, batch):
            raise BackendError(f"llama_decode failed on {len(tokens)} tokens (code {code}). {last_words()}".rstrip())
        C.llama_synchronize(self.pointer)

    def clear(self) -> None:
        """Empty the sequence."""
        C.llama_memory_clear(self._memory, False)

    def state(self) -> bytearray:
        """What the sequence holds."""
        data = bytearray(C.llama_state_seq_get_size(self.pointer, 0))
        C.llama_state_seq_get_data(self.pointer, _pointer_to(data), len(data), 0)
        return data

    def restore(self, state: bytearray) -> bool:
        """Give the empty sequence what `state` holds; False if it does not suit this context."""
        return bool(C.llama_state_seq_set_data(self.pointer, _pointer_to(state), len(state), 0))


_CPU, _GPU, _IGPU, _ACCEL = 0, 1, 2, 3  # ggml-backend.h: enum ggml_backend_dev_type


def build_and_devices() -> dict[str, str]:
    """What llama-bench tells of the build and the machine: "build_commit", "cpu_info", "gpu_info" and "backends"."""
    start()
    libraries = [load_shared_library(name, libggml_base_path) for name in ("ggml", "ggml-base")]

    def call(name: str, kind: Any, *arguments: Any) -> Any:
        function = next(getattr(library, name) for library in libraries if hasattr(library, name))
        function.restype = kind
        return function(*arguments)

    def text(name: str, *arguments: Any) -> str:
        return str((call(name, ctypes.c_char_p, *arguments) or b"").decode("utf-8", "replace"))

    def items(kind: str) -> list[ctypes.c_void_p]:
        count = call(f"ggml_backend_{kind}_count", ctypes.c_size_t)
        get = f"ggml_backend_{kind}_get"
        return [ctypes.c_void_p(call(get, ctypes.c_void_p, ctypes.c_size_t(i))) for i in range(count)]

    devices = [
        (call("ggml_backend_dev_type", ctypes.c_int, item), text("ggml_backend_dev_description", item))
        for item in items("dev")
    ]
    registries = [text("ggml_backend_reg_name", item) for item in items("reg")]
    return {
        "build_commit": text("ggml_commit") or "unknown",
        "cpu_info": ", ".join(name for kind, name in devices if kind in (_CPU, _ACCEL)),
        "gpu_info": ", ".join(name for kind, name in devices if kind in (_GPU, _IGPU)),
        "backends": ",".join(name for name in registries if name not in ("CPU", "RPC")) or "CPU",
    }
