"""A GGUF in memory that generates tokens.

`step` decodes one batch for all active generations; `generate` is one of them, from its caller's thread. There is no
background scheduler: whichever caller finds nothing to read takes the lock and runs the next step for everybody. It
knows tokens and text; not messages, templates or tools.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Tokens
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from . import native
from .between_steps import look_up
from .config import EngineConfig, SamplingParams
from .drafting import Drafter, Payoff
from .errors import ContextError, EngineError
from .gguf import GGUFFile, kv_bytes, read_gguf
from .grammar import Grammar
from .guide import Guide
from .hardware import n_threads
from .kept_states import KeptStates
from .matcher import Matcher
from .memory import DEFAULT_N_CTX, ELEMENT_BYTES, available_bytes, check_memory, fitted
from .prefixes import Prefixes, StateCopy, file_stamps
from .sequence import Sequence, Step
from .slots import Slots, shared_prefix
from .stepper import Stepper
from .vocabulary import Vocabulary
from .writer import Writer

T = TypeVar("T")

#: Most bytes of a state in a file of its own.
MOST_STATE_BYTES = 1_000_000_000
_CLOSED = "the engine is closed"
_DRAFT_MAX = 15  # with the token in front a batch of 16, which costs little more than one of 8 (docs/log.md)


class _Run(NamedTuple):
    """A generation's part of a batch: tokens that are its own, and a draft of those behind them."""

    sequence: Sequence
    tokens: list[int]
    draft: list[int]


