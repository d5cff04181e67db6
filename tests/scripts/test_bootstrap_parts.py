"""The parts of set-up that install nothing: arguments, stamps, causes of failures, finding a Python."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "bootstrap"))  # as scripts/run does: it is no part of the package

from laploop_setup import causes, checks, llama, main, newer_python, stamp  # noqa: E402
from laploop_setup.places import Places, UsageError  # noqa: E402

PLACES = Places(ROOT)


@pytest.mark.parametrize(
    ("arguments", "gpu", "reinstall", "timings", "rest"),
    [
        (["--gpu", "cuda", "chat"], "cuda", False, False, ["chat"]),
        (
            ["--gpu=vulkan", "--reinstall", "--timings", "-m", "x", "q"],
            "vulkan",
            True,
            True,
            ["-m", "x", "q"],
        ),
        (["what is", "--gpu", "cuda"], None, False, False, ["what is", "--gpu", "cuda"]),
        ([], None, False, False, []),
    ],
)
def test_flags_of_set_up_are_taken_from_the_front_only(
    arguments: list[str], gpu: str | None, reinstall: bool, timings: bool, rest: list[str]
) -> None:
    wanted, told_timings, others = main.own_flags(arguments)
    assert (wanted.gpu, wanted.reinstall, told_timings, others) == (gpu, reinstall, timings, rest)


@pytest.mark.parametrize("arguments", [["--gpu", "nvidia"], ["--gpu"], ["--gpu="]])
def test_an_unknown_backend_is_refused_with_the_choices(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="cpu, cuda, vulkan, metal"):
        main.own_flags(arguments)


@pytest.mark.parametrize(
    ("arguments", "environment", "needs"),
    [
        (["what time is it?"], {}, True),
        (["--json", "what time is it?"], {}, True),
        (["demo"], {}, True),
        (["chat"], {}, True),
        (["what time is it?"], {"LAPLOOP_MODEL": "smollm2-135m"}, False),
        (["-m", "smollm2-135m", "what?"], {}, False),
        (["--model=smollm2-135m", "what?"], {}, False),
        (["-hf", "owner/repo", "what?"], {}, False),
        (["ask", "--", "-m"], {}, True),
        (["models", "list"], {}, False),
        (["tools"], {}, False),
        (["chat", "--help"], {}, False),
        (["--version"], {}, False),
        ([], {}, False),
    ],
)
def test_the_default_model_is_fetched_only_for_a_command_that_would_load_it(
    arguments: list[str], environment: dict[str, str], needs: bool
) -> None:
    assert main.needs_default_model(arguments, environment) is needs


def test_cmake_arguments_of_the_user_come_last_where_they_win() -> None:
    text = llama.cmake_arguments("vulkan", {"CMAKE_ARGS": "-DGGML_NATIVE=OFF"})
    assert text.split()[-2:] == ["-DGGML_VULKAN=on", "-DGGML_NATIVE=OFF"]
    assert "-DLLAMA_BUILD_COMMON=OFF" in text
    assert llama.cmake_arguments("cpu", {}) == text.removesuffix(" -DGGML_VULKAN=on -DGGML_NATIVE=OFF")


def test_an_index_that_accepts_and_never_answers_counts_as_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert not llama.index_offers(address, "0.3.36", wait_s=0.3)


def test_the_index_of_prebuilt_wheels_can_be_another_one_or_none() -> None:
    assert llama.wheel_index({}) == llama.WHEEL_INDEX
    assert llama.wheel_index({"LAPLOOP_LLAMA_WHEELS": "http://127.0.0.1:1/whl/"}) == "http://127.0.0.1:1/whl"
    assert llama.wheel_index({"LAPLOOP_LLAMA_WHEELS": "off"}) == ""


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 0}', '{"format": 1, "unknown": 1}', "\x00\xff"])
def test_a_damaged_stamp_counts_as_nothing_done(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "stamp.json"
    path.write_text(damage, encoding="latin-1")
    assert stamp.load(path) == stamp.Stamp()


def test_a_stamp_reads_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "stamp.json"
    saved = stamp.Stamp("/usr/bin/python3", "3.12.1", "cpu", "0.3.36", ("dev",), "a", "b")
    saved.save(path)
    assert stamp.load(path) == saved
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(path.read_text())["gpu"] == "cpu"


def test_the_version_of_llama_cpp_is_that_of_the_constraints() -> None:
    version = stamp.pinned(PLACES, "llama-cpp-python")
    assert f"llama-cpp-python=={version}" in (ROOT / "constraints.txt").read_text().splitlines()
    with pytest.raises(ValueError, match="does not pin no-such-package"):
        stamp.pinned(PLACES, "no-such-package")


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("Failed to resolve 'x' ([Errno -3] Temporary failure in name resolution)", "cannot be reached"),
        ("  CMake Error: CMAKE_C_COMPILER not set, after EnableLanguage", "no C++ compiler"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory ran out"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("Could not find nvcc, please set CUDAToolkit_ROOT", "no CUDA toolkit"),
        ("Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "no Vulkan SDK"),
        ("The virtual environment was not created: ensurepip is not available.", "without venv"),
        ("ERROR: No matching distribution found for numpy==9", "lacks a version"),
        ("ERROR: Could not find a version (from versions: none)", "cannot be reached or does not have"),
    ],
)
def test_a_failure_names_its_likely_cause_and_the_log(output: str, cause: str, tmp_path: Path) -> None:
    line = causes.failure(output, "building", tmp_path / "build.log")
    assert cause in line
    assert str(tmp_path / "build.log") in line
    assert "\n" not in line


def test_a_failure_of_no_known_cause_quotes_the_first_error() -> None:
    line = causes.failure("Collecting x\nERROR: the widget is bent\nERROR: more", "installing", None)
    assert line == "installing failed: the widget is bent"


def fake_python(path: Path, answer: str, code: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{answer}'\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
def test_a_shim_that_fails_or_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """pyenv puts python3.12 on PATH even while no 3.12 is selected; calling it only prints an error."""
    assert newer_python.usable(sys.executable)
    assert not newer_python.usable(fake_python(tmp_path / "shim", "", 127))
    assert not newer_python.usable(fake_python(tmp_path / "old", "3.9"))
    assert not newer_python.usable(fake_python(tmp_path / "odd", "no version"))
    assert not newer_python.usable(str(tmp_path / "absent"))


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
def test_newer_pythons_are_looked_for_on_path_and_in_pyenv(tmp_path: Path) -> None:
    on_path = fake_python(tmp_path / "bin" / "python3.12", "3.12")
    in_pyenv = fake_python(tmp_path / "pyenv" / "versions" / "3.11.4" / "bin" / "python", "3.11")
    assert newer_python.candidates(str(tmp_path / "bin"), str(tmp_path / "pyenv")) == [on_path, in_pyenv]


def test_pytest_leaves_slow_tests_out_unless_told_otherwise() -> None:
    assert checks.pytest_command(PLACES, [])[-2:] == ["-m", "not slow"]
    assert checks.pytest_command(PLACES, ["-x"])[-3:] == ["-m", "not slow", "-x"]
    assert checks.pytest_command(PLACES, ["-m", "slow"])[-2:] == ["-m", "slow"]


def test_the_closing_line_of_a_program_is_kept_and_all_its_output_shown(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    code = "print('a' * 70000); print('3 passed in 1 s'); print(); raise SystemExit(5)"
    status, closing = checks._echoed([sys.executable, "-c", code], PLACES)
    assert (status, closing) == (5, "3 passed in 1 s")
    assert capfdbinary.readouterr().out.count(b"a") == 70000 + 1


def test_pytest_does_not_inherit_a_deaf_ear_for_ctrl_c() -> None:
    """SIGINT was ignored before pytest was started: it and all that its tests started were deaf to it."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert checks._echoed([sys.executable, "-c", code], PLACES) == (0, "True")
