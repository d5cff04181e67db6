"""A model file at any address: what the server tells of it, and where it is kept here."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .hub_errors import hub_errors, within
from .own_fetch import fetch_own, with_validator
from .progress import ProgressFunction
from .spec import UrlSpec
from .store import Store
from .transfer import CONNECT_TIMEOUT_S, PROBE_TIMEOUT_S, Source


@dataclass(frozen=True, slots=True)
class _Announced:
    source: Source
    size_bytes: int | None


def stored_name(spec: UrlSpec) -> str:
    """Where the file lies in laploop's own folder: the address stands behind its name as a hash."""
    host = re.sub(r"[^A-Za-z0-9.-]", "_", urlsplit(spec.url).netloc.rpartition("@")[2])
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", spec.name)
    return f"web/{host}/{hashlib.sha256(spec.url.encode()).hexdigest()[:12]}/{name}"


def fetch(spec: UrlSpec, store: Store, progress: ProgressFunction) -> Path:
    """Bring the file into laploop's own folder and return its path; raises like `fetch_own`."""
    host = urlsplit(spec.url).netloc.rpartition("@")[2]
    with hub_errors(host, str(spec), ""):
        told = within(PROBE_TIMEOUT_S, lambda: _announced(spec))
    return fetch_own(
        stored_name(spec), told.source, host, store, progress, size_bytes=told.size_bytes, sha256=spec.sha256
    )


def _announced(spec: UrlSpec) -> _Announced:
    """Size and version as the server announces them with the first byte: HEAD is often refused."""
    from huggingface_hub import get_session, hf_raise_for_status

    session = get_session()
    timeout = type(session.timeout)(PROBE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    headers = {"Accept-Encoding": "identity", "Range": "bytes=0-0"}
    with session.stream("GET", spec.url, headers=headers, timeout=timeout, follow_redirects=True) as response:
        if response.status_code >= 400 and response.status_code != 416:  # an empty file has no first byte
            response.read()
            hf_raise_for_status(response)
        whole = response.headers.get("Content-Range", "").rpartition("/")[2]
        size = whole if response.status_code == 206 else response.headers.get("Content-Length", "")
        source = with_validator(Source(spec.url, spec.name, "web"), response.headers)
        return _Announced(source, int(size) if size.isdigit() and int(size) else None)
