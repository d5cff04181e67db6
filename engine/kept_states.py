"""A conversation's KV state in a file of its own: what a later process continues from, where its owner put it.

Unlike the store of prompts' beginnings it holds what was said, so it is written only when its owner asks for it. A
state is true of its tokens whatever becomes of the conversation: a prompt uses as much of it as it begins with. Knows
tokens, slots and files; not what the note beside them says.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .config import EngineConfig
from .errors import StateFileError
from .gguf import GGUFFile
from .native import NativeContext
from .prefixes import Stamps, file_stamps, state_key
from .slots import Slots
from .state_file import DamagedError, StateKey, file_parts, read_file, write_file


class Held(NamedTuple):
    """What the cache holds of a prompt.

    Args:
        tokens: the first ones of the prompt.
        state: llama.cpp's bytes for them.
    """

    tokens: list[int]
    state: bytearray


class KeptStates:
    """Copies states out of one context's slots into files, and back.

    Args:
        header, stamps, config, n_gpu_layers: what was loaded, and how.
        context, slots: the cache. Only `copy` and `put` touch them; they belong into the thread that decodes.
        kv_size_bytes: of the whole cache.
    """

    def __init__(
        self,
        header: GGUFFile,
        stamps: Stamps,
        config: EngineConfig,
        n_gpu_layers: int,
        context: NativeContext,
        slots: Slots,
        kv_size_bytes: int,
    ) -> None:
        self._header, self._stamps, self._config, self._n_gpu_layers = header, stamps, config, n_gpu_layers
        self._context, self._slots = context, slots
        self._bytes_per_token = max(1, kv_size_bytes // context.n_ctx)

    @cached_property
    def _key(self) -> StateKey | None:
        """What states are of; None if the model's files have changed since they were loaded."""
        if self._stamps != file_stamps(self._header):
            return None
        return state_key(self._header, self._config, self._context.n_ctx, self._n_gpu_layers)

    def copy(self, tokens: list[int], most_bytes: int) -> Held:
        """The longest beginning of `tokens` that a slot holds and that fits into so many bytes."""
        slot = max(self._slots, key=lambda s: s.shared_with(tokens))
        n = min(slot.shared_with(tokens), most_bytes // self._bytes_per_token)
        state = self._context.state(slot.seq_id, n) if n else None
        return Held([], bytearray()) if state is None else Held(tokens[:n], state)

    def put(self, held: Held) -> int:
        """Put a state into an idle slot; returns its tokens, or 0 if it does not fit."""
        fits = bool(held.tokens) and self._slots.adopt(held.tokens, held.state)
        return len(held.tokens) if fits else 0

    def write(self, path: Path, held: Held, note: bytes) -> None:
        """Write a state and a note; `path` is the old file or the whole new one, whatever happens. Raises OSError."""
        if self._key is None:
            raise OSError(0, "the model's file has changed since it was loaded")
        name = str(self._header.metadata.get("general.name") or self._header.path.stem)
        parts = file_parts(self._key, np.asarray(held.tokens, dtype=np.int32), held.state, name, note)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.unlink(missing_ok=True)  # of a killed process; or somebody else's link
        try:
            write_file(temporary, parts)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, path: Path) -> tuple[Held, bytes]:
        """A state and its note, all checked. Raises FileNotFoundError, StateFileError."""
        if self._key is None:
            raise StateFileError(f"{path} cannot be used: the model's file has changed since it was loaded")
        try:
            saved = read_file(path, self._key)
        except FileNotFoundError:
            raise
        except DamagedError as error:
            raise StateFileError(f"{path} cannot be used: it is {error}") from error
        except OSError as error:
            raise StateFileError(f"{path} cannot be read: {error.strerror or error}") from error
        return Held([int(t) for t in saved.held], saved.state), saved.note
