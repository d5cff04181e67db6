"""The file that keeps the lines typed in `laploop chat`: whatever is wrong with it, the chat goes on without it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from laploop.scripts.chat import prompted_lines


def typed(keys: str) -> list[str]:
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        return list(prompted_lines("title"))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("LAPLOOP_DATA_DIR")
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return tmp_path / "home"


def told_once(capsys: pytest.CaptureFixture[str], why: str) -> None:
    """One line of warning, however many lines could not be kept."""
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("laploop: ")]
    assert len(told) == 1 and "not kept for the next chat" in told[0] and why in told[0]


def test_a_home_that_cannot_be_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: the chat ended before its first line."""
    home.write_text("a file where the home should be")
    assert typed("one\rtwo\r\x04") == ["one", "two"]
    told_once(capsys, "chat-history.txt")


def test_a_folder_in_its_place(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: "Unhandled exception in event loop … Press ENTER to continue"."""
    from platformdirs import user_data_path

    (user_data_path("laploop", appauthor=False) / "chat-history.txt").mkdir(parents=True)
    assert typed("one\rtwo\r\x04") == ["one", "two"]
    told_once(capsys, "chat-history.txt")


@contextlib.contextmanager
def small_files(n_bytes: int) -> Iterator[None]:
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: the first line that could not be kept ended the chat with an error of the file."""
    assert typed("kept\r\x04") == ["kept"]
    with small_files(60):
        assert typed("one\rtwo\r\x04") == ["one", "two"]
    told_once(capsys, "File too large")


def test_bytes_that_are_no_text_are_history_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from platformdirs import user_data_path

    file = user_data_path("laploop", appauthor=False) / "chat-history.txt"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(range(256)) * 4 + b"\n+last\n")
    assert typed("\x1b[A\r\x04") == ["last"]
    assert "laploop: " not in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_only_the_user_can_read_what_was_typed(home: Path) -> None:
    """Regression: the file was readable by everybody; one of before is mended."""
    assert typed("secret\r\x04") == ["secret"]
    (file,) = home.rglob("chat-history.txt")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    assert typed("more\r\x04") == ["more"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
