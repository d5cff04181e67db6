"""The header of a GGUF file: metadata and tensor table, read within bounds and without the native library.

Knows nothing of llama.cpp, of tokens or of what the numbers mean to a model. It exists because the native
loader answers a Git LFS pointer or half a download with "invalid magic" or a crash; here each has its own
sentence.
The format: docs/gguf.md of the ggml project, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import BadModelFileError
from .gguf_reader import MAX_DIMS, MAX_NAME_BYTES, MAX_PAIRS, MAX_TENSORS, HeaderReader
from .gguf_rules import broken_rules
from .gguf_types import TENSOR_TYPES

DEFAULT_ALIGNMENT = 32
_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_HEADS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive (a wheel, or PyTorch weights)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGJT file from before GGUF"),
    (b"algg", "a GGLA adapter from before GGUF"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` in ggml's order (fastest first), `offset_bytes` from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset_bytes: int
    size_bytes: int | None
    """None for a type newer than `TENSOR_TYPES`."""


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What the header says. String arrays are `list[bytes]`, numeric arrays `array.array`, bools in 'B'."""

    path: Path
    metadata: dict[str, Any] = field(repr=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)
    data_offset: int
    size_bytes: int
    version: int


def read_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Read the header of `path`: its metadata and tensor table. The weights are not touched.

    Raises `BadModelFileError` naming the fault: missing, empty, a Git LFS pointer, a web page, text, another
    format, an old or big-endian GGUF, a damaged header, or a download that stopped before the last tensor.
    """
    path = Path(path)
    check_head(path)
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(HeaderReader(path, data, size_bytes))
    except OSError as error:
        raise BadModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def check_head(path: str | os.PathLike[str]) -> None:
    """Look at the first bytes of `path` and raise `BadModelFileError` unless they are a GGUF's."""
    path = Path(path)
    try:
        if path.is_dir():
            raise BadModelFileError(f"{path} is a folder; name the .gguf file in it.")
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise BadModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if head[:4] == b"GGUF" and len(head) >= 24:
        version = int.from_bytes(head[4:8], "little")
        if version in (2, 3):
            return
        if version & 0xFFFF == 0:
            raise BadModelFileError(
                f"{path} is a big-endian GGUF; expected a little-endian one. Fetch the usual build."
            )
        raise BadModelFileError(f"{path} is GGUF version {version}; versions 2 and 3 are read. Fetch a newer build.")
    raise BadModelFileError(f"{path} is {_what_is(head, path)}, not a GGUF model. Fetch the model file itself.")


def _what_is(head: bytes, path: Path) -> str:
    if not head:
        return "empty"
    if head.startswith(b"version https://git-lfs"):
        size = re.search(rb"\nsize (\d+)", head)
        wanted = f" to a file of {int(size[1]):,} bytes" if size else ""
        return f"a Git LFS pointer{wanted} (`git lfs pull` fetches it)"
    lowered = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if lowered.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page (a login page, or a /blob/ address where /resolve/ was meant)"
    if lowered.startswith((b"<?xml", b"{", b"[")) and b"\0" not in head:
        return "a text file (XML or JSON, perhaps a server's error message)"
    if head[:4] == b"GGUF":
        return f"only {path.stat().st_size} bytes of a GGUF (an incomplete download)"
    for magic, name in _HEADS:
        if head.startswith(magic):
            return name
    if head[8:10] == b'{"':
        return "a safetensors file"
    if not re.search(rb"[^\t\n\r\x20-\x7e\x80-\xff]", head):
        return "a text file"
    if not head.strip(b"\0"):
        return "filled with zero bytes (an incomplete download)"
    return f"a file that begins with {head[:4]!r} instead of b'GGUF'"


