"""Traces on disk: whole after a kill, without secrets, bounded, and never in the way of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, Redaction, Trace, TraceError, TraceFolder
from laploop.agent.redaction import RULES
from laploop.agent.trace import HEAD
from laploop.models import ScriptedModel
from laploop.tools import tool

N_KILLED = 100
# Forks, and each child makes runs until it is killed; what it saw of them, it writes to a file of its own.
PARENT = r"""
import os, random, signal, sys, time
from pathlib import Path
from laploop.agent import Agent, TraceFolder
from laploop.models import ScriptedModel
from laploop.tools import tool

@tool
def look(n: int) -> str:
    '''Look at a number.

    Args:
        n: which
    '''
    return 'seen ' * 50 + str(n)

def make_runs(folder):
    seen = os.open(folder / 'seen', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for run in range(1_000):
        turns = [f'<tool_call>\n{{"name": "look", "arguments": {{"n": {n}}}}}\n</tool_call>' for n in range(4)]
        agent = Agent(ScriptedModel([*turns, 'done']), [look], traces=TraceFolder(folder))
        for event in agent.stream('go'):
            os.write(seen, f'{run} {type(event).__name__}\n'.encode())

dice = random.Random(1)
for number in range(int(sys.argv[2])):
    folder = Path(sys.argv[1]) / str(number)
    folder.mkdir()
    child = os.fork()
    if not child:
        make_runs(folder)
    while not (folder / 'seen').exists() or not (folder / 'seen').stat().st_size:
        time.sleep(0.001)
    time.sleep(dice.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@tool
def fetch(password: str, note: str) -> str:
    """Fetch something.

    Args:
        password: of the account
        note: anything
    """
    return f"password: '{password}' and {note}"


def test_the_file_holds_what_the_result_holds(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "traces")
    result = Agent(ScriptedModel(["二"]), traces=folder).run("一加一？")
    read = Trace.read(folder.find())
    assert read == result.trace
    assert not read.is_cut
    if os.name == "posix":
        assert folder.find().stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "traces").stat().st_mode & 0o777 == 0o700


def test_without_the_option_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAPLOOP_DATA_DIR", str(tmp_path))
    Agent(ScriptedModel(["ok"])).run("hi")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_killed_at_any_moment_every_trace_reads_to_its_last_event(tmp_path: Path) -> None:
    """kill -9 during a hundred runs: every trace reads, and holds every event that its caller had seen."""
    subprocess.run([sys.executable, "-c", PARENT, str(tmp_path), str(N_KILLED)], check=True)
    n_in_the_middle = 0
    for number in range(N_KILLED):
        folder = tmp_path / str(number)
        seen = [line.split() for line in (folder / "seen").read_text().splitlines()]
        traces = [Trace.read(path) for path in reversed(TraceFolder(folder).traces()) if path.stat().st_size]
        for run, trace in enumerate(traces):
            names = [name for at, name in seen if int(at) == run]
            kept = [name for name in names if name not in ("TextDelta", "ReasoningDelta", "CallBegun")]
            assert not kept or len(trace) >= 1 + len(kept)
        n_in_the_middle += [r["type"] for r in traces[-1].records[-1:]] != ["run_finished"]
    assert n_in_the_middle > N_KILLED // 2


@given(st.integers(0, 10_000))
def test_cut_anywhere_it_reads_to_the_last_whole_line(at: int) -> None:
    trace = Trace()
    for n in range(6):
        trace.add("thing", text="天气 " * n)
    data = trace.to_jsonl().encode()
    head = len((json.dumps(HEAD) + "\n").encode())
    at = head + at % (len(data) - head + 1)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        path.write_bytes(data[:at])
        read = Trace.read(path)
    n_whole = data[:at].count(b"\n") - 1
    assert read.records == trace.records[:n_whole]
    assert read.is_cut == (data[at - 1 : at] != b"\n")


SECRETS = (
    "sk-abcdefghijklmnopqrstuvwx",
    "hf_abcdefghijklmnopqrstuv",
    "ghp_abcdefghijklmnopqrstuv",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dGVzdHRlc3Q",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_of_a_known_shape_are_found_in_any_text(secret: str) -> None:
    value = {"a": [f"see {secret} there", {"b": json.dumps({"x": f"({secret})"})}]}
    text = json.dumps(Redaction().value(value))
    assert secret not in text
    assert json.dumps(secret)[1:-1] not in text
    assert "[redacted: " in text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password = hunter22", "hunter22"),
        ('{"api_key": "hunter22"}', "hunter22"),
        ('{\\"api-key\\": \\"hunter22\\"}', "hunter22"),
        ("Authorization: Bearer hunter2222", "hunter2222"),
        ("postgres://me:hunter22@host/db", "hunter22"),
        ("https://host/?access_token=hunter22&page=1", "hunter22"),
    ],
)
def test_secrets_behind_a_telling_name_are_found(text: str, left: str) -> None:
    assert left not in Redaction().text(text)
    assert Redaction(()).text(text) == text


