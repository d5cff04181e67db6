"""`laploop cache`: what it prints, as text and as JSON, and that it touches states only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from laploop.engine.prefix_store import PrefixStore
from laploop.engine.state_file import StateKey

KEY = StateKey("weights", "f16", "f16", "auto", "build")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "laploop"


def store_of(home: Path) -> PrefixStore:
    return PrefixStore(home / "prefixes")


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LAPLOOP_")} | {"LAPLOOP_CACHE_DIR": str(home)}
    command = [sys.executable, "-m", "laploop.scripts.cli", "cache", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=False)


def fill(home: Path) -> PrefixStore:
    store = store_of(home)
    store.save(KEY, list(range(100)), b"x" * 3_000_000, "tiny\x1b[31m red")
    store.save(KEY, list(range(1, 1101)), b"x" * 1_000_000, "tiny")
    return store


def test_list_tells_model_tokens_size_and_last_use(home: Path) -> None:
    fill(home)
    lines = run(home, "list").stdout.splitlines()
    assert len(lines) == 2
    assert "1,100 tokens" in lines[0] and "1.0 MB" in lines[0]  # the latest first
    assert "100 tokens" in lines[1] and "3.0 MB" in lines[1] and "tiny\\x1b[31m red" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_json_holds_the_same(home: Path) -> None:
    store = fill(home)
    rows = json.loads(run(home, "list", "--json").stdout)
    assert [(row["n_tokens"], row["model"]) for row in rows] == [(1100, "tiny"), (100, "tiny\x1b[31m red")]
    assert sum(row["size_bytes"] for row in rows) == store.size_bytes()
    assert all(Path(row["path"]).is_file() for row in rows)
    facts = json.loads(run(home, "size", "--json").stdout)
    assert facts == {"states": 2, "size_bytes": store.size_bytes(), "path": str(store.folder)}


def test_a_damaged_state_is_listed_as_such(home: Path) -> None:
    store = fill(home)
    store.entries()[0].path.write_bytes(b"rubbish")
    assert "(unreadable)" in run(home, "list").stdout


def test_clear_removes_states_and_nothing_else(home: Path) -> None:
    store = fill(home)
    (home / "models").mkdir()
    (home / "models" / "mine.gguf").write_bytes(b"GGUF")
    done = run(home, "clear")
    assert (done.returncode, done.stdout) == (0, "removed 2 states (4.0 MB)\n")
    assert store.entries() == []
    assert (home / "models" / "mine.gguf").exists()
    assert run(home, "list").stdout == ""
    assert run(home, "size").stdout.startswith("0 states, 0.0 MB, in ")


def test_nothing_saved_yet_is_no_error(home: Path) -> None:
    for arguments in (["list"], ["size"], ["clear"]):
        done = run(home, *arguments)
        said = "There are no saved states yet.\n" if arguments == ["list"] else ""  # it was nothing at all
        assert (done.returncode, done.stderr) == (0, said)
    assert not home.exists()
