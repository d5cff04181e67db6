"""httpx transports that lead to a Model instead of a socket.

The sync one answers in the caller's thread. The async one gives each request a thread, so that the event loop goes on
while the model decodes. Both work over httpx and over httpx2, its successor: the module is an argument. What is
answered is `endpoint`'s matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from laploop.engine.between_steps import between_steps

from ..model import Model
from .endpoint import Answer, answer

#: RFC 2606 keeps this name from ever existing: a request that went past the transport would fail, not leave.
BASE_URL = "http://in-process.invalid/v1"
# A reader that does not read holds its own generation back.
_MOST_UNREAD = 16
_LOOK_S = 1.0  # how often a thread that waits for its reader looks whether the event loop is still there


def sync_http_client(model: Model, httpx: Any) -> Any:
    """A `httpx.Client` whose every request is answered by `model`."""
    return httpx.Client(transport=_Transport(model, httpx), timeout=None, trust_env=False)


def async_http_client(model: Model, httpx: Any) -> Any:
    """A `httpx.AsyncClient` whose every request is answered by `model`; for asyncio."""
    return httpx.AsyncClient(transport=_AsyncTransport(model, httpx), timeout=None, trust_env=False)


def _call(model: Model, request: Any, body: bytes) -> Callable[[], Answer]:
    return partial(answer, model, request.method, request.url.path.removeprefix("/v1"), body)


def _read_timeout(request: Any) -> float | None:
    seconds: float | None = request.extensions.get("timeout", {}).get("read")
    return seconds


def _headers(found: Answer) -> dict[str, str]:
    return {"content-type": found.content_type}


class _Transport:
    """httpx.BaseTransport by its methods."""

    def __init__(self, model: Model, httpx: Any) -> None:
        self._model, self._httpx = model, httpx
        self._stream = type("_HttpxStream", (_Stream, httpx.SyncByteStream), {})  # httpx insists on its own classes

    def handle_request(self, request: Any) -> Any:
        late = partial(self._httpx.ReadTimeout, "the model took longer than the client's timeout", request=request)
        deadline = _Deadline(_read_timeout(request), late)
        with between_steps(deadline.check):
            found = _call(self._model, request, request.read())()
        return self._httpx.Response(found.status, headers=_headers(found), stream=self._stream(found, deadline))

    def close(self) -> None:
        """Nothing to close: the model is the caller's."""

    def __enter__(self) -> _Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Deadline:
    """A time limit that is looked at between the model's steps: nobody else is there to interrupt it."""

    def __init__(self, timeout_s: float | None, late: Callable[[], Exception]) -> None:
        self._timeout_s, self._late = timeout_s, late
        self.restart()

    def restart(self) -> None:
        """Begin to wait anew."""
        self._started = time.monotonic()

    def check(self) -> None:
        """Raise if the wait was too long."""
        if self._timeout_s is not None and time.monotonic() - self._started > self._timeout_s:
            raise self._late()


class _Stream:
    """httpx.SyncByteStream by its methods."""

    def __init__(self, found: Answer, deadline: _Deadline) -> None:
        self._answer, self._deadline = found, deadline

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._answer.parts)
        while True:
            self._deadline.restart()
            with between_steps(self._deadline.check):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def close(self) -> None:
        """End the generation."""
        self._answer.close()


class _AsyncTransport:
    """httpx.AsyncBaseTransport by its methods."""

    def __init__(self, model: Model, httpx: Any) -> None:
        self._model, self._httpx = model, httpx
        self._stream = type("_HttpxStream", (_AsyncStream, httpx.AsyncByteStream), {})

    async def handle_async_request(self, request: Any) -> Any:
        late = partial(self._httpx.ReadTimeout, "the model took longer than the client's timeout", request=request)
        worker = _Worker(_call(self._model, request, await request.aread()))
        timeout_s = _read_timeout(request)
        try:
            found = await worker.next(timeout_s, late)
        except BaseException:
            worker.leave()
            raise
        stream = self._stream(worker, timeout_s, late)
        return self._httpx.Response(found.status, headers=_headers(found), stream=stream)

    async def aclose(self) -> None:
        """Nothing to close: the model is the caller's."""

    async def __aenter__(self) -> _AsyncTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _AsyncStream:
    """httpx.AsyncByteStream by its methods. Closed or forgotten, it ends the generation."""

    def __init__(self, worker: _Worker, timeout_s: float | None, late: Callable[[], Exception]) -> None:
        self._worker, self._timeout_s, self._late = worker, timeout_s, late
        weakref.finalize(self, worker.leave)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (part := await self._worker.next(self._timeout_s, self._late)) is not None:
                yield part
        finally:
            self._worker.leave()

    async def aclose(self) -> None:
        """End the generation; its place is free after the model's next step."""
        self._worker.leave()


class _Left(Exception):
    """Nobody waits for the answer any more."""


class _Worker:
    """A thread that makes an answer and hands it to the event loop: first the Answer, then its parts, then None.

    The thread is a daemon: whoever leaves the program need not wait for it.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._left = threading.Event()
        self._room = threading.Semaphore(_MOST_UNREAD)
        threading.Thread(target=self._work, name="laploop-openai", daemon=True).start()

    def leave(self) -> None:
        """Nobody waits any more: the generation ends after its next step. Safe to call twice, from any thread."""
        self._left.set()
        self._room.release()

    async def next(self, timeout_s: float | None, late: Callable[[], Exception]) -> Any:
        """What comes next, or the error that came instead."""
        try:
            item = await asyncio.wait_for(self._arrived.get(), timeout_s)
        except asyncio.TimeoutError:
            raise late() from None
        self._room.release()
        if isinstance(item, BaseException):
            raise item
        return item

    def _work(self) -> None:
        found = None
        try:
            with between_steps(self._check):
                found = self._call()
                self._post(found)
                for part in found.parts:
                    self._post(part)
            self._post(None)
        except _Left:
            pass
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            with contextlib.suppress(_Left):
                self._post(error)
        finally:
            if found is not None:
                found.close()

    def _check(self) -> None:
        if self._left.is_set():
            raise _Left

    def _post(self, item: Any) -> None:
        while not self._room.acquire(timeout=_LOOK_S) and not self._loop.is_closed():
            pass
        self._check()
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, item)
        except RuntimeError:  # the loop is closed
            raise _Left from None
