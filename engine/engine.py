"""A GGUF in memory that generates tokens.

`step` decodes one batch for all active generations; `generate` is one of them, read from its caller's thread. Steps are
run in a thread of their own, and only while some reader has nothing to read. It knows tokens and text; not messages,
templates or tools.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Tokens
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from . import native
from .between_steps import wait_for
from .config import EngineConfig, SamplingParams
from .drafting import Drafter
from .errors import ContextError, EngineError
from .gguf import GGUFFile, kv_bytes, read_gguf
from .given import check_generation, check_load, check_tokens
from .grammar import Grammar
from .guide import Guide
from .hardware import n_threads
from .kept_states import KeptStates
from .matcher import Matcher
from .memory import DEFAULT_N_CTX, ELEMENT_BYTES, available_bytes, check_memory, fitted
from .prefixes import Prefixes, file_stamps
from .saver import Saver
from .scheduler import Scheduler
from .sequence import Sequence, Step
from .slots import Slots
from .stepper import ClosedError, Stepper
from .vocabulary import Vocabulary

T = TypeVar("T")

#: Most bytes of a state in a file of its own.
MOST_STATE_BYTES = 1_000_000_000
_CLOSED = "the engine is closed"
_DRAFT_MAX = 15  # with the token in front a batch of 16, which costs little more than one of 8 (docs/log.md)


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
        # One thread runs all steps: llama.cpp's OpenMP team belongs to the thread that calls it, and a team for each
        # caller would leave spinning threads behind. Ctrl-C never comes to it, so that a step is done whole or undone.
        self._stepper = Stepper(self.context.abort)
        prefixes = Prefixes.open(header, stamps, config, self.model, self.context, self.n_gpu_layers)
        self._saver = Saver(self.context, prefixes, self._stepper)
        self._slots = Slots(self.context, self.context.n_seq, config.n_seq_max, prefixes)
        self._kept = KeptStates(
            header, stamps, config, self.n_gpu_layers, self.context, self._slots, self.kv_size_bytes
        )
        self._scheduler = Scheduler(
            self.context, self._slots, self.vocabulary, self._saver, always_drafts=config.draft_max is not None
        )
        self._lock = Lock()  # of what follows
        self._signs: list[SimpleQueue[None]] = []  # of readers who wait
        self._is_wanted = False  # a step will be run
        self._closed = False

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
        check_load(path, config)
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
        with self._lock:
            self._closed = True
        self.context.abort()
        try:
            self._saver.finish()
        finally:
            self._stepper.close()
            self._scheduler.fail(EngineError(_CLOSED))
            self._sign()
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

    def clear_cache(self) -> None:
        """Empty the KV cache of what no generation under way needs. It need not be called: what is remembered gives way
        by itself. For measurements."""
        self._between_steps(self._slots.clear)

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
        return self._between_steps(lambda: self._kept.put(held)), note

    def _between_steps(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread that decodes, when the step under way is over."""
        results: list[T] = []

        def run() -> int:
            self._scheduler.reap()  # what has ended leaves its slot
            self._saver.settle()
            results.append(work())
            return 0

        self._check_open()
        try:
            self._stepper.run(run)
        except ClosedError:
            raise EngineError(_CLOSED) from None
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
        self._check_open()
        check_tokens(tokens, self.vocabulary.n_tokens)
        check_generation(sampling, grammar, max_tokens)
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
        sequence.fork_bias = params.fork_bias
        # A forced token's logits are never read; who asks for each token's probability has each one decoded by itself.
        sequence.jump_forward = self.config.jump_forward and params.n_logprobs is None
        most = _DRAFT_MAX if self.config.draft_max is None else self.config.draft_max
        if most:
            sequence.drafter = Drafter(sequence.tokens, most)
        return sequence

    def read(self, sequence: Sequence) -> Iterator[Step]:
        """The steps of a prepared generation; closing the iterator ends it.

        Several may be read at a time, from threads or in turns: each step is one of all of them.
        """
        sign: SimpleQueue[None] = SimpleQueue()
        try:
            with self._lock:
                self._check_open()
                self._scheduler.join(sequence)
            while True:
                # Asked before the steps are read: none may come in between and be lost.
                ended = bool(sequence.finish_reason or sequence.error)
                while sequence.out:
                    yield sequence.out.popleft()
                if sequence.error:
                    raise sequence.error
                if ended:
                    return
                self._want_step(sign)
                try:
                    wait_for(sign)
                except BaseException as error:
                    sequence.abandoned = True  # first: the step that is hurried here must not be followed by another
                    if not isinstance(error, Exception) or (sequence.slot and not sequence.n_generated):
                        self.context.abort()  # a long prompt; others' part of the batch is done again
                    raise
        finally:
            # Only a flag: this may run in the garbage collector, in a thread that is in the middle of a step.
            sequence.abandoned = True

    def _want_step(self, sign: SimpleQueue[None]) -> None:
        """Have a step run, unless one is about to; `sign` is given when a step is over that saw this reader wait."""
        with self._lock:
            self._check_open()
            self._signs.append(sign)
            if not self._is_wanted:
                self._is_wanted = True
                self._stepper.start(self._step)

    def step(self) -> int:
        """Decode one batch for all active generations and choose each one's next token; return how many took part.

        Whoever reads has it called as needed. Ctrl-C stops the batch, whose tokens then count as not decoded.

        Raises:
            EngineError: the engine is closed.
        """
        self._check_open()
        return self._stepper.run(self._step)

    def _step(self) -> int:
        with self._lock:
            self._is_wanted = False
        self.context.allow()
        try:
            return 0 if self._closed else self._scheduler.step()
        except BaseException as error:
            self._scheduler.fail(error)  # readers raise it
            raise
        finally:
            self._sign()

    def _sign(self) -> None:
        """Let readers look at what has come."""
        with self._lock:
            signs, self._signs = self._signs, []
        for sign in signs:
            sign.put(None)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError(_CLOSED)


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
