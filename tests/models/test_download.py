"""Fetching from the hub: real HTTP on loopback with the faults that real hubs, mirrors and networks have."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "download.jsonl"
CASES = {case["id"]: case for case in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())}
MODEL = "tiny-Q8_0.gguf"
Make = Callable[..., Any]


def gguf(size_bytes: int = 200_000, seed: int = 0) -> bytes:
    import random
    import struct

    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    return head + random.Random(seed).randbytes(size_bytes - len(head))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_catalogue_model_lands_in_the_hub_cache_checked_once(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    got = fetch("tiny")
    path = Path(got["path"])
    assert path.read_bytes() == data and got["name"] == "tiny"
    assert path.is_relative_to(fetch.home / "hf" / "hub"), "other tools must find it too"
    assert (fetch.blobs / sha(data)).is_file()
    done = [report[1] for report in got["reports"] if report[3] == "hub"]
    assert done == sorted(done) and done[-1] == len(data)
    hub.requests.clear()
    again = fetch("tiny")
    assert again["path"] == got["path"]
    assert again["reports"] == [], "hashed again although it was remembered"
    assert hub.requests == [], "what is on disk needs no network"


def test_found_offline_after_one_fetch(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    path = fetch("tiny")["path"]
    hub.requests.clear()
    for name in ("LAPLOOP_OFFLINE", "HF_HUB_OFFLINE"):
        fetch.env[name] = "1"
        assert fetch("tiny")["path"] == path
        assert fetch("hf:acme/tiny-GGUF:Q8_0")["path"] == path
        assert fetch("hf:acme/tiny-GGUF/tiny-Q8_0.gguf")["path"] == path
        assert fetch("hf:acme/tiny-GGUF")["path"] == path
        del fetch.env[name]
    assert fetch("tiny", offline=True)["path"] == path
    assert hub.requests == []


@pytest.mark.parametrize("spec", ["tiny", "hf:acme/tiny-GGUF:Q8_0"])
def test_offline_and_not_here_asks_nobody_and_says_what_is_on_disk(spec: str, hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    fetch.models.mkdir(parents=True)
    (fetch.models / "mine.gguf").write_bytes(gguf(64))
    got = fetch(spec, offline=True)
    assert got["kind"] == "ModelUnavailableError"
    assert "only the disk was searched" in got["error"] and f"models pull {spec}" in got["error"]
    assert "On disk" in got["error"] and ("mine.gguf" in got["error"]) == (spec == "tiny")
    assert hub.requests == []


@pytest.mark.parametrize("case_id", ["C092"])
@pytest.mark.parametrize("variant", CASES["C092"]["input"]["interrupt_variants"])
def test_case_cut_in_the_middle(case_id: str, variant: str, hub: Any, fetcher: Make) -> None:
    case = CASES[case_id]
    server = case["input"]["server"]
    data = gguf(server["content_length"])
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    options = {}
    if variant == "KeyboardInterrupt":
        options["interrupt_at"] = server["sends"]
        hub.cuts = [server["sends"]]
    else:
        hub.cuts = [server["sends"], 0, 0, 0]
    got = fetch("tiny", **options)
    assert "error" in got, case["expected"]["raises"]
    if variant != "KeyboardInterrupt":
        assert "600 of 1,000" in got["error"] and "the part is kept" in got["error"]
    assert not list(fetch.home.rglob("*.gguf")), "a partial file under the final name"
    (part,) = fetch.blobs.glob("*.part")
    assert part.read_bytes() == data[: server["sends"]]
    hub.cuts, hub.requests = [], []
    again = fetch("tiny")
    assert Path(again["path"]).read_bytes() == data
    assert [headers.get("range") for _, headers in hub.asked("GET", "resolve")] == [f"bytes={server['sends']}-"]
    assert not list(fetch.blobs.glob("*.part"))


def test_a_cut_connection_is_continued_within_one_call(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL], hub.cuts = data, [50_000, 70_000]
    fetch = fetcher(hub)
    fetch.know(data)
    assert Path(fetch("tiny")["path"]).read_bytes() == data
    assert len(hub.asked("GET", "resolve")) == 3


def test_kill_keeps_the_part(hub: Any, fetcher: Make) -> None:
    """kill -9 in the middle: the next start continues, and nothing half is taken for the model."""
    data = gguf(600_000)
    hub.files[MODEL], hub.slow_s = data, 0.05
    fetch = fetcher(hub)
    fetch.know(data)
    running = fetch.start("tiny")
    with running:
        while not any(part.stat().st_size > 100_000 for part in fetch.blobs.glob("*.part")):
            assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    assert not list(fetch.home.rglob("*.gguf"))
    hub.slow_s, hub.requests = 0.0, []
    assert Path(fetch("tiny")["path"]).read_bytes() == data
    (first,) = hub.asked("GET", "resolve")
    assert int(first[1]["range"].removeprefix("bytes=").removesuffix("-")) > 100_000


def test_server_without_ranges_starts_over(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL], hub.cuts, hub.ranges = data, [50_000], False
    fetch = fetcher(hub)
    fetch.know(data)
    assert Path(fetch("tiny")["path"]).read_bytes() == data


@pytest.mark.parametrize("junk", [b"x" * 300_000, b"x" * 100_000])
def test_a_part_of_something_else_never_becomes_the_model(junk: bytes, hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    fetch.blobs.mkdir(parents=True)
    (fetch.blobs / f"{sha(data)}.laploop.part").write_bytes(junk)
    got = fetch("tiny")
    if "error" in got:  # the junk was continued, found wrong, and deleted
        assert got["kind"] == "ChecksumError" and "deleted" in got["error"]
        got = fetch("tiny")
    assert Path(got["path"]).read_bytes() == data


def test_wrong_bytes_are_deleted_and_named(hub: Any, fetcher: Make) -> None:
    """A mirror that serves altered bytes under the right ETag."""
    data = gguf()
    hub.files[MODEL], hub.etag = gguf(seed=9), sha(data)
    fetch = fetcher(hub)
    fetch.know(data)
    got = fetch("tiny")
    assert got["kind"] == "ChecksumError"
    assert sha(data) in got["error"] and "deleted" in got["error"]
    assert not list(fetch.home.rglob("*.part")) and not list(fetch.home.rglob("*.gguf"))


def test_a_changed_repository_is_refused_before_the_transfer(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = gguf(len(data), seed=3)
    fetch = fetcher(hub)
    fetch.know(data)
    got = fetch("tiny")
    assert got["kind"] == "ChecksumError" and "hf:acme/tiny-GGUF/tiny-Q8_0.gguf" in got["error"]
    assert hub.asked("GET", "resolve") == []
    assert Path(fetch("hf:acme/tiny-GGUF/tiny-Q8_0.gguf")["path"]).is_file(), "the way out works"


def test_altered_bytes_of_a_hub_spec_are_refused_by_the_hubs_own_hash(hub: Any, fetcher: Make) -> None:
    hub.files[MODEL], hub.etag = gguf(), sha(b"something else")
    got = fetcher(hub)("hf:acme/tiny-GGUF")
    assert got["kind"] == "ChecksumError"


def test_damaged_cache_entry_is_discarded_and_fetched_again(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    path = Path(fetch("tiny")["path"])
    path.resolve().write_bytes(bytes([1]) + data[1:])
    assert fetch("tiny")["path"] == str(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("case_id", ["C094"])
@pytest.mark.parametrize("known", [True, False], ids=["catalogue", "hub spec"])
def test_case_mirror_without_size(case_id: str, known: bool, hub: Any, fetcher: Make) -> None:
    """Of the two allowed outcomes this is "accept after the SHA-256 check": a size of 0 says nothing."""
    case = CASES[case_id]
    data = gguf(case["input"]["body_size"])
    hub.files[MODEL], hub.announced_size = data, case["input"]["head"]["content_length"]
    fetch = fetcher(hub)  # HF_ENDPOINT is the mirror
    fetch.know(data)
    got = fetch("tiny" if known else "hf:acme/tiny-GGUF")
    assert Path(got["path"]).read_bytes() == data
    hosts = {headers["host"] for _, _, headers in hub.requests}
    assert hosts == {hub.url.removeprefix("http://")}, "urls_all_use_endpoint"


@pytest.mark.parametrize("case_id", ["C097"])
def test_case_known_not_to_exist(case_id: str, hub: Any, fetcher: Make) -> None:
    """A 404 leaves "known not to exist" in the cache; when the file appears later, it is fetched."""
    data = gguf()
    fetch = fetcher(hub)
    fetch.know(data)
    absent = fetch.blobs.parent / ".no_exist" / "0123456789abcdef0123456789abcdef01234567"
    absent.mkdir(parents=True)
    (absent / MODEL).touch()
    (fetch.blobs.parent / "refs").mkdir()
    (fetch.blobs.parent / "refs" / "main").write_text(absent.name)
    offline = fetch("tiny", offline=True)
    assert offline["kind"] == "ModelUnavailableError", CASES[case_id]["expected"]
    hub.files[MODEL] = data
    assert Path(fetch("tiny")["path"]).read_bytes() == data


NO_LINKS = "import os\ndef no(*a, **k): raise OSError(1314, 'A required privilege is not held')\nos.symlink = no"


@pytest.mark.parametrize("case_id", ["C102"])
def test_case_no_symlinks(case_id: str, hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    got = fetch("tiny", first=NO_LINKS)
    path = Path(got["path"])
    assert path.read_bytes() == data and not path.is_symlink()
    assert not (fetch.blobs / sha(data)).exists(), "two copies of a model take twice the disk"
    assert fetch("tiny", first=NO_LINKS, offline=True)["path"] == str(path), CASES[case_id]["expected"]


def test_a_blob_without_an_entry_is_checked_before_it_is_used(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = data
    fetch = fetcher(hub)
    fetch.know(data)
    fetch.blobs.mkdir(parents=True)
    for left in (bytes([1]) + data[1:], data):
        (fetch.blobs / sha(data)).write_bytes(left)
        path = Path(fetch("tiny")["path"])
        assert path.read_bytes() == data
        path.unlink()
    assert len(hub.asked("GET", "resolve")) == 1, "the whole one is not fetched again"


def test_token_goes_to_the_hub_and_not_to_the_cdn(hub: Any, other_host: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL] = other_host.files[MODEL] = data
    hub.redirect_to = other_host.url
    fetch = fetcher(hub)
    fetch.know(data)
    fetch.env["HF_TOKEN"] = "hf_secret"
    assert Path(fetch("tiny")["path"]).read_bytes() == data
    assert all(h.get("authorization") == "Bearer hf_secret" for _, h in hub.asked("GET", "resolve"))
    (cdn,) = other_host.asked("GET")
    assert "authorization" not in cdn[1]


REFUSALS: dict[str, tuple[dict[str, tuple[int, str]], str]] = {
    "401": ({"head": (401, "")}, "HF_TOKEN"),
    "403": ({"head": (403, "")}, "403"),
    "gated": ({"head": (403, "GatedRepo")}, "accept its terms"),
    "404 file": ({"head": (404, "EntryNotFound")}, "has no acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "404 repository": ({"head": (404, "RepoNotFound")}, "spelling"),
    "429": ({"head": (429, "")}, "429"),
    "500": ({"head": (500, "")}, "500"),
    "503 on GET": ({"get": (503, "")}, "503"),
    "403 on GET": ({"get": (403, "")}, "403"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_said_in_one_line(name: str, hub: Any, fetcher: Make) -> None:
    statuses, says = REFUSALS[name]
    data = gguf()
    hub.files[MODEL], hub.statuses = data, statuses
    fetch = fetcher(hub)
    fetch.know(data)
    got = fetch("tiny")
    assert got["kind"] == "ModelUnavailableError"
    assert says in got["error"] and "\n" not in got["error"]
    assert "no published package carries it" in got["error"], "every source is named with its reason"


def test_unreachable_hub(fetcher: Make) -> None:
    fetch = fetcher()
    fetch.know(gguf())
    got = fetch("tiny")
    assert got["kind"] == "ModelUnavailableError"
    assert "connection refused" in got["error"] and "HF_ENDPOINT" in got["error"]
    fetch.env["HF_ENDPOINT"] = "http://hub.invalid"
    assert "hub.invalid: the name does not resolve" in fetch("tiny")["error"]
    assert "hub.invalid" in fetch("hf:acme/tiny-GGUF")["error"]


def test_something_that_is_no_hub(index: Any, fetcher: Make) -> None:
    """A captive portal answers everything: it must not be taken for a hub, nor its page for a model."""
    fetch = fetcher(index)
    fetch.know(gguf())
    assert fetch("tiny")["kind"] == "ModelUnavailableError"


def test_two_processes_fetch_once(hub: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files[MODEL], hub.slow_s = data, 0.05
    fetch = fetcher(hub)
    fetch.know(data)
    running = [fetch.start("tiny") for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in running]
    assert {answer.get("path") for answer in answers} == {answers[0]["path"]}
    assert len(hub.asked("GET", "resolve")) == 1


def test_split_model_is_fetched_whole(hub: Any, fetcher: Make) -> None:
    case = CASES["C100"]
    hub.files = {name: gguf(5_000, seed=n) for n, name in enumerate(case["input"]["repo_files"])}
    fetch = fetcher(hub)
    path = Path(fetch("hf:acme/tiny-GGUF:Q8_0")["path"])
    assert path.name == case["expected"]["load_path"]
    assert {item.name: item.read_bytes() for item in path.parent.iterdir()} == hub.files
    hub.requests.clear()
    assert fetch("hf:acme/tiny-GGUF:q8_0")["path"] == str(path)
    assert hub.requests == []
    path.with_name(case["input"]["repo_files"][1]).unlink()
    assert "error" in fetch("hf:acme/tiny-GGUF:q8_0", offline=True)
    assert "00002-of-00003" in fetch(str(path))["error"]


def test_wanted_quantisation_is_not_there(hub: Any, fetcher: Make) -> None:
    case = CASES["C098"]
    hub.files = {name: gguf(100) for name in case["input"]["repo_files"]}
    got = fetcher(hub)(f"hf:acme/tiny-GGUF:{case['input']['wanted']}")
    assert got["kind"] == "QuantNotFoundError"
    assert all(word in got["error"] for word in case["expected"]["error_mentions"])
    assert hub.asked("GET", "resolve") == []


def test_unknown_repository_and_file(hub: Any, fetcher: Make) -> None:
    hub.files[MODEL] = gguf()
    fetch = fetcher(hub)
    assert fetch("hf:nobody/nothing")["kind"] == "ModelNotFoundError"
    got = fetch("hf:acme/tiny-GGUF/other.gguf")
    assert got["kind"] == "QuantNotFoundError" and MODEL in got["error"]


def test_a_browser_address_is_the_file_itself(hub: Any, fetcher: Make) -> None:
    hub.files[MODEL] = data = gguf()
    got = fetcher(hub)(f"{hub.url}/acme/tiny-GGUF/blob/main/{MODEL}")
    assert Path(got["path"]).read_bytes() == data


def test_pointer_file_in_a_repository_is_refused(hub: Any, fetcher: Make) -> None:
    hub.files[MODEL] = CASES["C089"]["input"]["local_file_text"].encode()
    got = fetcher(hub)("hf:acme/tiny-GGUF")
    assert got["kind"] == "BadModelFileError" and "LFS" in got["error"]


def test_a_full_disk_is_said_before_the_transfer(hub: Any, fetcher: Make) -> None:
    hub.files[MODEL] = data = gguf()
    fetch = fetcher(hub)
    fetch.know(data, size_bytes=None)
    tiny_disk = (
        "import shutil, collections\n"
        "usage = collections.namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda path: usage(10**6, 10**6 - 1000, 1000)"
    )
    got = fetch("tiny", first=tiny_disk)
    assert got["kind"] == "DiskSpaceError" and "200,000" in got["error"] and "1,000" in got["error"]
    assert hub.asked("GET", "resolve") == []
