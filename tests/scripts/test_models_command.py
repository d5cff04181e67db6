"""`laploop models`: what it prints, where, and what it refuses; and how progress is told."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from laploop.models.files import web
from laploop.models.files.progress import Progress
from laploop.models.files.spec import UrlSpec
from laploop.models.files.store import Store
from laploop.scripts.progress import ProgressLines, progress_printer


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache and no network."""
    dropped = ("HF_", "LAPLOOP_", "HUGGING", "PIP_", "UV")
    env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    dead = "http://127.0.0.1:9"
    env.update(
        HOME=str(tmp_path),
        HF_HOME=str(tmp_path / "hf"),
        HF_ENDPOINT=dead,
        LAPLOOP_CACHE_DIR=str(tmp_path / "laploop"),
        PIP_INDEX_URL=f"{dead}/simple/",
        PIP_CONFIG_FILE=os.devnull,
        PIP_RETRIES="0",
    )
    return env


def run(home: dict[str, str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "laploop.scripts.cli", "models", *arguments],
        env=home,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        **options,
    )


def store_of(home: dict[str, str]) -> Store:
    return Store(Path(home["LAPLOOP_CACHE_DIR"]) / "models")


def write_model(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny\x1b[31m red")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_token_list(["<s>", "</s>", "a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_tensor("a", np.zeros((3, 64), dtype=np.float32))
    writer.add_tensor("b", np.zeros((1, 64), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_list_names_every_model_and_where_it_is(home: dict[str, str]) -> None:
    write_model(store_of(home).path("mine.gguf"))
    text = run(home, "list").stdout
    assert "qwen3-1.7b (default)" in text and "1,834 MB" in text and "not here; hub" in text
    assert "mine.gguf" in text
    rows = json.loads(run(home, "list", "--json").stdout)
    assert [row["name"] for row in rows][-1] is None and rows[-1]["file"] == rows[-1]["spec"] == "mine.gguf"
    assert rows[-1]["origin"] == "laploop"
    by_name = {row["name"]: row for row in rows}
    assert by_name["qwen3-1.7b"]["default"] and by_name["qwen3-1.7b"]["path"] is None
    assert by_name["smollm2-135m"]["sources"] == ["hub", "package index"]


def test_show_reads_the_header(home: dict[str, str], tmp_path: Path) -> None:
    path = write_model(tmp_path / "模型" / "tiny.gguf")
    facts = json.loads(run(home, "show", str(path), "--json").stdout)
    assert facts["architecture"] == "qwen3" and facts["path"] == str(path)
    assert facts["parameters"] == 4 * 64
    assert facts["quantisation"] == {"F32": "75.0 %", "F16": "25.0 %"}
    assert facts["context_length"] == 512 and facts["vocabulary"] == 3
    assert facts["special_tokens"] == {"bos": "0 <s>", "eos": "1 </s>"}
    assert facts["dialect"] == "qwen3" and facts["warnings"] == []
    assert facts["memory_bytes"] == {}, "longer contexts than it was trained for are left out"
    chosen = json.loads(run(home, "show", str(path), "-c", "256", "-c", "512", "-ctk", "q4_0", "--json").stdout)
    assert list(chosen["memory_bytes"]) == ["256 q4_0", "512 q4_0"]
    assert chosen["memory_bytes"]["512 q4_0"] > chosen["memory_bytes"]["256 q4_0"]
    text = run(home, "show", str(path)).stdout
    assert "qwen3" in text and "chat_template" in text
    assert "\x1b" not in text, "a model's name is somebody else's text"


def test_path_prints_only_the_path(home: dict[str, str], tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    done = run(home, "path", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such model": (["pull", "qwen9"], 1, "No model named 'qwen9'"),
    "no network": (["pull", "qwen3-1.7b"], 1, "connection refused"),
    "no network, hub spec": (["pull", "hf:a/b"], 1, "connection refused"),
    "offline": (["pull", "qwen3-1.7b", "--offline"], 1, "not on this machine"),
    "not here": (["path", "qwen3-1.7b"], 1, "models pull qwen3-1.7b"),
    "text file": (["show", "text.gguf"], 1, "text file"),
    "pointer": (["path", "pointer.gguf"], 1, "LFS pointer"),
    "half": (["show", "half.gguf"], 1, "incomplete"),
    "no such file": (["show", "none.gguf"], 1, "There is no file none.gguf"),
    "nothing to remove": (["rm", "smollm2-135m", "--yes"], 1, "does not hold smollm2-135m"),
    "unknown flag": (["list", "--jsn"], 2, "--json"),
    "unknown command": (["lst"], 2, "lst"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_a_code(name: str, home: dict[str, str], tmp_path: Path) -> None:
    arguments, code, says = WRONG[name]
    (tmp_path / "text.gguf").write_text("this is a note")
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    whole = write_model(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    done = run(home, *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert done.stdout == ""
    assert says in done.stderr and done.stderr.startswith("laploop: ") and done.stderr.count("\n") == 1


def test_rm_asks_and_removes_only_what_is_ours(home: dict[str, str], tmp_path: Path) -> None:
    store = store_of(home)
    path = write_model(store.path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    store.part(path.name).write_bytes(b"123")
    other = write_model(store.path("other.gguf"))
    refused = run(home, "rm", "smollm2-135m", input="n\n")
    assert refused.returncode != 0 and path.exists() and str(path) in refused.stderr
    assert run(home, "rm", "smollm2-135", "--yes").returncode == 1, "a near name is not taken for the name"
    assert run(home, "rm", "SMOLLM2-135m", input="y\n").returncode == 0
    assert not path.exists() and not store.part(path.name).exists() and other.exists()
    outside = write_model(tmp_path / "outside.gguf")
    assert run(home, "rm", str(outside), "--yes").returncode == 1 and outside.exists()


def test_other_programs_models_are_listed_with_their_origin_and_never_removed(home: dict[str, str]) -> None:
    model = write_model(Path(home["HOME"]) / ".lmstudio/models/acme/tiny-GGUF/tiny.gguf")
    (row,) = [row for row in json.loads(run(home, "list", "--json").stdout) if row["path"]]
    assert (row["origin"], row["spec"], row["path"]) == ("LM Studio", "hf:acme/tiny-GGUF/tiny.gguf", str(model))
    assert "LM Studio: " in run(home, "list").stdout
    assert json.loads(run(home, "show", row["spec"], "--json").stdout)["origin"] == "LM Studio"
    refused = run(home, "rm", row["spec"], "--yes")
    assert refused.returncode == 1 and model.exists()


def test_what_was_fetched_from_an_address_is_removed_by_it(home: dict[str, str]) -> None:
    spec = "https://host.invalid/tiny.gguf"
    path = write_model(store_of(home).path(web.stored_name(UrlSpec(spec))))
    assert run(home, "path", spec).stdout == f"{path}\n"
    assert run(home, "rm", spec, "--yes").returncode == 0 and not path.exists()


def test_verify_notes_a_hash_and_finds_a_changed_file(home: dict[str, str], tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    first, second = run(home, "verify", str(path)), run(home, "verify", str(path))
    assert "now noted" in first.stdout and "as expected" in second.stdout
    assert hashlib.sha256(path.read_bytes()).hexdigest() in second.stdout
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    changed = run(home, "verify", str(path))
    assert changed.returncode == 1 and "is not the file it should be" in changed.stderr and changed.stdout == ""


def test_fit_tells_the_machine_and_what_runs(home: dict[str, str]) -> None:
    told = json.loads(run(home, "fit", "--no-speed", "--json").stdout)
    assert told["machine"]["threads"] >= 1 and told["machine"]["processor"]
    rows = {row["name"]: row for row in told["models"]}
    assert rows["qwen3-8b:q4_k_m"]["needed_bytes"] > rows["qwen3-1.7b"]["needed_bytes"] > 1_800_000_000
    assert "smollm2-135m" in run(home, "fit", "--no-speed").stdout


def steps(total: int, source: str = "hub") -> list[Progress]:
    return [Progress("m.gguf", done, total, source) for done in range(0, total + 1, total // 100)]


def test_lines_are_few_and_end_at_100_percent() -> None:
    out, now = io.StringIO(), iter(range(1000))
    lines = ProgressLines(out, clock=lambda: next(now) / 2)
    for step in steps(10**9):
        lines(step)
    said = out.getvalue().splitlines()
    assert said[0] == "fetching m.gguf from the hub (1,000 MB)"
    assert said[-1].startswith("m.gguf: 100 %") and "MB/s" in said[-1]
    assert 15 <= len(said) <= 22


def test_quick_jobs_on_disk_are_silent_and_messages_are_not() -> None:
    out = io.StringIO()
    lines = ProgressLines(out, clock=lambda: 0.0)
    for step in steps(1000, "disk"):
        lines(step)
    assert out.getvalue() == ""
    for _ in range(2):
        lines(Progress("waiting for another process that fetches \x1b[1mm", 0, None, "disk"))
    assert out.getvalue() == "waiting for another process that fetches \\x1b[1mm\n"


def test_a_slow_job_speaks_every_ten_seconds() -> None:
    out = io.StringIO()
    now = iter(range(0, 1000, 5))
    lines = ProgressLines(out, clock=lambda: next(now))
    for done in range(8):
        lines(Progress("checking m.gguf", done, 10**6, "disk"))
    assert len(out.getvalue().splitlines()) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
def test_a_terminal_gets_a_bar_that_is_wiped() -> None:
    import pty

    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as terminal, progress_printer(terminal) as progress:
        for step in steps(10**6):
            progress(step)
        progress(Progress("checking m.gguf", 10, 100, "disk"))
        progress(Progress("a [bold]message", 0, None, "disk"))
    seen_bytes = b""
    with contextlib.suppress(OSError):  # Linux says EIO where others say end of file
        while piece := os.read(master, 100_000):
            seen_bytes += piece
    os.close(master)
    seen = seen_bytes.decode()
    assert "m.gguf" in seen and "checking m.gguf" in seen and "a [bold]message" in seen
    assert seen.rstrip().endswith("\x1b[2K")
