"""Functions that another process can import, for the tests of isolated tools."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from laploop.tools import tool


def double(n: int) -> int:
    """Double a number."""
    print("printed, not returned")
    return 2 * n


def next_year(day: date) -> date:
    """A year later."""
    return day.replace(year=day.year + 1)


async def later(text: str) -> str:
    """Return the text, from a coroutine."""
    await asyncio.sleep(0)
    return text


@tool(isolated=True)
def own_process() -> int:
    """The number of the process."""
    return os.getpid()


def hang(file: str) -> None:
    """Start a child, write both process numbers, and sleep."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).with_suffix(".tmp").write_text(f"{os.getpid()} {child.pid}")
    Path(file).with_suffix(".tmp").replace(file)
    time.sleep(600)


def hog() -> int:
    """Take far more memory than is allowed."""
    return len(bytearray(64 * 1024**3))


def spin() -> None:
    """Never return, and never wait."""
    while True:
        pass


def crash() -> None:
    """End the process without a word."""
    os.abort()


def junk() -> None:
    """Write to where the result goes."""
    os.write(1, b"{}" * 1000)
    raise ValueError("nothing came")
