"""laploop's model folder: remembered hashes, parts, removal, locks that die with their process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models.errors import ChecksumError, DiskSpaceError
from laploop.models.files.part_file import PartFile
from laploop.models.files.progress import Progress
from laploop.models.files.store import Store, cache_dir, check_disk_space, sha256_of, write_json


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "models")


def test_place_is_settable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path))
    assert Store.default().root == tmp_path / "models"
    monkeypatch.delenv("LAPLOOP_CACHE_DIR")
    assert "laploop" in cache_dir().name


def test_a_hash_is_remembered_until_the_file_changes(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"one")
    digest = sha256_of(file)
    assert digest == hashlib.sha256(b"one").hexdigest()
    assert not store.is_verified(file, digest)
    store.remember(file, digest)
    assert store.is_verified(file, digest) and not store.is_verified(file, "0" * 64)
    os.utime(file, ns=(1, 1))
    assert not store.is_verified(file, digest)


def test_a_damaged_record_only_costs_a_hash(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"one")
    store.remember(file, "0" * 64)
    (record,) = (store.root / "verified").iterdir()
    for damage in (b"", b"{", b"[]", b"\xff\xfe"):
        record.write_bytes(damage)
        assert not store.is_verified(file, "0" * 64)


def test_a_folder_that_cannot_be_written_costs_a_hash_a_start_and_no_model(tmp_path: Path) -> None:
    """Regression: with the model in a shared cache and no place of one's own, every start ended in OSError."""
    (tmp_path / "file").write_text("where a folder should be")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    with pytest.warns(UserWarning, match=r"cannot be written.*m\.gguf.*every start.*LAPLOOP_CACHE_DIR"):
        Store(tmp_path / "file" / "models").remember(model, sha256_of(model))


def test_remove_takes_the_part_and_the_archives_too(store: Store) -> None:
    store.work("m.gguf").mkdir(parents=True)
    (store.work("m.gguf") / "1.whl").write_bytes(b"12345")
    for path in (store.path("m.gguf"), store.part("m.gguf"), store.path("other.gguf")):
        path.write_bytes(b"123")
    write_json(store.journal("m.gguf"), {})
    removed = {path.name: size for path, size in store.remove("m.gguf")}
    assert removed == {"m.gguf": 3, "m.gguf.part": 3, "m.gguf.part.json": 2, "m.gguf.work": 5}
    assert store.files() == [store.path("other.gguf")]


@given(data=st.binary(max_size=200), keep=st.none() | st.integers(0, 250), more=st.binary(max_size=50))
def test_part_file_is_what_is_on_disk(
    data: bytes, keep: int | None, more: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: the hash of a resumed part is the hash of the file, wherever it was resumed."""
    path = tmp_path_factory.mktemp("part") / "x.part"
    path.write_bytes(data)
    with PartFile(path, keep) as part:
        part.write(more)
        part.sync()
        expected = data[:keep] + more
        assert path.read_bytes() == expected
        assert (part.n_bytes, part.sha256()) == (len(expected), hashlib.sha256(expected).hexdigest())
        part.restart()
        part.write(b"x")
        assert part.sha256() == hashlib.sha256(b"x").hexdigest()


def test_finish_renames_or_deletes(tmp_path: Path) -> None:
    target = tmp_path / "out" / "m.gguf"
    for size, digest in ((4, None), (3, "0" * 64)):
        with PartFile(tmp_path / "m.part") as part:
            part.write(b"abc")
            with pytest.raises(ChecksumError, match="m from somewhere is not the published file"):
                part.finish(target, size, digest, "m from somewhere")
        assert not target.exists() and not (tmp_path / "m.part").exists()
    with PartFile(tmp_path / "m.part") as part:
        part.write(b"abc")
        part.finish(target, 3, hashlib.sha256(b"abc").hexdigest(), "m")
    assert target.read_bytes() == b"abc" and not (tmp_path / "m.part").exists()


def test_disk_space_is_asked_where_the_folder_will_be(tmp_path: Path) -> None:
    check_disk_space(tmp_path / "not" / "yet", 1, "m.gguf")
    with pytest.raises(DiskSpaceError, match=f"{2**60:,} bytes are needed"):
        check_disk_space(tmp_path / "not" / "yet", 2**60, "m.gguf")


HOLD = """
import sys
from pathlib import Path
from laploop.models.files.store import Store
with Store(Path(sys.argv[1])).lock("m"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_waits_and_dies_with_its_process(store: Store) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        told: list[Progress] = []

        def hear(progress: Progress) -> None:
            told.append(progress)
            holder.kill()  # while we wait

        with store.lock("other", hear):
            assert told == []
        with store.lock("m", hear):
            assert [progress.description for progress in told] == ["waiting for another process that fetches m"]


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.json"
    write_json(path, [1])
    write_json(path, {"b": 2})
    assert json.loads(path.read_text()) == {"b": 2}
    assert [item.name for item in path.parent.iterdir()] == ["x.json"]
