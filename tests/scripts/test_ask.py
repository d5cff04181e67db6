"""`laploop ask` from the question to the exit code, over a scripted model; on a real pseudo-terminal where it
matters.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import click
import pytest
from laploop.agent import Agent
from laploop.models import ModelError, ScriptedModel
from laploop.scripts import background
from laploop.scripts.ask import answer, read_question, report
from laploop.scripts.terminal import ProgressView

# Runs the real path of `ask` over a scripted model: only loading is left out. Turns come as JSON.
CHILD = """
import json, sys, threading
from laploop.models import ScriptedModel
from laploop.scripts import ask, cli, background, terminal
from laploop.agent import Agent
from laploop.tools import tool

@tool
def get_weather(city: str) -> str:
    '''Weather.

    Args:
        city: where
    '''
    return city + ' 31'

@tool(timeout_s=60)
def hang() -> str:
    '''Hang.'''
    print('HANGS', file=sys.stderr, flush=True)
    threading.Event().wait(50)
    return ''

def work(args):
    agent = Agent(ScriptedModel(json.loads(sys.argv[1])), [get_weather, hang])
    return ask.report(ask.answer(agent, 'question', terminal.make_view()))

cli.cli.main = lambda **_: work(_['args'])
sys.argv[0] = 'laploop'
code = cli.run(['ask', 'x'])
background.leave(code)
"""
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'
HANG = '<tool_call>\n{"name": "hang", "arguments": {}}\n</tool_call>'


def test_the_question_is_the_words_or_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_question(["how", "hot"]) == "how hot"
    for words in (["-"], []):
        monkeypatch.setattr(sys, "stdin", io.StringIO("from stdin\n"))
        assert read_question(words) == "from stdin"
    for words, text in ((["-"], ""), ([], " \n"), ([" "], "unused")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(click.UsageError, match="no question"):
            read_question(words)


@pytest.mark.parametrize(
    ("turns", "code", "words"),
    [
        (["fine"], 0, ""),
        ([{"raw": "half", "finish": "length"}], 3, "token limit"),
        (["", ""], 3, "no text"),
        ([f"<tool_call>\n{{{n}\n</tool_call>" for n in "ab"], 3, "cannot be read"),
    ],
)
def test_exit_codes_and_the_reason(
    turns: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = answer(Agent(ScriptedModel(turns)), "?", ProgressView())
    assert report(result) == code
    err = [line for line in capsys.readouterr().err.splitlines() if line.startswith("laploop: ")]
    assert [words in line for line in err] == ([True] if words else [])


def test_an_answer_at_the_cap_counts_as_an_answer() -> None:
    agent = Agent(ScriptedModel([CALL, "from what I have"]), max_rounds=1)
    assert report(answer(agent, "?", ProgressView())) == 0


def test_errors_of_the_model_come_through() -> None:
    with pytest.raises(ModelError):
        answer(Agent(ScriptedModel([])), "?", ProgressView())
    assert background.wait(5)


def test_in_a_pipe_only_the_answer_is_on_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(["One moment. " + CALL, "**31** 度"])],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "**31** 度\n")
    assert done.stderr.splitlines()[0] == '→ get_weather(city="北京")'
    assert "\x1b" not in done.stderr


pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")


@contextlib.contextmanager
def on_a_terminal(turns: list[str], **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The child on a pseudo-terminal of 60 columns; yields the process and our end."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(turns)],
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


def test_background_work_gives_its_items_and_its_error() -> None:
    def work() -> Iterator[int]:
        yield from range(1000)
        raise ValueError("at the end")

    got: list[int] = []
    with pytest.raises(ValueError, match="at the end"):
        for item in background.iterate(work):
            got.append(item)
    assert got == list(range(1000))
    assert background.call(lambda: 5) == 5
    assert background.wait(5)
    slow = background.iterate(lambda: iter([time.sleep(0.3)]))
    assert background.wait(0), "work begins when it is first asked for an item"
    assert list(slow) == [None]
    assert not background.is_busy()