class Engine:
    """A loaded model. Make one with `load`; use it as a context manager or `close` it. Thread safe."""

    def __init__(self, path: Path, header: GGUFFile, config: EngineConfig) -> None:
        self.path = path
        self.metadata = header.metadata
        self.config = config
        self.n_threads = config.n_threads or n_threads()
        self.n_gpu_layers = _gpu_layers(config.n_gpu_layers)
        stamps = file_stamps(header)
        guide = Guide.of(header.metadata)  # while llama.cpp loads the weights, which needs no Python
        self.model = native.NativeModel(path, self.n_gpu_layers, config.use_mmap)
        trained = self.model.n_ctx_train
        n_ctx = DEFAULT_N_CTX if config.n_ctx is None else config.n_ctx
        n_ctx = min(n_ctx or trained, trained) if trained else n_ctx
        self.context = native.NativeContext(
            self.model,
            config,
            n_ctx=n_ctx,
            threads=self.n_threads,
            threads_batch=config.n_threads_batch or self.n_threads,
        )
        self.vocabulary = Vocabulary(self.model, header.metadata, guide)
        self._prefixes = Prefixes.open(header, stamps, config, self.model, self.context, self.n_gpu_layers)
        self._copy: StateCopy | None = None
        self._slots = Slots(self.context, config.n_seq_max, self._prefixes)
        self._kept = KeptStates(
            header, stamps, config, self.n_gpu_layers, self.context, self._slots, self.kv_size_bytes
        )
        self._writer = Writer(self.context, self.vocabulary)
        self._payoff = Payoff()
        self._active: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._waiting_lock = Lock()
        self._lock = Lock()  # held by the reader who runs the next step
        # One thread runs all steps: llama.cpp's OpenMP team belongs to the thread that calls it, and a team for each
        # caller would leave spinning threads behind. Ctrl-C never comes to it, so that a step is done whole or undone.
        self._stepper = Stepper(self.context.abort)
        self._closed = self._freed = False

    @classmethod
    def load(cls, path: str | Path, config: EngineConfig | None = None, *, memory_bytes: int | None = None) -> Engine:
        """Load a GGUF file.

        Args:
            path: the file; of a split model, its first part.
            config: how to load it.
            memory_bytes: the memory that it may take; None for what there is. Weights on a GPU are not judged.

        Raises:
            BadModelFileError: no GGUF, or a damaged or incomplete one.
            BackendError: it does not fit in memory, or llama.cpp could not load it.
        """
        path, config = Path(path), config or EngineConfig()
        header = read_gguf(path)
        if config.n_gpu_layers == 0 or not native.supports_gpu():
            memory_bytes = available_bytes() if memory_bytes is None else memory_bytes
            config = fitted(header, config, memory_bytes)
            check_memory(header, config, memory_bytes)
        return cls(path, header, config)

    def __repr__(self) -> str:
        how = "closed" if self._closed else f"{self.n_ctx:,} tokens of context, {self.device}"
        return f"<Engine {self.path.name}, {how}>"

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; generations under way end with an error, a prefix is saved to its end. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.context.abort()
        try:
            if self._prefixes:
                self._prefixes.finish()
        finally:
            self._free()

    def _free(self) -> None:
        with self._lock:
            self._freed = True
            self._stepper.close()
            with self._waiting_lock:
                for sequence in [*self._active, *self._waiting]:
                    sequence.error = EngineError(_CLOSED)
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
        k, v = ELEMENT_BYTES[self.config.type_k], ELEMENT_BYTES[self.config.type_v]
        return kv_bytes(self.metadata, self.n_ctx, k, v)

    def tokenize(self, text: str | Iterable[str]) -> list[int]:
        """Tokens of a prompt; see `Vocabulary.tokenize`."""
        return self.vocabulary.tokenize(text)

    def detokenize(self, tokens: Iterable[int]) -> str:
        """Text of tokens."""
        return self.vocabulary.detokenize(tokens)

    # -- conversations kept in files ------------------------------------------------------------------------------

    def save_state(
        self, path: str | Path, tokens: Tokens[int], note: bytes = b"", *, most_bytes: int = MOST_STATE_BYTES
    ) -> int:
        """Write what the cache holds of a prompt to a file of its owner's, so that another process need not compute it.

        Args:
            path: the file; it is the old one or the whole new one, whatever happens. Only the user can read it.
            tokens: the prompt.
            note: anything; it comes back with the state.
            most_bytes: most bytes of keys and values; what would be more is left out at the end.

        Returns:
            How many of the tokens it holds: those at the start that are in the cache. 0 where the model's states cannot
            be cut (recurrent layers, sliding windows); the note is saved all the same.

        Raises:
            OSError: it cannot be written.
            EngineError: the engine is closed.
        """
        held = self._between_steps(lambda: self._kept.copy(list(tokens), most_bytes))
        self._kept.write(Path(path), held, note)
        return len(held.tokens)

    def load_state(self, path: str | Path) -> tuple[int, bytes]:
        """Put a state that was saved into the cache, for the next prompt that begins with its tokens.

        Returns:
            How many tokens that are, 0 if there is no room for them at present; and the note.

        Raises:
            FileNotFoundError: there is no such file.
            StateFileError: it is damaged, not readable, or of another model, build or cache type.
            EngineError: the engine is closed.
        """
        held, note = self._kept.read(Path(path))
        return self._between_steps(lambda: self._kept.put(held, sum(s.n_reserved for s in self._active))), note

    def _between_steps(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread that decodes, when the step under way is over."""
        results: list[T] = []

        def run() -> int:
            self._reap()  # what has ended leaves its slot
            if self._copy:  # before its cells are another's
                self._copy.make()
                self._copy = None
            results.append(work())
            return 0

        with self._lock:
            if self._closed:
                raise EngineError(_CLOSED)
            self._stepper.run(run)
        return results[0]

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
        return self.read(self.prepare(tokens, sampling, grammar, max_tokens))

    def prepare(
        self,
        tokens: Tokens[int],
        sampling: SamplingParams | None = None,
        grammar: Grammar | None = None,
        max_tokens: int | None = None,
        *,
        n_shareable: int = 0,
    ) -> Sequence:
        """Check a generation; arguments as for `generate`. It queues when it is first `read`.

        `n_shareable` tokens at the start of the prompt may be saved on disk, and loaded from there: what any prompt may
        begin with, a system prompt and tools.
        """
        if self._closed:
            raise EngineError(_CLOSED)
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
        with self.model.in_use():  # the grammar's tables call llama.cpp's tokenizer
            sequence = Sequence(
                tokens,
                native.NativeSampler(params, seed & 0xFFFFFFFF, self.vocabulary.n_tokens),
                Matcher(grammar, self.vocabulary) if grammar else None,
                min(max_tokens or room, room),
            )
        sequence.n_shareable = n_shareable
        sequence.n_logprobs = params.n_logprobs
        # A forced token's logits are never read; who asks for each token's probability has each one decoded by itself.
        sequence.jump_forward = self.config.jump_forward and params.n_logprobs is None
        most = _DRAFT_MAX if self.config.draft_max is None else self.config.draft_max
        if most:
            sequence.drafter = Drafter(sequence.tokens, most)
        return sequence

    def read(self, sequence: Sequence) -> Iterator[Step]:
        """The steps of a prepared generation; closing the iterator ends it."""
        try:
            with self._waiting_lock:
                self._waiting.append(sequence)
            while True:
                # Asked before the steps are read: none may come in between and be lost.
                ended = bool(sequence.finish_reason or sequence.error)
                while sequence.out:
                    yield sequence.out.popleft()
                if sequence.error:
                    raise sequence.error
                if ended:
                    return
                with self._lock:
                    if not (sequence.out or sequence.finish_reason or sequence.error):
                        self.step()
                look_up()
        finally:
            # Only a flag: this may run in the garbage collector, in a thread that is in the middle of a step.
            sequence.abandoned = True

    def step(self) -> int:
        """Decode one batch for all active generations and choose each one's next token; return how many took part.

        Call it with the lock held, as `generate` does. Ctrl-C stops the batch, whose tokens then count as not decoded.

        Raises:
            EngineError: the engine is closed.
        """
        self.context.allow()
        if self._closed:
            raise EngineError(_CLOSED)
        return self._stepper.run(self._step)

    def _step(self) -> int:
        self._reap()
        self._admit()
        runs = self._next_batch()
        if not runs:
            if not self._suspend():
                time.sleep(0.001)  # every reader is behind; let them read
            return 0
        if self._decode(runs):
            self._sample(runs)
        return len(runs)

    def _next_batch(self) -> list[_Run]:
        """Whose turn it is, each with the tokens to decode."""
        runs = []
        budget = self.context.n_batch
        # Generations that only need a token go first: a long prompt must not hold them up.
        for sequence in sorted(self._active, key=lambda s: len(s.pending)):
            pending = sequence.pending[:budget]
            if pending and not sequence.is_behind:
                budget -= len(pending)
                runs.append(_Run(sequence, pending, []))
        if len(runs) == 1 and budget:  # several generations fill the batch by themselves
            runs = [runs[0]._replace(draft=self._draft(runs[0].sequence, budget))]
        return runs

    def _draft(self, sequence: Sequence, n_most: int) -> list[int]:
        """What may come behind a generation's tokens, as far as its grammar and budget let it; mostly nothing."""
        pays = self._payoff.pays or self.config.draft_max is not None
        if not (sequence.drafter and sequence.n_generated and self._slots.can_forget_tails and pays):
            return []
        # Where a value begins, neither what the grammar put in nor a quotation mark says anything about it.
        if sequence.ends_forced or not self.vocabulary.is_word(sequence.tokens[-1]):
            return []
        draft = sequence.drafter.propose()[: min(n_most, sequence.n_left - 1)]
        end = next((i for i, token in enumerate(draft) if token in self.vocabulary.eog), len(draft))
        return sequence.matcher.allowed_prefix(draft[:end]) if sequence.matcher else draft[:end]

    def _admit(self) -> None:
        """Give waiting generations a slot, first come first served, as long as the cache can hold them to their end."""
        with self._waiting_lock:
            while sequence := next((s for s in self._waiting if not s.is_behind), None):
                reserved = sum(s.n_reserved for s in self._active)
                if not self._slots.any_idle or (self._active and reserved + sequence.n_reserved > self.n_ctx):
                    return
                self._waiting.remove(sequence)
                if self._copy:  # before its cells are another prompt's
                    self._copy.make()
                    self._copy = None
                self._slots.place(sequence, reserved)
                self._active.append(sequence)

    def _suspend(self) -> bool:
        """Send a generation that nobody reads at present back to the queue, where others wait for its slot.

        Without it, who starts a second generation while reading a first one would wait for ever. Nothing is lost: it
        continues in the next free slot, from its tokens.
        """
        with self._waiting_lock:
            if not any(not s.is_behind for s in self._waiting):
                return False
            sequence = next((s for s in self._active if s.is_behind), None)
            if not sequence:
                return False
            self._active.remove(sequence)
            self._waiting.append(sequence)
            sequence.slot = None
            return True

    def _reap(self) -> None:
        """Drop generations that nobody reads any more; a cache stays for the next prompt that begins the same way."""
        with self._waiting_lock:
            self._waiting = [s for s in self._waiting if not s.abandoned]
        for sequence in [s for s in self._active if s.abandoned or s.error]:
            self._retire(sequence)
        self._slots.release(self._active)

    def _decode(self, runs: list[_Run]) -> bool:
        """Decode a batch; False if it was stopped or failed, and nothing of it counts."""
        started = time.perf_counter()
        batch = []
        for sequence, tokens, draft in runs:
            assert sequence.slot
            n_cached = len(sequence.slot.cached)
            at_end = n_cached + len(tokens) == len(sequence.tokens)
            batch.append((sequence.slot.seq_id, n_cached, tokens + draft, 1 + len(draft) if at_end else 0))
        try:
            finished = self.context.decode(batch)
        except EngineError as error:
            finished = False
            for run in runs:
                run.sequence.error = error
        if not finished:
            for run in runs:
                assert run.sequence.slot
                self._slots.forget(run.sequence.slot, len(run.sequence.slot.cached))
            return False
        elapsed = time.perf_counter() - started
        for sequence, tokens, draft in runs:
            assert sequence.slot
            sequence.slot.cached += tokens + draft
            sequence.timings.count(elapsed, generating=sequence.n_generated > 0)
        if len(runs) == 1 and len(runs[0].tokens) == 1:
            self._payoff.begin(elapsed, drafted=bool(runs[0].draft))
        return True

    def _sample(self, runs: list[_Run]) -> None:
        at = -1
        for sequence, tokens, draft in runs:
            at += len(tokens)
            if not sequence.pending:  # else its prompt goes on in the next batch
                try:
                    n_right = self._advance(sequence, at, draft)
                    self._payoff.end(1 + n_right)
                except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to this generation's reader
                    sequence.error = error
                if sequence.finish_reason or sequence.error:
                    self._retire(sequence)
            at += len(draft)

    def _advance(self, sequence: Sequence, at: int, draft: list[int]) -> int:
        """Choose tokens from the logits of the batch's token `at` and of the draft behind it, as long as the draft is
        what was chosen; return how much of it was."""
        n_before, n_right = len(sequence.tokens), 0
        sequence.timings.n_steps += 1
        while True:
            self._writer.advance(sequence, at + n_right)
            new = sequence.tokens[n_before:]
            n_right = shared_prefix(draft, new)
            if sequence.finish_reason or n_right < len(new):
                break
        if draft:
            assert sequence.slot and sequence.drafter
            self._slots.forget(sequence.slot, n_before + n_right)
            sequence.drafter.learn(len(draft), n_right)
            sequence.timings.n_drafted += len(draft)
            sequence.timings.n_accepted += n_right
        return n_right

    def _retire(self, sequence: Sequence) -> None:
        self._active.remove(sequence)
        sequence.sampler.close()
        slot, n = sequence.slot, sequence.n_shareable
        if self._prefixes and slot and 0 < n <= len(slot.cached):
            tokens = slot.cached[:n]
            if self._prefixes.wants(tokens):
                copy = self._copy = StateCopy(self.context, slot, tokens)
                self._prefixes.save(tokens, lambda: self._state_of(copy))

    def _state_of(self, copy: StateCopy) -> bytearray | None:
        """The state that was to be copied; waits for the step under way."""
        with self._lock:
            if not self._freed:
                self._stepper.run(copy.make)
            if self._copy is copy:
                self._copy = None
        return copy.state


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
