"""A small whole GGUF of noise, for tests that move files and load none."""

from __future__ import annotations

import random
import struct

HEAD_BYTES = 96


def noise_gguf(size_bytes: int = 200_000, seed: int = 0) -> bytes:
    """One tensor fills the whole rest, so that a missing byte is seen; `size_bytes` is a multiple of 4."""
    n = (size_bytes - HEAD_BYTES) // 4
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, n, 0, 0)
    return head + bytes(HEAD_BYTES - len(head)) + random.Random(seed).randbytes(4 * n)