@pytest.mark.parametrize(
    "text",
    ["What is a password?", "30 tokens", "The secret: be kind", "https://host:80/a@b", "skating-is-nice", "北京"],
)
def test_plain_text_stays(text: str) -> None:
    assert Redaction().text(text) == text


@given(st.dictionaries(st.sampled_from(["password", "note", "api_key"]), st.text(max_size=20)))
def test_arguments_stay_json(arguments: dict[str, str]) -> None:
    """A redacted trace can still be replayed."""
    text = Redaction().text(json.dumps(arguments))
    assert set(json.loads(text)) == set(arguments)


def test_secrets_are_in_the_result_and_not_in_the_file(tmp_path: Path, calls: Callable[..., str]) -> None:
    raw = calls(("fetch", {"password": "hunter22", "note": "sk-abcdefghijklmnopqrstuvwx"}))
    folder = TraceFolder(tmp_path)
    result = Agent(ScriptedModel([raw, "ok"]), [fetch], traces=folder).run("my password is in the call")
    assert "hunter22" in result.trace.to_jsonl()
    text = folder.find().read_text("utf-8")
    assert "hunter22" not in text
    assert "sk-abcdefghijklmnopqrstuvwx" not in text
    assert len(Trace.read(folder.find())) == len(result.trace)


def test_the_folder_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path, max_traces=3)
    for n in range(6):
        Agent(ScriptedModel(["ok"]), traces=folder).run(f"question {n}")
    asked = [Trace.read(path).records[0]["question"] for path in folder.traces()]
    assert asked == ["question 5", "question 4", "question 3"]
    small = TraceFolder(tmp_path, max_bytes=1)
    Agent(ScriptedModel(["ok"]), traces=small).run("last")
    assert [Trace.read(path).records[0]["question"] for path in folder.traces()] == ["last"]


def test_one_trace_is_bounded_and_says_so(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path, max_trace_bytes=5_000)
    result = Agent(ScriptedModel(["x" * 10_000]), traces=folder).run("hi")
    read = Trace.read(folder.find())
    assert result.answered
    assert [r["type"] for r in read] == ["run_started", "round_started", "trace_full"]
    assert folder.find().stat().st_size < 5_200


def test_a_folder_that_cannot_be_written_is_a_warning_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    agent = Agent(ScriptedModel(["ok"]), traces=TraceFolder(tmp_path / "file"))
    with pytest.warns(UserWarning, match="no trace is written"):
        assert agent.run("hi").answer == "ok"


def test_a_run_that_fails_or_is_left_says_so(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path)
    with pytest.raises(Exception, match="scripted"):
        Agent(ScriptedModel([]), traces=folder).run("hi")
    last = Trace.read(folder.find()).records[-1]
    assert (last["type"], last["error"]) == ("run_failed", "ModelError")
    stream = Agent(ScriptedModel(["ok"]), traces=folder).stream("hi")
    next(stream)
    stream.close()
    assert Trace.read(folder.find()).records[-1]["type"] == "run_broken_off"


@pytest.mark.parametrize(("content", "words"), [(b"", "first line"), (b"\xff\n", "utf-8"), (None, "no such file")])
def test_what_is_no_trace_is_an_error(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "t.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=words):
        Trace.read(path)


def test_the_hash_of_the_prompt_is_that_of_the_rendered_prompt(tiny_chat: Any, tmp_path: Path) -> None:
    import hashlib

    from laploop.models.requests.request import Request

    result = Agent(tiny_chat, system_prompt="Be brief.", max_tokens=4, seed=1, traces=tmp_path).run("hi")
    prompt = tiny_chat.render(Request.of(result.messages[:2], {}))
    record = Trace.read(TraceFolder(tmp_path).find()).of_type("round_finished")[0]
    assert record["prompt_sha256"] == hashlib.sha256(str(prompt).encode()).hexdigest()


def test_names_are_found_by_their_beginning_and_their_end(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path)
    for _ in range(2):
        Agent(ScriptedModel(["ok"]), traces=folder).run("hi")
    latest, oldest = folder.traces()
    assert folder.find() == latest
    assert folder.find(oldest.stem[-8:]) == folder.find(oldest.stem) == oldest
    for wrong in ("nothing", "2"):
        with pytest.raises(TraceError, match="trace list"):
            folder.find(wrong)


def test_every_rule_has_a_name() -> None:
    assert all(rule.name for rule in RULES)
