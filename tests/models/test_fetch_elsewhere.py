"""Fetching from ModelScope and from any address: real HTTP on loopback, into laploop's own folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noise_gguf import noise_gguf

NAME = "tiny-Q8_0.gguf"
REPO = "acme/tiny-GGUF"
Make = Callable[..., Any]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(params=["ms", "web"])
def spec(request: pytest.FixtureRequest, hub: Any) -> str:
    """The same file by both kinds of source."""
    return f"ms:{REPO}:q8_0" if request.param == "ms" else f"{hub.url}/plain/{NAME}"


def parts(fetch: Any) -> list[Path]:
    return sorted(fetch.models.rglob("*.part"))


def test_fetched_once_and_found_offline(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = data = noise_gguf()
    fetch = fetcher(hub)
    path = Path(fetch(spec)["path"])
    assert path.read_bytes() == data and path.is_relative_to(fetch.models) and path.name == NAME
    assert parts(fetch) == [] and list(fetch.models.rglob("*.part.json")) == []
    hub.requests.clear()
    assert fetch(spec, offline=True)["path"] == fetch(spec)["path"] == str(path)
    assert hub.requests == []


def test_offline_and_not_here_asks_nobody(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = noise_gguf()
    got = fetcher(hub)(spec, offline=True)
    assert got["kind"] == "ModelUnavailableError" and "not on this machine" in got["error"]
    assert hub.requests == []


@pytest.mark.parametrize("variant", ["cut", "interrupt"])
def test_a_part_is_kept_and_continued(variant: str, spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = data = noise_gguf()
    fetch = fetcher(hub)
    hub.cuts = [60_000, 0, 0, 0]
    got = fetch(spec, **({"interrupt_at": 60_000} if variant == "interrupt" else {}))
    assert "error" in got and list(fetch.home.rglob("*.gguf")) == []
    (part,) = parts(fetch)
    assert part.read_bytes() == data[:60_000]
    hub.cuts, hub.requests = [], []
    assert Path(fetch(spec)["path"]).read_bytes() == data
    ranges = [headers["range"] for _, headers in hub.asked("GET") if headers.get("range", "bytes=0-0") != "bytes=0-0"]
    assert ranges == ["bytes=60000-"]


def test_a_part_of_an_older_version_is_dropped(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = noise_gguf(seed=1)
    fetch = fetcher(hub)
    hub.cuts = [60_000, 0, 0, 0]
    assert "error" in fetch(spec)
    hub.cuts, hub.files[NAME] = [], noise_gguf(seed=2)
    assert Path(fetch(spec)["path"]).read_bytes() == noise_gguf(seed=2)


def test_a_file_that_changes_in_the_middle_is_taken_whole(hub: Any, fetcher: Make) -> None:
    """Without a hash nobody would notice a file of two halves: If-Range makes the server send the new one."""
    hub.files[NAME] = noise_gguf(seed=1)
    fetch = fetcher(hub)
    hub.cuts = [60_000]
    first = (
        "import urllib.request\n"
        "from laploop.models.files import transfer\n"
        f"transfer.time.sleep = lambda s: urllib.request.urlopen({hub.url + '/change'!r}, data=b'')\n"
    )
    hub.on_change = lambda: hub.files.update({NAME: noise_gguf(seed=2)})
    assert Path(fetch(f"{hub.url}/plain/{NAME}", first=first)["path"]).read_bytes() == noise_gguf(seed=2)


def test_a_server_without_ranges_starts_over(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = data = noise_gguf()
    hub.ranges, hub.cuts = False, [60_000]
    assert Path(fetcher(hub)(spec)["path"]).read_bytes() == data


def test_wrong_bytes_are_deleted_and_named(spec: str, hub: Any, fetcher: Make) -> None:
    data = noise_gguf()
    hub.files[NAME], hub.listed = noise_gguf(seed=9), {NAME: data}
    fetch = fetcher(hub)
    got = fetch(spec if spec.startswith("ms") else f"{spec}#sha256={sha(data)}")
    assert got["kind"] == "ChecksumError" and sha(data) in got["error"] and "deleted" in got["error"]
    assert parts(fetch) == [] and list(fetch.home.rglob("*.gguf")) == []


@pytest.mark.parametrize("body", [b"<!doctype html><title>log in</title>", noise_gguf()[:-40]], ids=["page", "short"])
def test_what_is_no_whole_gguf_is_deleted(body: bytes, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = body
    fetch = fetcher(hub)
    got = fetch(f"{hub.url}/plain/{NAME}")
    assert got["kind"] == "ChecksumError" and ("HTML" in got["error"] or "truncated" in got["error"])
    assert parts(fetch) == [] and list(fetch.home.rglob("*.gguf")) == []


REFUSALS = {401: "refused access", 403: "refused access", 404: "has no", 429: "slow down", 503: "status 503"}


@pytest.mark.parametrize("status", REFUSALS)
def test_refusals_are_said_in_one_line(status: int, spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = noise_gguf()
    for kind in ("tree", "get"):
        hub.statuses = {kind: (status, "")}
        if kind == "tree" and spec.startswith("http"):
            continue
        got = fetcher(hub)(spec)
        assert REFUSALS[status] in got["error"] and "\n" not in got["error"]
        assert ("MODELSCOPE_API_TOKEN" in got["error"]) == (spec.startswith("ms") and status in (401, 403, 429))
        assert "HF_TOKEN" not in got["error"]


def test_tokens_go_where_they_belong(hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = noise_gguf()
    fetch = fetcher(hub)
    fetch.env.update(HF_TOKEN="hf_secret", MODELSCOPE_API_TOKEN="ms_secret")
    fetch(f"{hub.url}/plain/{NAME}")
    assert all("authorization" not in headers and "cookie" not in headers for _, headers in hub.asked("GET"))
    hub.requests.clear()
    fetch(f"ms:{REPO}")
    assert hub.requests
    for _, headers in hub.asked("GET"):
        assert (headers["authorization"], headers["cookie"]) == ("Bearer ms_secret", "m_session_id=ms_secret")


def test_nobody_there_is_said_within_seconds(fetcher: Make) -> None:
    for spec in (f"ms:{REPO}", "http://127.0.0.1:9/tiny.gguf"):
        got = fetcher()(spec)
        assert got["kind"] == "ModelUnavailableError" and "connection refused" in got["error"]


def test_two_processes_fetch_once(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME], hub.slow_s = noise_gguf(), 0.01
    fetch = fetcher(hub)
    running = [fetch.start(spec) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert all('"path"' in out for out in outputs)
    assert hub.sent_bytes < 1.5 * len(hub.files[NAME])


def test_a_split_model_of_modelscope_is_fetched_whole(hub: Any, fetcher: Make) -> None:
    names = [f"t-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    hub.files = {name: noise_gguf(seed=n) for n, name in enumerate(names)}
    path = Path(fetcher(hub)(f"ms:{REPO}:Q8_0")["path"])
    assert path.name == names[0]
    assert [path.with_name(name).read_bytes() for name in names] == list(hub.files.values())


def test_wanted_quantisation_is_not_there(hub: Any, fetcher: Make) -> None:
    hub.files = {"a-Q8_0.gguf": noise_gguf(), "a-F16.gguf": noise_gguf()}
    got = fetcher(hub)(f"ms:{REPO}:Q4_K_M")
    assert got["kind"] == "QuantNotFoundError" and "a-Q8_0.gguf" in got["error"] and f"ms:{REPO}:QUANT" in got["error"]


def test_a_full_disk_is_said_before_the_transfer(spec: str, hub: Any, fetcher: Make) -> None:
    hub.files[NAME] = noise_gguf()
    first = "import shutil, collections\nshutil.disk_usage = lambda p: collections.namedtuple('U', 'free')(1000)"
    got = fetcher(hub)(spec, first=first)
    assert got["kind"] == "DiskSpaceError" and "1,000 are free" in got["error"]
    assert [1 for _, headers in hub.asked("GET", "FilePath")] == []
