"""An iterator for asyncio: it is iterated in a thread of its own. It knows neither runs nor events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def in_thread(items: Iterator[T], stop: Callable[[], None]) -> AsyncGenerator[T, None]:
    """The items, as they come; what they raise is raised here.

    Whoever leaves early, or is cancelled, has `stop` called and waits for the thread's end.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[T | BaseException | None] = asyncio.Queue()

    def post(item: T | BaseException | None) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, item)

    def work() -> None:
        try:
            for item in items:
                post(item)
        except BaseException as error:  # noqa: BLE001 - handed over to the awaiting side, which raises it
            post(error)
        finally:
            post(None)

    worker = threading.Thread(target=work, name="laploop-run", daemon=True)
    worker.start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop()
        await asyncio.shield(loop.run_in_executor(None, worker.join))
