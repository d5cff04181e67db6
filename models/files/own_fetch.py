"""A file from anywhere into laploop's own folder: one process fetches, others wait; checked before it has its name.

Sources other than the hub, which has a cache of its own, come through here. Knows no source.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from laploop.engine.errors import BadModelFileError
from laploop.engine.gguf import read_gguf

from .hub_errors import hub_errors
from .part_file import PartFile
from .progress import ProgressFunction
from .store import Store, check_disk_space, write_json
from .transfer import Source, transfer


def fetch_own(
    file: str,
    source: Source,
    host: str,
    store: Store,
    progress: ProgressFunction,
    *,
    size_bytes: int | None = None,
    sha256: str | None = None,
) -> Path:
    """Bring a file to `store.path(file)`, continuing a part of the same file, and return its path.

    Args:
        file: the name in the store, with folders.
        source: where it comes from; a part that came under another validator is dropped.
        host: who is named in errors.
        size_bytes, sha256: what is known of it. Without a hash its header and length must be a whole GGUF's.

    Raises:
        ChecksumError: not the bytes that were expected, which are deleted.
        DiskSpaceError, ModelNotFoundError, ModelUnavailableError: as the names say; the part is kept.
    """
    target = store.path(file)
    with store.lock(file, progress), hub_errors(host, source.name, source.token_variable):
        if target.is_file():  # another process was quicker
            return target
        _same_part(store, file, sha256 or source.validator)
        part_path = store.part(file)
        there_bytes = part_path.stat().st_size if part_path.exists() else 0
        check_disk_space(store.root, (size_bytes or 0) - there_bytes, source.name)
        with PartFile(part_path, progress=progress) as part:
            transfer(source, part, size_bytes, progress)
            part.finish(target, size_bytes, sha256, f"{source.name} as it came from {host}", _gguf_fault)
            store.journal(file).unlink(missing_ok=True)
            store.remember(target, part.sha256())
    return target


def _same_part(store: Store, file: str, version: str | None) -> None:
    """Drop a part unless it is known to be the beginning of this version; note what the part from now on belongs to."""
    journal = store.journal(file)
    try:
        known = json.loads(journal.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if version is None or known != {"version": version}:
        store.part(file).unlink(missing_ok=True)
    write_json(journal, {"version": version})


def _gguf_fault(path: Path) -> str:
    try:
        read_gguf(path)
    except BadModelFileError as error:
        return str(error).replace(f"{path} ", "").rstrip(".")
    return ""


def with_validator(source: Source, headers: Any) -> Source:
    """The source with what the server's headers tell a version of the file by: a strong ETag, else a date."""
    etag = headers.get("ETag", "")
    strong = etag if etag.startswith('"') else None
    return replace(source, validator=strong or headers.get("Last-Modified"))
