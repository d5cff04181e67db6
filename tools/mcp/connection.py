"""One MCP server, started when it is first needed and again after it has died. It knows no laploop tools.

The official SDK is asynchronous and wants to be entered and left in one task: each connection has a thread with an
event loop, in which one task holds the session open. Calls come from any thread. A call that nobody waits for any more
(`given_up`) is cancelled, and the server is told so; the server itself lives on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from ..invocation import given_up
from .config import McpError, McpServerConfig

if TYPE_CHECKING:
    import mcp.types
    from mcp.client import Client

T = TypeVar("T")
# As libraries do: the SDK tells its log of a line that is no JSON, and without a handler Python prints that to stderr.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
_POLL_S = 0.05
_MAX_PAGES = 50  # of a list of tools
_MAX_SAID_CHARS = 300


class McpConnection:
    """The server of `config`. For several threads; close it at the end."""

    def __init__(self, config: McpServerConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._live: _Live | None = None

    def list_tools(self) -> list[mcp.types.Tool]:
        """The server's tools, as it tells them now.

        Raises:
            McpError: it does not start, does not answer in time, or speaks nonsense.
        """
        return self._run(lambda client: _all_tools(client), self.config.timeout_s)

    def call(self, name: str, arguments: dict[str, Any]) -> mcp.types.CallToolResult:
        """Call a tool; waits until it answers, or nobody waits for the call any more.

        Raises:
            McpError: the server does not start, dies meanwhile, or refuses the call.
        """
        return self._run(lambda client: client.call_tool(name, arguments), None)

    def close(self) -> None:
        """End the server; the next call would start it again."""
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.close()

    def _run(self, make: Callable[[Client], Coroutine[Any, Any, T]], timeout_s: float | None) -> T:
        live = self._started()
        try:
            return live.run(make(live.client), timeout_s)
        except concurrent.futures.TimeoutError:
            raise McpError(f"MCP server {self.config.name!r} did not answer within {timeout_s:g} s") from None
        except concurrent.futures.CancelledError:
            raise McpError(f"MCP server {self.config.name!r}: the call was cancelled") from None
        except Exception as error:
            if live.ended:
                raise McpError(
                    f"MCP server {self.config.name!r} ended during the call{live.said()}; "
                    "it is started again for the next one"
                ) from error
            raise McpError(f"MCP server {self.config.name!r}: {_words(error)}") from error

    def _started(self) -> _Live:
        with self._lock:
            if self._live is not None and self._live.ended:
                self._live.close()
                self._live = None
            if self._live is None:
                self._live = _Live(self.config)
            return self._live


class _Live:
    """A running server: its loop, its session, what it said on stderr."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._errors = cast(  # as long as the server lives
            TextIO,
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"),  # noqa: SIM115
        )
        self._client: Client | None = None
        self.ended = False
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._serve, args=(ready,), name=f"laploop-mcp-{config.name}", daemon=True
        )
        self._thread.start()
        try:
            ready.result(config.timeout_s)
        except BaseException as error:
            said = self.said()
            self.close()
            if isinstance(error, concurrent.futures.TimeoutError):
                raise McpError(
                    f"MCP server {config.name!r} did not start within {config.timeout_s:g} s{said}"
                ) from None
            if isinstance(error, Exception):
                raise McpError(f"MCP server {config.name!r} did not start: {_words(error)}{said}") from error
            raise

    @property
    def client(self) -> Client:
        """The session."""
        assert self._client is not None, "it is there once `ready` is"
        return self._client

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """The result of `work` in the server's loop; its errors, TimeoutError and CancelledError as they come."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        stop = given_up()
        waited_s = 0.0
        try:
            while not concurrent.futures.wait([future], _POLL_S).done:
                waited_s += _POLL_S
                if timeout_s is not None and waited_s >= timeout_s:
                    raise concurrent.futures.TimeoutError
                if stop is not None and stop.is_set():
                    raise concurrent.futures.CancelledError
                if not self._thread.is_alive():
                    raise RuntimeError("its connection has gone")
            return future.result()
        finally:
            future.cancel()

    def said(self) -> str:
        """The last of what the server wrote to stderr, for a message."""
        with contextlib.suppress(OSError, ValueError):
            size_bytes = os.fstat(self._errors.fileno()).st_size
            self._errors.seek(max(0, size_bytes - 4 * _MAX_SAID_CHARS))  # of a flood, only the end is read
            text = " ".join(self._errors.read(4 * _MAX_SAID_CHARS).split())
            return f" ({text[-_MAX_SAID_CHARS:]})" if text else ""
        return ""

    def close(self) -> None:
        """End the session and the server, and wait for it."""
        self.ended = True
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(10)
        self._errors.close()

    def _serve(self, ready: concurrent.futures.Future[None]) -> None:
        try:
            with contextlib.suppress(BaseException):  # it has reached `ready`, or nobody waits any more
                self._loop.run_until_complete(self._hold(ready))
        finally:
            self.ended = True
            with contextlib.suppress(Exception):
                left = asyncio.all_tasks(self._loop)
                for task in left:
                    task.cancel()
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _hold(self, ready: concurrent.futures.Future[None]) -> None:
        """Open the session and keep it open, in one task, until it is to be closed."""
        from mcp.client import Client

        hold = asyncio.ensure_future(self._session(Client, ready))
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait({hold, closing}, return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not hold.done():  # still starting, or held by a server that does not end
            with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError, Exception):
                await asyncio.wait_for(asyncio.shield(hold), 3)
            hold.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await hold

    async def _session(self, client_class: Any, ready: concurrent.futures.Future[None]) -> None:
        try:
            async with client_class(self._transport(), cache=None) as client:
                self._client = client
                ready.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else RuntimeError("it was given up"))
            raise

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        """The SDK's streams to the server; the end of what it sends is noted in `ended`."""
        config = self._config
        if config.url:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            limits = httpx2.Timeout(30.0, read=300.0)  # a server may hold a response open
            async with (
                httpx2.AsyncClient(headers=dict(config.headers), timeout=limits) as http,
                streamable_http_client(config.url, http_client=http) as (read, write),
            ):
                yield _Watched(read, self), write
            return
        from mcp.client.stdio import StdioServerParameters, stdio_client

        server = StdioServerParameters(
            command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
        )
        async with stdio_client(server, errlog=self._errors) as (read, write):
            yield _Watched(read, self), write


class _Watched:
    """A stream that says when it ends; else the stream itself."""

    def __init__(self, stream: Any, live: _Live) -> None:
        self._stream, self._live = stream, live

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._live.ended = True
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


async def _all_tools(client: Client) -> list[mcp.types.Tool]:
    found: list[mcp.types.Tool] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found
    raise McpError(f"the list of tools has more than {_MAX_PAGES} pages")


def _words(error: BaseException) -> str:
    """One line; of a group of errors, the first that is none."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no program {error.filename!r}; install it, or give its whole path as `command`"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())[:_MAX_SAID_CHARS]
    return text or type(error).__name__
