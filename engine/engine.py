"""A GGUF in memory that generates tokens.

`step` decodes one batch for all active generations; `generate` is one of them, from its caller's thread. There is no
background scheduler: whichever caller finds nothing to read takes the lock and runs the next step for everybody. It
knows tokens and text; not messages, templates or tools.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Tokens
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any

from . import native
from .config import EngineConfig, SamplingParams
from .errors import ContextError, EngineError
from .gguf import GGUFFile, kv_bytes, read_gguf
from .grammar import Grammar
from .hardware import n_threads
from .matcher import Matcher
from .sequence import Sequence, Slot, Step
from .vocabulary import Vocabulary

# A reader that does not read holds its own generation back, not the others.
_MOST_UNREAD_STEPS = 16
# From this many tokens before the end of the budget on, the way out of the grammar is watched.
_CLOSING_ZONE = 256


class Engine:
    """A loaded model. Make one with `load`; use it as a context manager or `close` it. Thread safe."""

    def __init__(self, path: Path, header: GGUFFile, config: EngineConfig) -> None:
        self.path = path
        self.metadata = header.metadata
        self.config = config
        self.n_threads = config.n_threads or n_threads()
        self.n_gpu_layers = _gpu_layers(config.n_gpu_layers)
        self.model = native.NativeModel(path, self.n_gpu_layers, config.use_mmap)
        trained = self.model.n_ctx_train
        n_ctx = min(config.n_ctx or trained, trained) if trained else config.n_ctx
        self.context = native.NativeContext(
            self.model,
            config,
            n_ctx=n_ctx,
            threads=self.n_threads,
            threads_batch=config.n_threads_batch or self.n_threads,
        )
        self.vocabulary = Vocabulary(self.model, header.metadata)
        # llguidance's tables are needed at the first constrained token, after the prompt: build them meanwhile.
        Thread(target=self.vocabulary.guide, daemon=True).start()
        self._slots = [Slot(i) for i in range(config.n_seq_max)]
        self._active: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._lock = Lock()  # held during a step
        self._changed = Condition()
        # One thread does all decoding: llama.cpp's OpenMP team belongs to the thread that calls it, and a team for each
        # caller would leave spinning threads behind. It also lets Ctrl-C reach the caller while llama.cpp computes.
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="laploop-decode")
        self._closed = False

    @classmethod
    def load(cls, path: str | Path, config: EngineConfig | None = None) -> Engine:
        """Load a GGUF file.

        Args:
            path: the file; of a split model, its first part.
            config: how to load it.

        Raises:
            BadModelFileError: no GGUF, or a damaged or incomplete one.
            BackendError: llama.cpp could not load it, or the context does not fit in memory.
        """
        path = Path(path)
        return cls(path, read_gguf(path), config or EngineConfig())

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; generations under way end with an error. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.context.abort()
        with self._lock:
            for sequence in [*self._active, *self._waiting]:
                sequence.error = EngineError("the engine was closed")
            self._decoder.shutdown()
            self.context.close()
            self.model.close()

    # -- facts ----------------------------------------------------------------------------------------------------

    @property
    def n_ctx(self) -> int:
        """Context length in tokens."""
        return self.context.n_ctx

    @property
    def device(self) -> str:
        """ "gpu" if layers are offloaded, else "cpu"."""
        return "gpu" if self.n_gpu_layers and native.supports_gpu() else "cpu"

    @property
    def kv_size_bytes(self) -> int:
        """Size of the KV cache."""
        per = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32}
        k, v = (per.get(t, 20 / 32 if t == "q4_1" else 18 / 32) for t in (self.config.type_k, self.config.type_v))
        return int(kv_bytes(self.metadata, self.n_ctx, k, v))

    def tokenize(self, text: str | Iterable[str]) -> list[int]:
        """Tokens of a prompt; see `Vocabulary.tokenize`."""
        return self.vocabulary.tokenize(text)

    def detokenize(self, tokens: Iterable[int]) -> str:
        """Text of tokens."""
        return self.vocabulary.detokenize(tokens)

    # -- generating -----------------------------------------------------------------------------------------------

    def generate(
        self,
        tokens: Tokens[int],
        sampling: SamplingParams | None = None,
        grammar: Grammar | None = None,
        max_tokens: int | None = None,
    ) -> Iterator[Step]:
        """Generate from a prompt; one item per decode step.

        Args:
            tokens: the prompt.
            sampling: how tokens are chosen.
            grammar: what may be generated; near the end of the budget it is closed where it can be.
            max_tokens: most tokens to generate; None for what the context holds, and never more than that.

        Returns:
            An iterator; closing it ends the generation. The prompt is checked at the call.

        Raises:
            ContextError: the prompt leaves no room; names both numbers and the way out.
            GrammarError: the grammar does not compile.
        """
        return self.read(self.submit(tokens, sampling, grammar, max_tokens))

    def submit(
        self,
        tokens: Tokens[int],
        sampling: SamplingParams | None = None,
        grammar: Grammar | None = None,
        max_tokens: int | None = None,
    ) -> Sequence:
        """Queue a generation; arguments as for `generate`, read it with `read`."""
        if self._closed:
            raise EngineError("the engine is closed")
        if not tokens:
            raise ContextError("the prompt is empty: at least one token is needed")
        room = self.n_ctx - len(tokens)
        if room < 1:
            raise ContextError(
                f"the prompt has {len(tokens)} tokens, the context holds {self.n_ctx}: "
                f"use a larger n_ctx (-c), fewer tools or a shorter history"
            )
        params = sampling or SamplingParams()
        seed = params.seed if params.seed is not None else random.SystemRandom().getrandbits(32)
        sequence = Sequence(
            tokens,
            native.NativeSampler(params, seed & 0xFFFFFFFF, self.vocabulary.n_tokens),
            Matcher(grammar, self.vocabulary) if grammar else None,
            min(max_tokens or room, room),
        )
        with self._changed:
            self._waiting.append(sequence)
        return sequence

    def inject(self, sequence: Sequence, tokens: Tokens[int]) -> None:
        """Put tokens behind what `sequence` generated so far, as if it had chosen them; its reader sees them as a step.

        Raises:
            GrammarError: its grammar does not allow them here.
        """
        with self._lock:
            if sequence.finish_reason or sequence.error:
                return
            if sequence.matcher:
                sequence.matcher.consume(tokens)
            for token in tokens:
                sequence.sampler.accept(token)
            self._emit(sequence, list(tokens), "length" if len(tokens) >= sequence.n_left else None)

    def limit(self, sequence: Sequence, n_more: int) -> None:
        """Let `sequence` generate at most `n_more` tokens from here on, and never more than before."""
        with self._lock:
            sequence.max_tokens = min(sequence.max_tokens, sequence.n_generated + n_more)

    def read(self, sequence: Sequence) -> Iterator[Step]:
        """The steps of a submitted generation; closing the iterator ends it."""
        try:
            while True:
                while sequence.out:
                    yield sequence.out.popleft()
                if sequence.error:
                    raise sequence.error
                if sequence.finish_reason:
                    return
                with self._lock:
                    if not (sequence.out or sequence.finish_reason or sequence.error):
                        self.step()
        finally:
            # Only a flag: this may run in the garbage collector, in a thread that is in the middle of a step.
            sequence.abandoned = True

    def step(self) -> int:
        """Decode one batch for all active generations and choose each one's next token; return how many took part.

        Call it with the lock held, as `generate` does.
        """
        self._reap()
        self._admit()
        runs = []
        budget = self.context.n_batch
        # Generations that only need a token go first: a long prompt must not hold them up.
        for sequence in sorted(self._active, key=lambda s: len(s.pending)):
            pending = sequence.pending[:budget]
            if not pending or len(sequence.out) >= _MOST_UNREAD_STEPS:
                continue
            budget -= len(pending)
            runs.append((sequence, pending))
        if not runs:
            time.sleep(0.001)  # every reader is behind; let them read
            return 0
        self._decode(runs)
        self._sample(runs)
        return len(runs)

    def _admit(self) -> None:
        """Give waiting generations a slot, first come first served, as long as the cache can hold them to their end."""
        with self._changed:
            while self._waiting:
                sequence = self._waiting[0]
                reserved = sum(s.n_reserved for s in self._active)
                idle = [slot for slot in self._slots if not slot.busy]
                if not idle or (self._active and reserved + sequence.n_reserved > self.n_ctx):
                    return
                self._waiting.pop(0)
                self._place(sequence, idle, reserved)
                self._active.append(sequence)

    def _place(self, sequence: Sequence, idle: list[Slot], reserved: int) -> None:
        """Take the idle slot that shares the longest prefix; of equals the one used longest ago."""
        slot = max(idle, key=lambda s: (s.shared_with(sequence.tokens), -s.last_used))
        # The last token is decoded again: its logits are not kept.
        keep = min(slot.shared_with(sequence.tokens), len(sequence.tokens) - 1)
        self._forget(slot, keep)
        free = self.n_ctx - reserved - sequence.n_reserved
        for other in sorted((s for s in idle if s is not slot), key=lambda s: s.last_used):
            held = sum(len(s.cached) for s in idle if s is not slot)
            if held > free:
                self._forget(other, 0)
        slot.busy, sequence.slot = True, slot
        sequence.timings.n_cached = len(slot.cached)

    def _forget(self, slot: Slot, start: int) -> None:
        if start < len(slot.cached) and not self.context.forget(slot.seq_id, start):
            self.context.forget(slot.seq_id, 0)
            start = 0
        del slot.cached[start:]

    def _reap(self) -> None:
        """Drop generations that nobody reads any more; a cache stays for the next prompt that begins the same way."""
        with self._changed:
            self._waiting = [s for s in self._waiting if not s.abandoned]
        self._active = [s for s in self._active if not s.abandoned]
        owners = {id(s.slot) for s in self._active}
        for slot in self._slots:
            if slot.busy and id(slot) not in owners:
                slot.busy, slot.last_used = False, time.monotonic()

    def _decode(self, runs: list[tuple[Sequence, list[int]]]) -> None:
        started = time.perf_counter()
        batch = []
        for sequence, tokens in runs:
            assert sequence.slot
            at_end = len(sequence.slot.cached) + len(tokens) == len(sequence.tokens)
            batch.append((sequence.slot.seq_id, len(sequence.slot.cached), tokens, int(at_end)))
        future: Future[bool] = self._decoder.submit(self.context.decode, batch)
        try:
            finished = future.result()
        except BaseException as error:
            # Ctrl-C while llama.cpp computes, or its failure: stop it, and trust nothing of this batch.
            self.context.abort()
            future.exception()
            self._undo(runs)
            if isinstance(error, Exception):
                for sequence, _ in runs:
                    sequence.error = error
            raise
        if not finished:
            self._undo(runs)
            raise EngineError("decoding was aborted")
        elapsed = time.perf_counter() - started
        for sequence, tokens in runs:
            assert sequence.slot
            sequence.slot.cached += tokens
            if sequence.n_generated:
                sequence.timings.generate_s += elapsed
            else:
                sequence.timings.prompt_s += elapsed

    def _undo(self, runs: list[tuple[Sequence, list[int]]]) -> None:
        for sequence, _ in runs:
            assert sequence.slot
            n = len(sequence.slot.cached)
            if not self.context.forget(sequence.slot.seq_id, n):
                self.context.forget(sequence.slot.seq_id, 0)
                sequence.slot.cached.clear()

    def _sample(self, runs: list[tuple[Sequence, list[int]]]) -> None:
        at = -1
        for sequence, tokens in runs:
            at += len(tokens)
            if sequence.pending:
                continue  # its prompt goes on in the next batch
            try:
                self._advance(sequence, at)
            except EngineError as error:
                sequence.error = error
            if sequence.finish_reason or sequence.error:
                self._active.remove(sequence)

    def _advance(self, sequence: Sequence, at: int) -> None:
        """Choose the next token from the logits of the batch's token `at`, and add what the grammar forces after it."""
        matcher, timings = sequence.matcher, sequence.timings
        if matcher:
            started = time.perf_counter()
            if not sequence.n_generated and self._opening(sequence, matcher):
                return
            matcher.mask(self.context.logits(at, self.vocabulary.n_tokens))
            timings.mask_s += time.perf_counter() - started
        started = time.perf_counter()
        token = sequence.sampler.sample(self.context, at)
        timings.sample_s += time.perf_counter() - started
        timings.n_steps += 1
        if token in self.vocabulary.eog:
            self._emit(sequence, [], "stop")
            return
        new = [token]
        if matcher:
            matcher.consume(new)
            if self.config.jump_forward:
                new += self._follow(sequence, matcher)
            if self._too_late(sequence, matcher, new):
                return
        self._emit(sequence, new, self._why_end(sequence, matcher, len(new)))

    def _opening(self, sequence: Sequence, matcher: Matcher) -> bool:
        """Tokens that are forced before anything was sampled; True if they were taken instead of sampling."""
        sequence.way_out = matcher.way_out() if sequence.n_left <= _CLOSING_ZONE else None
        if not self.config.jump_forward:
            return False
        new = self._follow(sequence, matcher)
        if new:
            self._emit(sequence, new, self._why_end(sequence, matcher, len(new)))
        return bool(new)

    def _follow(self, sequence: Sequence, matcher: Matcher) -> list[int]:
        forced = matcher.forced()
        if forced:
            matcher.consume(forced)
            for token in forced:
                sequence.sampler.accept(token)
        return forced

    def _too_late(self, sequence: Sequence, matcher: Matcher, new: list[int]) -> bool:
        """Near the end of the budget: if the grammar could no longer be closed after `new`, close it now instead."""
        left = sequence.n_left - len(new)
        if left > _CLOSING_ZONE:
            return False
        before, sequence.way_out = sequence.way_out, matcher.way_out()
        if sequence.way_out is None or len(sequence.way_out) <= left:
            return False  # it can still be closed later (or no way out was found: then the budget simply ends)
        if before is None or len(before) > sequence.n_left:
            return False
        self._emit(sequence, before, "stop" if before else "length")
        return True

    def _why_end(self, sequence: Sequence, matcher: Matcher | None, n_new: int) -> str | None:
        if matcher and matcher.must_end and n_new <= sequence.n_left:
            return "stop"
        return "length" if n_new >= sequence.n_left else None

    def _emit(self, sequence: Sequence, tokens: list[int], finish_reason: str | None) -> None:
        tokens = tokens[: sequence.n_left]
        sequence.tokens += tokens
        sequence.timings.n_generated = sequence.n_generated
        sequence.finish_reason = finish_reason
        sequence.out.append(Step(tuple(tokens), self.vocabulary.bytes_of(tokens), finish_reason))


def _gpu_layers(wanted: int | None) -> int:
    if native.supports_gpu():
        return 999 if wanted is None or wanted < 0 else wanted
    if wanted:
        warnings.warn(
            f"n_gpu_layers = {wanted} has no effect: this build of llama.cpp has no GPU back end "
            "(scripts/run --gpu cuda|vulkan|metal installs one)",
            stacklevel=4,
        )
    return 0


def describe(engine: Engine) -> dict[str, Any]:
    """Facts of a loaded engine, for reports."""
    return {
        "model": engine.model.description,
        "n_params": engine.model.n_params,
        "size_bytes": engine.model.size_bytes,
        "n_ctx": engine.n_ctx,
        "n_threads": engine.n_threads,
        "n_gpu_layers": engine.n_gpu_layers,
        "device": engine.device,
        "kv_bytes": engine.kv_size_bytes,
        "system_info": native.system_info(),
    }