def _read(reader: HeaderReader) -> GGUFFile:
    version = reader.number("<I", "the version")
    n_tensors = reader.count(MAX_TENSORS, "the number of tensors")
    n_pairs = reader.count(MAX_PAIRS, "the number of metadata pairs")
    metadata: dict[str, Any] = {}
    for _ in range(n_pairs):
        key = reader.text(MAX_NAME_BYTES, "a metadata key")
        if key in metadata:
            reader.fail(f"the metadata key {key!r} appears twice")
        metadata[key] = reader.value(reader.number("<I", key), key)
    _check_split(reader, metadata)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        reader.fail(f"general.alignment is {alignment!r}, expected a power of two")
    rows = [_tensor_row(reader, alignment) for _ in range(n_tensors)]
    data_offset = -(-reader.pos // alignment) * alignment
    tensors = tuple(
        TensorInfo(name, shape, kind, data_offset + offset, size) for name, shape, kind, offset, size in rows
    )
    if len({tensor.name for tensor in tensors}) != n_tensors:
        reader.fail("two tensors have the same name")
    needed = max((tensor.offset_bytes + (tensor.size_bytes or 0) for tensor in tensors), default=0)
    if needed > reader.size_bytes:
        raise BadModelFileError(
            f"{reader.path} is truncated: its tensors need {needed:,} bytes and the file has "
            f"{reader.size_bytes:,}. The download is incomplete; fetch the file again."
        )
    for broken in broken_rules(metadata, tensors):
        reader.fail(broken)
    return GGUFFile(reader.path, metadata, tensors, data_offset, reader.size_bytes, version)


def _tensor_row(reader: HeaderReader, alignment: int) -> tuple[str, tuple[int, ...], str, int, int | None]:
    name = reader.text(MAX_NAME_BYTES, "a tensor name")
    n_dims = reader.number("<I", name)
    if n_dims > MAX_DIMS:
        reader.fail(f"tensor {name!r} has {n_dims} dimensions, expected at most {MAX_DIMS}")
    shape = tuple(reader.number("<Q", name) for _ in range(n_dims))
    kind = TENSOR_TYPES.get(number := reader.number("<I", name))
    offset = reader.number("<Q", name)
    n_elements = math.prod(shape)
    if n_elements >= 2**63:
        reader.fail(f"tensor {name!r} has the impossible shape {shape}")
    if offset % alignment:
        reader.fail(f"tensor {name!r} begins at {offset:,}, not a multiple of the alignment {alignment}")
    if kind is None:
        return name, shape, f"type {number}", offset, None
    if shape and shape[0] % kind.block_size:
        reader.fail(f"tensor {name!r} has rows of {shape[0]}, not a multiple of {kind.name}'s {kind.block_size}")
    return name, shape, kind.name, offset, n_elements // kind.block_size * kind.block_bytes


def _check_split(reader: HeaderReader, metadata: Mapping[str, Any]) -> None:
    """A part of a split model carries its number in its name too: llama.cpp finds the siblings by name."""
    count = metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return
    number = metadata.get("split.no", -1)
    expected = f"-{number + 1:05d}-of-{count:05d}.gguf"
    if not reader.path.name.lower().endswith(expected):
        reader.fail(f"it is part {number + 1} of a model split in {count}, so its name must end in {expected}")


def shard_paths(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """All files of the model that `path` belongs to, in order; the first one is the one to load.

    A name without `-00001-of-0000N` is a whole model. Raises `BadModelFileError` naming each missing part.
    Parts stay side by side and are never concatenated.
    """
    path = Path(path)
    match = _SPLIT_NAME.match(path.name)
    if match is None:
        return (path,)
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise BadModelFileError(f"{path.name}: part {number} of {count} cannot be; parts count from 00001.")
    parts = tuple(path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1))
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise BadModelFileError(
            f"{path} is one of {count} parts and these are missing beside it: {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}. Fetch all {count}."
        )
    return parts


def kv_bytes(metadata: Mapping[str, Any], n_ctx: int, bytes_per_k: float = 2.0, bytes_per_v: float = 2.0) -> int:
    """Bytes of the KV cache for a context of `n_ctx` tokens: allocated whole when the model is loaded.

    `bytes_per_k` and `bytes_per_v` are per element: f16 2, q8_0 34/32, q4_0 18/32. An upper bound for models
    with sliding windows or recurrent layers. Raises `BadModelFileError` if the header lacks the shape.
    """
    arch = metadata.get("general.architecture")
    try:
        n_layers = int(metadata[f"{arch}.block_count"])
        n_heads = metadata[f"{arch}.attention.head_count"]
        n_kv_heads = metadata.get(f"{arch}.attention.head_count_kv", n_heads)
        widest = int(max(n_heads)) if isinstance(n_heads, array) else int(n_heads)
        width = metadata[f"{arch}.embedding_length"] // max(widest, 1) if widest else 0
        k_dim = int(metadata.get(f"{arch}.attention.key_length", width))
        v_dim = int(metadata.get(f"{arch}.attention.value_length", width))
        # one number for all layers, or one per layer
        total_kv_heads = sum(n_kv_heads) if isinstance(n_kv_heads, array) else n_layers * int(n_kv_heads)
    except (KeyError, TypeError, ValueError) as error:
        why = f"The header does not tell the model's shape: {error} is missing or odd."
        raise BadModelFileError(why) from error
    return math.ceil(total_kv_heads * (k_dim * bytes_per_k + v_dim * bytes_per_v) * n_ctx)
