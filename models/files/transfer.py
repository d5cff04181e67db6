"""A file over HTTP into a part on disk: ranges, cut connections, servers that know no ranges.

Knows addresses and bytes; not what is fetched, nor whether it is right: `PartFile.finish` checks that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ModelUnavailableError
from .hub_errors import explain, is_passing, transport_error
from .part_file import PartFile
from .progress import Progress, ProgressFunction

CONNECT_TIMEOUT_S = 3.0
PROBE_TIMEOUT_S = 8.0  # over all addresses of the host: a firewall that drops packets costs this once
LIST_TIMEOUT_S = 60.0
ATTEMPTS = 3  # without any new byte between them


@dataclass(frozen=True, slots=True)
class Source:
    """Where bytes come from.

    Args:
        url: the address; redirects are followed.
        name: what progress and errors call the file.
        kind: which of `Progress.source` it is.
        headers: sent with each request; the client drops an Authorization by itself when the host changes.
        validator: an ETag or date: the server sends the rest only of what is still the same file (If-Range).
        token_variable: which variable holds a token for this server, for messages.
    """

    url: str
    name: str
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)
    validator: str | None = None
    token_variable: str = ""


def transfer(source: Source, part: PartFile, size_bytes: int | None, progress: ProgressFunction) -> None:
    """Fill `part`, asking again from where it stands when the connection is cut.

    Raises `ModelUnavailableError` when it stops coming; errors that do not pass (404, a full disk) as they are.
    """
    attempts = ATTEMPTS
    while size_bytes is None or part.n_bytes != size_bytes:
        if size_bytes is not None and part.n_bytes > size_bytes:
            part.restart()
        before, failure = part.n_bytes, None
        try:
            if _receive(source, part, size_bytes, progress) and size_bytes is None:
                return  # a clean end is all that can be known
        except (transport_error(), OSError) as error:
            if not is_passing(error):
                raise
            failure = error
        part.sync()
        attempts = ATTEMPTS if part.n_bytes > before else attempts - 1
        if attempts == 0:
            of_all = f" of {size_bytes:,}" if size_bytes else ""
            raise ModelUnavailableError(
                f"the transfer of {source.name} stopped at {part.n_bytes:,}{of_all} bytes "
                f"({explain(failure, source.token_variable)}); the part is kept, run the same command again to continue"
            ) from failure
        time.sleep(0.5 * (ATTEMPTS - attempts))


def _receive(source: Source, part: PartFile, size_bytes: int | None, progress: ProgressFunction) -> bool:
    """One request; appends what comes to `part`. Whether it was answered with (the rest of) the file."""
    from huggingface_hub import constants, get_session, hf_raise_for_status

    headers = {"Accept-Encoding": "identity", **source.headers}
    if part.n_bytes:
        headers["Range"] = f"bytes={part.n_bytes}-"
        if source.validator:
            headers["If-Range"] = source.validator
    with get_session().stream(
        "GET", source.url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT, follow_redirects=True
    ) as response:
        if response.status_code == 416 and part.n_bytes:
            part.restart()  # the part is longer than the file: it cannot be the beginning of it
            return False
        if response.status_code >= 400:
            response.read()  # hf_raise_for_status looks into the body
            hf_raise_for_status(response)
        begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if part.n_bytes and (response.status_code != 206 or begin is None or int(begin[1]) != part.n_bytes):
            part.restart()
            if response.status_code == 206:
                return False  # a piece from elsewhere is of no use
        for chunk in response.iter_bytes():
            part.write(chunk)
            progress(Progress(source.name, part.n_bytes, size_bytes, source.kind))
    return True
