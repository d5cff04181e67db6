"""Named sessions: `laploop chat --session NAME` goes on where it stopped, however it stopped; `laploop sessions`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from exact import EXACT
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import RunFinished, Session, SessionFileError
from laploop.agent.session import state_path
from laploop.engine import EngineConfig
from laploop.models import ChatModel, ScriptedModel
from laploop.scripts import sessions
from laploop.scripts.chat import Conversation
from laploop.scripts.cli import run
from laploop.scripts.options import Options, UsageFault
from laploop.scripts.sessions import Keeper, all_sessions, opened, path_of, remove
from laploop.scripts.terminal import ProgressView


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAPLOOP_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


class Quiet(ProgressView):
    def show(self, event: object) -> None:
        assert not (isinstance(event, RunFinished) and not event.result.messages)


OPTIONS = Options(reasoning="off", temp=0.0, n_predict=12, no_tools=True)


def hold(model: ChatModel | ScriptedModel, name: str, *lines: str) -> str:
    """A chat; returns what it was greeted with."""
    with opened(name) as path, Keeper(path, model) as keeper:
        greeting = keeper.greeting()
        assert Conversation(model, [], OPTIONS, Quiet, keeper).hold(iter(lines)) == 0
    return greeting


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[ChatModel]:
    config = EngineConfig(n_ctx=1024, n_threads=1, prefix_cache_bytes=0, **EXACT)
    with ChatModel.load(tiny_path, config=config) as loaded:
        yield loaded


def fresh(model: ChatModel) -> ChatModel:
    """The same weights, as a new process finds them: it has read nothing."""
    return ChatModel.load(model.engine.path, config=model.engine.config)


# -- names


@pytest.mark.parametrize("name", ["work", "旅行计划", "a b-c_d.e", "Überblick", "😀", "x" * 100])
def test_a_name_is_a_file_in_the_folder(name: str, data: Path) -> None:
    assert path_of(name) == data / "sessions" / f"{name}.json"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "a\\b", "C:x", ".hidden", "a ", " a", "a.", "a\nb", "a\x00", "nul", "COM1.x",
     "a*", "\udcff", "x" * 101, "京" * 34],
)  # fmt: skip
def test_what_no_system_takes_is_no_name(name: str) -> None:
    with pytest.raises(UsageFault, match="name"):
        path_of(name)


@given(st.text(max_size=40))
def test_no_name_leaves_the_folder(name: str) -> None:
    try:
        path = path_of(name)
    except UsageFault:
        return
    assert path.parent == sessions.folder() and path.name not in (".json", "..json")
    assert path.resolve().parent == sessions.folder().resolve()


# -- going on


def test_a_chat_goes_on_where_the_last_one_stopped(model: ChatModel) -> None:
    """Messages and state: the second process computes only what is new, and says what it resumed."""
    with fresh(model) as first:
        assert hold(first, "talk", "hello", "more") == "Session talk begins."
    saved = Session.load(path_of("talk")).messages
    assert [m["role"] for m in saved] == ["user", "assistant"] * 2
    with fresh(model) as second:
        greeting = hold(second, "talk", "and more")
        assert second.engine._slots._all[0].cached
    assert greeting.startswith("Session talk: 4 messages, saved 20") and greeting.endswith(
        "tokens need not be read again."
    )
    assert Session.load(path_of("talk")).messages[:4] == saved
    with fresh(model) as third:
        resumed = Session.load(path_of("talk"), third)
        reply = third.create([*resumed.messages, {"role": "user", "content": "x"}], max_tokens=1, enable_thinking=False)
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == resumed.n_restored > 0


def test_the_messages_are_on_disk_after_each_answer_and_the_state_once_the_user_pauses(
    model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of("talk")
    monkeypatch.setattr(sessions, "IDLE_S", 1000.0)
    with opened("talk"), Keeper(path, model) as keeper:
        talk = Conversation(model, [], OPTIONS, Quiet, keeper)
        talk.hold(iter(["hello"]))
        assert len(Session.load(path).messages) == 2 and not state_path(path).exists()
        monkeypatch.setattr(sessions, "IDLE_S", 0.01)
        talk.hold(iter(["more"]))
        while not state_path(path).exists():
            time.sleep(0.01)
        before = path.read_bytes()
    assert path.read_bytes() == before


def test_clear_forgets_what_is_on_disk(model: ChatModel) -> None:
    hold(model, "talk", "hello")
    assert state_path(path_of("talk")).exists()
    hold(model, "talk", "/clear")
    assert Session.load(path_of("talk")).messages == []
    assert not state_path(path_of("talk")).exists()


def test_a_failed_question_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel(["Hello."]) as scripted:
        hold(scripted, "talk", "hi")
    before = path_of("talk").read_bytes()
    with ScriptedModel([]) as scripted, opened("talk") as path, Keeper(path, scripted) as keeper:
        assert keeper.greeting().endswith("they will be read anew.")
        assert Conversation(scripted, [], OPTIONS, Quiet, keeper).hold(iter(["again"])) == 1
    assert path_of("talk").read_bytes() == before
    assert "/clear" in capsys.readouterr().err


def test_a_disk_that_cannot_be_written_does_not_end_the_chat(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel(["One.", "Two."]) as scripted, opened("talk") as path, Keeper(path, scripted) as keeper:
        path.mkdir()
        assert Conversation(scripted, [], OPTIONS, Quiet, keeper).hold(iter(["a", "b"])) == 0
        assert [m["content"] for m in keeper.session.messages] == ["a", "One.", "b", "Two."]
    assert capsys.readouterr().err.count("cannot write the session") == 2


def test_a_file_that_is_no_session_is_told_and_kept(data: Path) -> None:
    path = path_of("talk")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with ScriptedModel([]) as scripted, pytest.raises(SessionFileError, match="not a session"):
        Keeper(path, scripted)
    assert path.read_text() == "{"


def test_what_is_no_file_is_not_waited_for(data: Path) -> None:
    """Regression: a pipe among the sessions held up the chat and the list for ever; a loop of links ended the list."""
    folder = path_of("talk").parent
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "zero.json").symlink_to("/dev/zero")
    with ScriptedModel([]) as scripted, pytest.raises(SessionFileError, match="it is no file"):
        Keeper(path_of("pipe"), scripted)
    assert {info.name: info.n_messages for info in all_sessions()} == {"pipe": None, "loop": None, "zero": None}
    for name in ("pipe", "loop", "zero"):
        remove(name)
    assert all_sessions() == []


# -- two processes


def child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "utf8", "-m", "laploop.scripts.cli", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip


def test_a_session_is_open_once(tiny_path: Path) -> None:
    """The second one is told before it loads a model, and the first goes on."""
    with opened("旅行"):
        second = child("chat", "-m", "no-such-model-anywhere", "--session", "旅行")
        out, err = second.communicate()
        assert (second.returncode, out) == (1, "")
        assert err.strip() == (
            "laploop: the session 旅行 is open in another laploop; leave it there (/exit), or choose another name"
        )
        assert run(["sessions", "rm", "旅行"]) == 2  # nothing was said yet, so that there is none
    with opened("旅行") as path:
        assert not path.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9")
def test_a_killed_chat_loses_at_most_the_unfinished_turn(model: ChatModel, data: Path) -> None:
    settings = ["-c", "1024", "-t", "1", "-fa", "on", "-ctk", "bf16", "-ctv", "bf16", "--prefix-cache", "0"]
    chat = [
        "chat",
        "-m",
        str(model.engine.path),
        *settings,
        "--no-tools",
        "--reasoning",
        "off",
        "-n",
        "8",
        "--session",
        "k",
    ]
    first = child(*chat)
    assert first.stdin and first.stdout and first.stderr
    for _ in range(2):
        n_before = len(Session.load(path_of("k")).messages) if path_of("k").exists() else 0
        first.stdin.write("hello\n")
        first.stdin.flush()
        while not (path_of("k").exists() and len(Session.load(path_of("k")).messages) > n_before):
            time.sleep(0.01)
    first.stdin.write("a question that is not answered yet\n")
    first.stdin.flush()
    first.kill()
    first.communicate()
    messages = Session.load(path_of("k")).messages
    assert len(messages) in (4, 6) and messages[0]["content"] == "hello"
    second = child(*chat)
    _, err = second.communicate("more\n")
    assert second.returncode == 0
    assert f"Session k: {len(messages)} messages" in err
    assert len(Session.load(path_of("k")).messages) == len(messages) + 2


# -- laploop sessions, and the bound


def test_sessions_are_listed_and_removed(model: ChatModel, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "list"]) == 0
    told = capsys.readouterr()
    assert told.out == "" and "no sessions yet" in told.err
    hold(model, "旅行", "hello")
    with ScriptedModel(["Hi.", "Hi."]) as scripted:
        hold(scripted, "work", "a", "b")
    (data / "sessions" / "odd.json").write_text("no")
    (data / "sessions" / "mine.txt").write_text("stays")
    capsys.readouterr()
    assert run(["sessions", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == ["odd", "work", "旅行"]
    assert "(unreadable)" in lines[0] and "4 messages" in lines[1] and "2 messages" in lines[2]
    assert run(["sessions", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    files = [path_of("旅行"), state_path(path_of("旅行"))]
    assert rows["旅行"]["size_bytes"] == sum(file.stat().st_size for file in files)
    assert (rows["work"]["n_messages"], rows["odd"]["n_messages"]) == (4, None)
    assert run(["sessions", "rm", "旅行", "odd"]) == 0
    assert "removed 旅行" in capsys.readouterr().out
    assert not any(file.exists() for file in files)
    assert (data / "sessions" / "mine.txt").exists()
    assert run(["sessions", "rm", "旅行"]) == 2
    assert "there is no session 旅行; the sessions are: work" in capsys.readouterr().err


def test_states_are_bounded_and_messages_stay(model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "b", "c"]
    hold(model, "a", "hello")
    monkeypatch.setattr(sessions, "MAX_STATES_BYTES", state_path(path_of("a")).stat().st_size * 5 // 2)
    for at, name in enumerate(names):
        hold(model, name, "hello")
        os.utime(state_path(path_of(name)), (at, at))
    assert [state_path(path_of(name)).exists() for name in names] == [False, True, True]
    assert all(Session.load(path_of(name)).messages for name in names)
    with fresh(model) as other:
        assert hold(other, "a", "more").endswith("they will be read anew.")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_only_the_user_can_look_into_the_folder(model: ChatModel, data: Path) -> None:
    hold(model, "talk", "hello")
    assert (data / "sessions").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (data / "sessions").iterdir()} == {0o600}


# -- /context


def test_context_tells_what_each_message_takes(model: ChatModel, capsys: pytest.CaptureFixture[str]) -> None:
    hold(model, "talk", "the quick brown fox\x1b[31m", "/context")
    lines = capsys.readouterr().err.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("The context holds"))
    numbers = [int(line.split()[0]) for line in lines[at + 1 :]]
    n_used = model.count_tokens(Session.load(path_of("talk")).messages)
    assert lines[at] == f"The context holds {n_used} tokens of 1,024; {1024 - n_used} are left."
    assert sum(numbers) == n_used
    assert any("user" in line and "the quick brown fox\\x1b" in line for line in lines)


def test_context_says_when_it_is_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel(["Hello."]) as scripted:
        hold(scripted, "talk", "/context", "hi", "/context")
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("The context")]
    assert told[0] == "The context holds about 0 tokens." and told[1].startswith("The context holds about ")
