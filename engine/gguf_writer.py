"""Writing a GGUF file: metadata, tensor table, then the tensors one after another.

Knows the container's layout only; what a key or a tensor means to a model is the caller's business. The format:
docs/gguf.md of the ggml project, version 3, little-endian.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .gguf import DEFAULT_ALIGNMENT
from .gguf_types import TENSOR_TYPES

_NUMBER_OF = {tensor_type.name: number for number, tensor_type in TENSOR_TYPES.items()}
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


class TensorSpec(NamedTuple):
    """A tensor to be written: its shape in ggml's order (fastest first) and the name of its type, such as "Q8_0"."""

    name: str
    shape: tuple[int, ...]
    type: str

    @property
    def size_bytes(self) -> int:
        """Bytes of its data."""
        kind = TENSOR_TYPES[_NUMBER_OF[self.type]]
        return math.prod(self.shape) // kind.block_size * kind.block_bytes


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Sequence[TensorSpec],
    data: Iterable[bytes | memoryview],
) -> int:
    """Write a file; it stands under its name only when it is whole.

    Args:
        path: where.
        metadata: str, bool, int (written as uint32), float (float32), or lists of str, or of int (int32).
        tensors: the table.
        data: the tensors' bytes in the table's order, each of its `size_bytes`.

    Returns:
        The size of the file in bytes.

    Raises:
        ValueError: a tensor's data has another size than its shape and type say.
        OSError: it cannot be written.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(_header(metadata, tensors))
            _pad(file)
            for spec, content in zip(tensors, data, strict=True):
                if len(content) != spec.size_bytes:
                    raise ValueError(f"{spec.name} has {len(content)} bytes, {spec.type} {spec.shape} takes others")
                file.write(content)
                _pad(file)
            file.flush()
            size_bytes = file.tell()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return size_bytes


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % DEFAULT_ALIGNMENT))


def _header(metadata: Mapping[str, Any], tensors: Sequence[TensorSpec]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), *_value(value)]
    offset = 0
    for spec in tensors:
        parts += [
            _text(spec.name),
            struct.pack("<I", len(spec.shape)),
            struct.pack(f"<{len(spec.shape)}Q", *spec.shape),
        ]
        parts.append(struct.pack("<IQ", _NUMBER_OF[spec.type], offset))
        offset += spec.size_bytes + -spec.size_bytes % DEFAULT_ALIGNMENT
    return b"".join(parts)


def _text(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> Iterator[bytes]:
    if isinstance(value, bool):
        yield struct.pack("<IB", _BOOL, value)
    elif isinstance(value, int):
        yield struct.pack("<II", _UINT32, value)
    elif isinstance(value, float):
        yield struct.pack("<If", _FLOAT32, value)
    elif isinstance(value, str):
        yield struct.pack("<I", _STRING) + _text(value)
    elif value and isinstance(value[0], str):
        yield struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
    else:
        yield struct.pack(f"<IIQ{len(value)}i", _ARRAY, _INT32, len(value), *value)
