"""What the hub's client raises, in our words: who did not answer, and why. Knows no files."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from ..errors import DiskSpaceError, ModelNotFoundError, ModelUnavailableError

T = TypeVar("T")
HUB_TOKEN = "HF_TOKEN"  # noqa: S105  (the name of a variable)
DISK_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # Windows knows no quota error


@contextlib.contextmanager
def hub_errors(host: str, what: str = "", token_variable: str = HUB_TOKEN) -> Iterator[None]:
    """Turn the client's errors inside the block into ours.

    `ModelNotFoundError` for what is not there, `DiskSpaceError` for a full disk, `ModelUnavailableError` for
    the rest, with the reason in a few words.
    """
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelUnavailableError(
            f"{what} is gated: accept its terms on {host} and set HF_TOKEN to a token of that account"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"{host} has no repository for {what} (or it is private: then set HF_TOKEN). "
            "Check the spelling of owner/repo."
        ) from error
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise ModelNotFoundError(f"{host} has no {what}. Check the spelling of file and revision.") from error
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        if code == 404:
            raise ModelNotFoundError(f"{host} has no {what or 'such page'} (404). Check the spelling.") from error
        raise ModelUnavailableError(f"{host} {_status(code, token_variable)}") from error
    except errors.OfflineModeIsEnabled as error:
        raise ModelUnavailableError("the hub's client is in offline mode (HF_HUB_OFFLINE)") from error
    except (transport_error(), OSError) as error:
        if getattr(error, "errno", None) in DISK_FULL:
            why = f"The disk is full while fetching {what}; the part is kept. Free some space and try again."
            raise DiskSpaceError(why) from error
        if getattr(error, "filename", None) is not None:
            raise ModelUnavailableError(f"cannot write to the cache ({error})") from error
        raise ModelUnavailableError(f"{host}: {explain(error, token_variable)}") from error


def transport_error() -> type[Exception]:
    """The base of the client's transport errors: httpx's or httpx2's, by the version of huggingface_hub."""
    from huggingface_hub import errors

    kind: type[Exception] = vars(errors)["HTTPError"]
    return kind


def within(timeout_s: float, call: Callable[[], T]) -> T:
    """The result of `call`, or `TimeoutError` after `timeout_s`: clients count their timeouts per address.

    The call goes on in a daemon thread if it is late; it must be harmless to abandon.
    """
    results: list[T] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  (raised again in the caller's thread)
            faults.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if faults:
        raise faults[0]
    if not results:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    return results[0]


def _status(code: int, token_variable: str) -> str:
    if code in (401, 403):
        way_out = f"set {token_variable} to a token that may read it" if token_variable else "fetch it with a browser"
        return f"refused access ({code}); {way_out}"
    if code == 429:
        way_out = f", or set {token_variable}" if token_variable else ""
        return f"asks to slow down (429 Too Many Requests); try again in some minutes{way_out}"
    return f"answered with status {code}"


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a moment later: a cut, a timeout, 429 and 5xx; not a full disk."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return bool(status == 429 or status >= 500)
    return getattr(error, "errno", None) not in DISK_FULL and getattr(error, "filename", None) is None


def explain(error: BaseException | None, token_variable: str = HUB_TOKEN) -> str:
    """The cause in a few words: the client wraps the system's error, sometimes more than once."""
    if error is None:
        return "the server ended it early"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"it {_status(status, token_variable)}"
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    if any(isinstance(item, socket.gaierror) for item in chain):
        return "the name does not resolve (no network, or no DNS)"
    if any(isinstance(item, ssl.SSLError) for item in chain):
        return f"TLS failed ({chain[0]})"
    if any(isinstance(item, ConnectionRefusedError) for item in chain):
        return "connection refused"
    if any(isinstance(item, TimeoutError) or "Timeout" in type(item).__name__ for item in chain):
        return "no answer in time"
    return f"connection failed ({str(error).strip() or type(error).__name__})"
