"""Fetching files from the hub into its own cache, where other tools find them too.

huggingface_hub says where a file is, with which token and endpoint, and makes the cache entry. The bytes are
transferred here, because since 2.x it deletes a partial file when a transfer stops: 1.8 GB would begin anew
after every cut. Nothing here knows the catalogue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import ChecksumError, ModelUnavailableError
from .hub_cache import cached_file, repo_folder
from .hub_errors import HUB_TOKEN, hub_errors, within
from .part_file import PartFile
from .progress import ProgressFunction, silent
from .store import Store, check_disk_space, sha256_of
from .transfer import CONNECT_TIMEOUT_S, LIST_TIMEOUT_S, PROBE_TIMEOUT_S, Source, transfer

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file of a repository and what is known of its bytes; None is not known."""

    repo: str
    file: str
    revision: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None


def endpoint_host() -> str:
    """The host that stands for the hub: HF_ENDPOINT's, or the default."""
    from huggingface_hub import constants

    return urlsplit(constants.ENDPOINT).netloc


def probe() -> None:
    """Ask whether the hub answers at all. Raises `ModelUnavailableError` with the reason, within seconds."""
    from huggingface_hub import constants, get_session

    session = get_session()
    timeout = type(session.timeout)(PROBE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    with hub_errors(endpoint_host()):
        # any answer will do, an error page included: it says that there is somebody
        within(PROBE_TIMEOUT_S, lambda: session.head(constants.ENDPOINT, timeout=timeout, follow_redirects=False))


def list_files(repo: str, revision: str | None = None) -> list[str]:
    """The paths of all files in a repository. Raises `ModelNotFoundError` or `ModelUnavailableError`."""
    from huggingface_hub import HfApi

    with hub_errors(endpoint_host(), f"{repo}"):
        return within(LIST_TIMEOUT_S, lambda: HfApi().list_repo_files(repo, revision=revision))


def fetch(wanted: Wanted, store: Store, progress: ProgressFunction = silent) -> Path:
    """Bring one file into the hub's cache, continuing a part of it, and return its path there.

    Size and SHA-256 are checked against what is wanted and what the hub announces. Raises `ChecksumError`,
    `DiskSpaceError`, `ModelNotFoundError` (no such repository or file) or `ModelUnavailableError` (with the
    reason); whatever came is kept beside the blobs and continued next time.
    """
    with store.lock(f"{wanted.repo}/{wanted.file}", progress):
        found = cached_file(wanted.repo, wanted.file, wanted.revision)
        if found is not None and wanted.sha256 is None:  # another process was quicker
            return found
        return _fetch_locked(wanted, store, progress)


def _fetch_locked(wanted: Wanted, store: Store, progress: ProgressFunction) -> Path:
    from huggingface_hub import hf_hub_download, hf_hub_url

    host = endpoint_host()
    what = f"{wanted.repo}/{wanted.file}"
    url = hf_hub_url(wanted.repo, wanted.file, revision=wanted.revision)
    with hub_errors(host, what):
        etag, size_bytes, sha256 = _agree(wanted, _metadata(url), host)
        blobs = repo_folder(wanted.repo) / "blobs"
        blob = blobs / etag
        if blob.exists() and sha256 and sha256_of(blob, progress) != sha256:
            blob.unlink()  # left by some other tool without a snapshot entry, and damaged
        if not blob.exists():
            part_path = blobs / f"{etag}.laploop.part"
            there_bytes = part_path.stat().st_size if part_path.exists() else 0
            check_disk_space(blobs, (size_bytes or 0) - there_bytes, wanted.file)
            with PartFile(part_path, progress=progress) as part:
                transfer(_source(url, Path(wanted.file).name), part, size_bytes, progress)
                part.finish(blob, size_bytes, sha256, f"{wanted.file} as it came from {host}")
        # the blob is there: this only makes the snapshot entry (a link, or a copy where links cannot be made)
        path = Path(hf_hub_download(wanted.repo, wanted.file, revision=wanted.revision))
    if not path.is_symlink() and path.is_file() and blob.exists():
        blob.unlink()  # a file system without links: one copy is enough
    if sha256 is not None:
        store.remember(path, sha256)
    return path


def _source(url: str, name: str) -> Source:
    """The resolve address, not its redirect: the client then drops the token by itself when the host changes."""
    from huggingface_hub import constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return Source(url, name, "hub", headers, token_variable=HUB_TOKEN)


def _metadata(url: str) -> HfFileMetadata:
    from huggingface_hub import get_hf_file_metadata

    return get_hf_file_metadata(url)


def _agree(wanted: Wanted, metadata: Any, host: str) -> tuple[str, int | None, str | None]:
    """What the hub announces against what is wanted: the blob's name, and the size and hash to check for."""
    if metadata.etag is None or metadata.commit_hash is None:
        raise ModelUnavailableError(f"{host} answers, but not as a hub does (no ETag or X-Repo-Commit header)")
    etag = str(metadata.etag)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", etag):
        raise ModelUnavailableError(f"{host} names the file by an odd ETag ({etag[:40]!r})")
    size_bytes = metadata.size or None  # some mirrors announce 0 or nothing: then the hash decides
    sha256 = etag if _SHA256.fullmatch(etag) else None
    for kind, here, there in (("size", wanted.size_bytes, size_bytes), ("SHA-256", wanted.sha256, sha256)):
        if here is not None and there is not None and here != there:
            raise ChecksumError(
                f"{host} offers another {wanted.file} than the catalogue means ({kind} {there}, expected "
                f"{here}): {wanted.repo} was changed. To take it as it is: hf:{wanted.repo}/{wanted.file}."
            )
    return etag, wanted.size_bytes or size_bytes, wanted.sha256 or sha256
