"""The file of one saved KV state: magic, head, tokens, state, and a digest of it all.

    b"LAPLOOP\\x01", length of the head (uint32), head (JSON: key, n_tokens, note_bytes, state_bytes, model),
    tokens (int32 each), note, state, BLAKE2b-256 of everything before it; all numbers little-endian

Nothing of it is pickled, and nothing is believed before the digest is right. Knows no folder and no other file.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 32
_MAGIC = b"LAPLOOP\x01"
_MOST_HEAD_BYTES = 65_536


class DamagedError(Exception):
    """The file is not what it should be; the text says why."""


@dataclass(frozen=True)
class StateKey:
    """What must be equal for a state to be valid: one field each, so that a file tells what it is of.

    Args:
        weights: digest of the model's files.
        type_k, type_v: types of the KV cache.
        flash_attn: the setting; the layout of V depends on it.
        build: digest of the native library, and of what changes the meaning of its states.
    """

    weights: str
    type_k: str
    type_v: str
    flash_attn: str
    build: str

    @property
    def digest(self) -> str:
        """The name of the folder for such states."""
        return hashlib.blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=16).hexdigest()


class SavedState(NamedTuple):
    """What a file holds.

    Args:
        held: the tokens, (n_tokens,) int32.
        state: llama.cpp's bytes for them.
        note: what the one who saved it put beside them.
    """

    held: NDArray[np.int32]
    state: bytearray
    note: bytes


def file_parts(
    key: StateKey, held: NDArray[np.int32], state: bytes | bytearray, model: str, note: bytes = b""
) -> list[bytes | bytearray]:
    """What a file holds in front of its digest.

    Args:
        key: what the state is of.
        held: its tokens, (n_tokens,) int32.
        state: llama.cpp's bytes.
        model: a name, for lists.
        note: anything.
    """
    facts = {"key": asdict(key), "n_tokens": len(held), "note_bytes": len(note), "state_bytes": len(state)}
    facts["model"] = model
    text = json.dumps(facts).encode()
    return [_MAGIC + struct.pack("<I", len(text)) + text, held.astype("<i4").tobytes(), note, state]


def write_file(path: Path, parts: list[bytes | bytearray]) -> None:
    """Write the parts and their digest to a new file, down to the disk; only the user may read it. Raises OSError, also
    where there is something under that name."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor: the mode is set as the file is made
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError, and DamagedError where it is none: a pipe would wait for a writer."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError("no file")
    return open(descriptor, "rb")  # noqa: PTH123  # a descriptor, which the caller closes


def read_head(file: BufferedReader, size_bytes: int) -> tuple[dict[str, Any], NDArray[np.int32]]:
    """A file's head and its tokens, (n_tokens,) int32; the digest is not looked at. Raises DamagedError."""
    start = file.read(len(_MAGIC) + 4)
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + 4:
        raise DamagedError("no state of this version")
    n_text = struct.unpack("<I", start[len(_MAGIC) :])[0]
    try:
        head = json.loads(file.read(min(n_text, _MOST_HEAD_BYTES)))
        n_tokens, n_note, n_state = head["n_tokens"], head.setdefault("note_bytes", 0), head["state_bytes"]
        _ = head["model"], head["key"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError("damaged") from error
    if not all(isinstance(n, int) and n >= 0 for n in (n_tokens, n_note, n_state)):
        raise DamagedError("damaged")
    if len(start) + n_text + 4 * n_tokens + n_note + n_state + DIGEST_BYTES != size_bytes:
        raise DamagedError("truncated or damaged")
    return head, np.frombuffer(file.read(4 * n_tokens), dtype="<i4").astype(np.int32)


def read_file(path: Path, key: StateKey) -> SavedState:
    """The tokens, the state and the note of a file, all of it checked. Raises DamagedError."""
    with open_file(path) as file:
        facts = os.fstat(file.fileno())
        if hasattr(os, "geteuid") and facts.st_uid not in (os.geteuid(), 0):
            raise PermissionError(0, "it belongs to another user")
        head, held = read_head(file, facts.st_size)
        if head["key"] != asdict(key):
            raise DamagedError("of another model or build")
        note = file.read(head["note_bytes"])
        n_before = file.tell()
        state = bytearray(head["state_bytes"])
        n_read = file.readinto(state)
        stored = file.read(DIGEST_BYTES)
        file.seek(0)
        digest = hashlib.blake2b(file.read(n_before), digest_size=DIGEST_BYTES)
    digest.update(state)
    if n_read != len(state) or digest.digest() != stored:
        raise DamagedError("damaged")
    return SavedState(held, state, note)
