"""ModelScope over HTTP: which files a repository has, with their hashes, and where each is.

The endpoints are those of its own client (modelscope_hub): `/api/v1/models/<repo>/repo/files` lists, `…/repo?FilePath=`
sends. MODELSCOPE_ENDPOINT or MODELSCOPE_DOMAIN name another site, MODELSCOPE_API_TOKEN the account.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

from ..errors import ModelNotFoundError, ModelUnavailableError
from .hub_errors import hub_errors, within
from .own_fetch import fetch_own
from .progress import ProgressFunction
from .store import Store
from .transfer import CONNECT_TIMEOUT_S, LIST_TIMEOUT_S, Source

DOMAIN = "www.modelscope.cn"
TOKEN_VARIABLE = "MODELSCOPE_API_TOKEN"  # noqa: S105  (its name)
REVISION = "master"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository, and what ModelScope says of its bytes."""

    path: str
    size_bytes: int | None
    sha256: str | None


def endpoint() -> str:
    """The site's address, without a slash at its end."""
    chosen = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or DOMAIN
    return (chosen if "://" in chosen else f"https://{chosen}").rstrip("/")


def stored_name(repo: str, file: str) -> str:
    """Where a file lies in laploop's own folder."""
    return f"modelscope/{repo}/{file}"


def list_files(repo: str, revision: str | None = None) -> list[RemoteFile]:
    """The files of a repository. Raises `ModelNotFoundError` or `ModelUnavailableError`."""
    from huggingface_hub import get_session, hf_raise_for_status

    url = f"{endpoint()}/api/v1/models/{quote(repo)}/repo/files"
    session = get_session()
    timeout = type(session.timeout)(LIST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    query = {"Revision": revision or REVISION, "Recursive": "True"}
    host = urlsplit(url).netloc
    with hub_errors(host, repo, TOKEN_VARIABLE):
        response: Any = within(
            LIST_TIMEOUT_S,
            lambda: session.get(url, params=query, headers=_headers(), timeout=timeout, follow_redirects=True),
        )
        hf_raise_for_status(response)
    try:
        answer = response.json()
        if answer.get("Code") != 200:
            raise ModelNotFoundError(f"{host} says of {repo}: {str(answer.get('Message'))[:200]}")
        rows = [row for row in answer["Data"]["Files"] if row.get("Type") != "tree"]
        return [RemoteFile(str(row["Path"]), row.get("Size") or None, row.get("Sha256") or None) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailableError(f"{host} answers, but not as ModelScope does") from error


def fetch(
    repo: str, files: Sequence[RemoteFile], revision: str | None, store: Store, progress: ProgressFunction
) -> Path:
    """Bring files of a repository into laploop's own folder and return the first one's path; see `fetch_own`."""
    paths = []
    for file in files:
        url = f"{endpoint()}/api/v1/models/{quote(repo)}/repo"
        url += f"?Revision={quote_plus(revision or REVISION)}&FilePath={quote_plus(file.path)}"
        name = file.path.rsplit("/", 1)[-1]
        # What the listing says of a file tells its version; an If-Range of it would mean nothing to the server.
        source = Source(url, name, "modelscope", _headers(), token_variable=TOKEN_VARIABLE)
        host = urlsplit(url).netloc
        paths.append(
            fetch_own(
                stored_name(repo, file.path),
                source,
                host,
                store,
                progress,
                size_bytes=file.size_bytes,
                sha256=file.sha256,
            )
        )
    return paths[0]


def _headers() -> dict[str, str]:
    """The account's token in both forms: older endpoints know the cookie only."""
    token = os.environ.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"} if token else {}
