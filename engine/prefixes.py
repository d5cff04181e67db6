"""Prompts' beginnings that outlive the process: what an engine loads from the store, and what it saves there.

A state is copied out of the context after an answer and written by a thread of its own; one save at a time, and each
beginning once a process. Knows one context and one store; not which part of a prompt may be shared: the caller says.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING

from .config import EngineConfig
from .gguf import GGUFFile, shard_paths
from .native import NativeContext, NativeModel, build_facts
from .prefix_store import MIN_TOKENS, PrefixStore, SavedPrefix
from .state_file import StateKey

if TYPE_CHECKING:
    from .slots import Slot

#: A state is read for this many tokens that need no computing, not for fewer.
_LEAST_GAIN = 32
_SAMPLE_BYTES = 4096
_N_SAMPLES = 16

Stamps = list[tuple[int, int, int]]


class Prefixes:
    """The saved beginnings for one context.

    Args:
        store: where they lie.
        key: what they must be of.
        context: what they are loaded into, and copied from.
        name: the model's, for lists.
    """

    def __init__(self, store: PrefixStore, key: StateKey, context: NativeContext, name: str) -> None:
        self._store, self._key, self._context, self._name = store, key, context, name
        self._known: set[bytes] = set()  # digests of what is saved, as far as this process saw
        self._saving: Thread | None = None
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        header: GGUFFile,
        stamps: Stamps,
        config: EngineConfig,
        model: NativeModel,
        context: NativeContext,
        n_gpu_layers: int,
    ) -> Prefixes | None:
        """The prefixes of a loaded model; None where they are switched off or its states cannot be cut.

        Args:
            stamps: its files' as they were before it was loaded; if they have changed, none can tell what was loaded.
            header, config, model, context, n_gpu_layers: what was loaded, and how.
        """
        if not config.prefix_cache_bytes or not model.has_plain_cells or stamps != file_stamps(header):
            return None
        folder, most = config.prefix_cache_dir, config.prefix_cache_bytes
        store = PrefixStore(folder, most) if folder else PrefixStore.default(most)
        key = state_key(header, config, context.n_ctx, n_gpu_layers)
        return cls(store, key, context, str(header.metadata.get("general.name") or header.path.stem))

    def longest(self, tokens: Sequence[int], n_have: int) -> SavedPrefix | None:
        """The saved state that is worth loading for `tokens`, of which `n_have` need no computing."""
        most = len(tokens) - 1  # the last token is decoded again: a state holds no logits
        if most - n_have < _LEAST_GAIN:
            return None
        return self._store.longest(self._key, tokens[:most], more_than=n_have + _LEAST_GAIN - 1)

    def load(self, saved: SavedPrefix, seq_id: int, n_free: int = 0) -> bool:
        """Put a state into a sequence of the context: all its tokens. False if llama.cpp refused; it is empty then.

        One that is refused although there is room is no state of what its file says, and is removed.

        Args:
            saved: the state.
            seq_id: of the sequence.
            n_free: cells that are free for certain.
        """
        loaded = self._context.restore(seq_id, saved.state, len(saved.tokens))
        if loaded:
            self._remember(saved.tokens)
        elif len(saved.tokens) <= n_free:
            self._store.discard(saved.path, "is not what it says, as llama.cpp finds,")
        return loaded

    def wants(self, tokens: Sequence[int]) -> bool:
        """Whether `tokens` should be saved, as far as this process knows."""
        with self._lock:
            busy = self._saving is not None and self._saving.is_alive()
            return not busy and len(tokens) >= MIN_TOKENS and _digest(tokens) not in self._known

    def save(self, tokens: list[int], copy: Callable[[], bytearray | None]) -> None:
        """Save a state in a thread.

        Args:
            tokens: what it holds.
            copy: called in that thread; gives the state, or None if it is gone.
        """
        thread = Thread(target=self._save, args=(tokens, copy), name="laploop-save")
        with self._lock, contextlib.suppress(RuntimeError):  # no more threads: the next answer tries again
            thread.start()
            self._saving = thread

    def _save(self, tokens: list[int], copy: Callable[[], bytearray | None]) -> None:
        try:
            if self._store.covers(self._key, tokens):
                self._remember(tokens)
            elif (state := copy()) is not None:
                self._store.save(self._key, tokens, state, self._name)
                self._remember(tokens)
        except OSError as error:
            self._remember(tokens)  # once is enough
            warnings.warn(
                f"the beginning of the prompt could not be saved in {self._store.folder} ({error.strerror or error}); "
                "LAPLOOP_CACHE_DIR can name another folder, --prefix-cache 0 switches saving off",
                stacklevel=2,
            )

    def finish(self) -> None:
        """Wait for a save under way."""
        if self._saving:
            self._saving.join()

    def _remember(self, tokens: Sequence[int]) -> None:
        with self._lock:
            self._known.add(_digest(tokens))


class StateCopy:
    """A copy of a prompt's beginning, to be made in the thread that decodes: when it has nothing else to do, or at the
    last moment before the cells are another prompt's.

    Args:
        context: what it is copied out of.
        slot: where the beginning lies.
        tokens: the beginning.
    """

    def __init__(self, context: NativeContext, slot: Slot, tokens: list[int]) -> None:
        self._context, self._slot, self._tokens = context, slot, tokens
        self._made = False
        #: The copy, once it is made; None if the slot held something else by then.
        self.state: bytearray | None = None

    def make(self) -> int:
        """Make the copy if it is not made yet; returns 0."""
        n = len(self._tokens)
        if not self._made and self._slot.cached[:n] == self._tokens:
            self.state = self._context.state(self._slot.seq_id, n)
        self._made = True
        return 0


def _digest(tokens: Sequence[int]) -> bytes:
    return hashlib.blake2b(repr(list(tokens)).encode(), digest_size=16).digest()


def state_key(header: GGUFFile, config: EngineConfig, n_ctx: int, n_gpu_layers: int) -> StateKey:
    """The key of states that this model gives under these settings."""
    arch = header.metadata.get("general.architecture")
    original = header.metadata.get(f"{arch}.rope.scaling.original_context_length", math.inf)
    # Some models turn K by other factors where the context is longer than this (llama-model.cpp, get_rope_factors).
    facts = [*build_facts(), f"n_gpu_layers {n_gpu_layers}", f"long {n_ctx > original}"]
    return StateKey(
        weights_digest(header),
        config.type_k,
        config.type_v,
        config.flash_attn,
        hashlib.blake2b("\n".join(facts).encode(), digest_size=16).hexdigest(),
    )


def file_stamps(header: GGUFFile) -> Stamps:
    """Size, time of writing and time of change in ns of each of a model's files."""
    stats = [part.stat() for part in shard_paths(header.path)]
    return [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]


def weights_digest(header: GGUFFile) -> str:
    """Tells a model's files from all others, without reading gigabytes.

    The whole header, and of each part its size, its times and samples of its bytes. The times make it safe: what was
    written anew has another time, whatever it holds. A copy that has new times counts as another model, which costs one
    prompt's computing.
    """
    digest = hashlib.blake2b(repr(file_stamps(header)).encode(), digest_size=16)
    with header.path.open("rb") as file:
        digest.update(file.read(header.data_offset))
    for part in shard_paths(header.path):
        with part.open("rb") as file:
            last = max(0, os.fstat(file.fileno()).st_size - _SAMPLE_BYTES)
            for i in range(_N_SAMPLES):
                file.seek(last * i // (_N_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
