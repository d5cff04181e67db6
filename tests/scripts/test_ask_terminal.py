"""`laploop ask` on a real pseudo-terminal: what reaches the screen, and Ctrl-C. POSIX only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")

CHILD = Path(__file__).with_name("ask_child.py")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'
HANG = '<tool_call>\n{"name": "hang", "arguments": {}}\n</tool_call>'


@contextlib.contextmanager
def on_a_terminal(turns: list[str], **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The child on a pseudo-terminal of 60 columns; yields the process and our end."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, str(CHILD), json.dumps(turns)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", **env},
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def read_until(ours: int, words: str | None) -> str:
    """What the terminal got, up to `words` (None: up to the end)."""
    got = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while piece := os.read(ours, 4096):
            got += piece
            if words is not None and words in got.decode("utf-8", "replace"):
                break
    return got.decode("utf-8", "replace")


def test_a_terminal_gets_calls_and_markdown() -> None:
    with on_a_terminal([CALL, "It is **31** degrees.\n\n- humid\n"]) as (process, ours):
        shown = read_until(ours, None)
        assert process.wait(20) == 0
    assert '→ get_weather(city="北京")' in shown
    assert "• humid" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "\x1b[1m31" in shown


def test_a_terminal_whose_encoding_lacks_a_character_gets_a_question_mark() -> None:
    """Regression: UnicodeEncodeError, from the first arrow or turning dots on."""
    with on_a_terminal([CALL, "It is 31 度."], PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C") as (process, ours):
        shown = read_until(ours, None)
        assert process.wait(20) == 0
    assert '? get_weather(city="' in shown and "It is 31 ?." in shown


def test_no_color_is_honoured() -> None:
    with on_a_terminal([CALL, "fine"], NO_COLOR="1") as (process, ours):
        shown = read_until(ours, None)
        assert process.wait(20) == 0
    colours = [c for codes in re.findall(r"\x1b\[([0-9;]*)m", shown) for c in codes.split(";")]
    assert not [c for c in colours if c and int(c) >= 30]


def test_escape_sequences_of_a_model_do_not_reach_the_terminal() -> None:
    with on_a_terminal(["\x1b]0;owned\x07 \x9b2J done"]) as (process, ours):
        shown = read_until(ours, None)
        assert process.wait(20) == 0
    assert "\\x1b]0;owned" in shown
    assert "\x1b]0;" not in shown
    assert "\x9b" not in shown


@pytest.mark.parametrize(
    ("typed", "shown"),
    [(b"y\r", "a note is saved"), (b"n\r", "did not allow"), (b"\x04", "did not allow"), (b"\x03", "interrupted")],
)
def test_a_call_that_writes_waits_for_a_yes(typed: bytes, shown: str) -> None:
    """Ctrl-D is a no, Ctrl-C ends the run."""
    save = '<tool_call>\n{"name": "save", "arguments": {"text": "a note"}}\n</tool_call>'
    with on_a_terminal([save, "Done."]) as (process, ours):
        seen = read_until(ours, "ne[v]er:")
        os.write(ours, typed)
        after = read_until(ours, None)
        assert process.wait(20) == (130 if shown == "interrupted" else 0)
    assert 'text = "a note"' in seen and "is saved" not in seen
    assert shown in after


@pytest.mark.parametrize("turns", [[HANG, "never"], [HANG + "\n" + CALL, "never"]])
def test_ctrl_c_ends_cleanly_while_a_tool_hangs(turns: list[str]) -> None:
    with on_a_terminal(turns) as (process, ours):
        shown = read_until(ours, "HANGS")
        process.send_signal(signal.SIGINT)
        shown += read_until(ours, None)
        assert process.wait(20) == 130, shown
    assert "laploop: interrupted" in shown
    assert "Traceback" not in shown


def test_work_in_native_code_does_not_hold_up_ctrl_c() -> None:
    """The thread stands in a call that no signal reaches, as a native load or decode does."""
    script = (
        "import threading, sys, time; from laploop.scripts import background, cli\n"
        "def load():\n print('LOADS', flush=True); time.sleep(40)\n"
        "cli.cli.main = lambda **_: background.call(load)\n"
        "background.leave(cli.run(['ask', 'x']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "LOADS\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors.strip()) == (130, "laploop: interrupted")
