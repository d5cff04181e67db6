"""`laploop ask` from the question to the exit code, over a scripted model; on a real pseudo-terminal where it
matters.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from laploop.agent import Agent
from laploop.models import ModelError, ScriptedModel
from laploop.scripts import background
from laploop.scripts.ask import answer, read_question, report
from laploop.scripts.terminal import ProgressView

CHILD = Path(__file__).with_name("ask_child.py")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'


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
        ([f"<tool_call>\n{{{n}\n</tool_call>" for n in "abc"], 3, "cannot be read"),
    ],
)
def test_exit_codes_and_the_reason(turns: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
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
        [sys.executable, str(CHILD), json.dumps(["One moment. " + CALL, "**31** 度"])],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "**31** 度\n")
    assert done.stderr.splitlines()[0] == '→ get_weather(city="北京")'
    assert "\x1b" not in done.stderr


def test_without_a_terminal_a_call_that_writes_is_denied_and_it_says_so() -> None:
    save = '<tool_call>\n{"name": "save", "arguments": {"text": "a note"}}\n</tool_call>'
    done = subprocess.run(
        [sys.executable, str(CHILD), json.dumps([save, "It was not saved."])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "It was not saved.\n")
    assert "! not allowed: save (there is no terminal to ask on; see --approve)" in done.stderr.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
@pytest.mark.parametrize("to", ["/dev/full", "a pipe that nobody reads", None])
def test_the_answer_comes_even_where_stderr_cannot_be_written(to: str | None) -> None:
    """Regression: the first call line ended the run, and the answer was lost."""
    reader, writer = os.pipe()
    os.close(reader)
    target = os.open(to, os.O_WRONLY) if to == "/dev/full" and Path(to).exists() else writer
    done = subprocess.run(
        [sys.executable, str(CHILD), json.dumps([CALL, "31 度"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=target,
        encoding="utf-8",
        preexec_fn=None if to else lambda: os.close(2),
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "31 度\n")


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
