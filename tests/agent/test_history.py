"""Laws of histories: what check_history accepts, trimming and sessions keep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, AgentError, HistoryError, Session, SessionFileError, check_history, trim_history
from laploop.models import ScriptedModel

Messages = list[dict[str, Any]]


@st.composite
def histories(draw: st.DrawFn) -> Messages:
    """Valid histories: systems, questions, answers, and replies with up to three calls and their results."""
    messages: Messages = []
    for turn in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["system", "user", "assistant", "calls"]))
        if kind != "calls":
            messages.append({"role": kind, "content": draw(st.text(max_size=4))})
            continue
        ids = [f"call_{turn}_{n}" for n in range(draw(st.integers(1, 3)))]
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": i, "content": i} for i in draw(st.permutations(ids))]
    return messages


@given(histories(), st.integers(0, 12))
def test_trimming_keeps_a_valid_history_the_system_and_the_last_question(messages: Messages, keep: int) -> None:
    kept = trim_history(messages, keep)
    check_history(kept)
    assert [m for m in kept if m["role"] == "system"] == [m for m in messages if m["role"] == "system"]
    questions = [m for m in messages if m["role"] == "user"]
    assert not questions or questions[-1] in kept
    others = [m for m in kept if m["role"] != "system" and m is not (questions or [None])[-1]]
    assert len(others) <= keep


@given(histories())
def test_trimming_to_the_whole_length_changes_nothing(messages: Messages) -> None:
    assert trim_history(messages, len(messages)) == messages


@given(histories(), st.data())
def test_a_dropped_result_is_noticed(messages: Messages, data: st.DataObject) -> None:
    results = [n for n, m in enumerate(messages) if m["role"] == "tool"]
    if results:
        del messages[data.draw(st.sampled_from(results))]
        with pytest.raises(HistoryError, match="call_"):
            check_history(messages)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(HistoryError, match="-1"):
        trim_history([], -1)


@given(messages=histories())
def test_saved_and_loaded_is_the_same(tmp_path_factory: pytest.TempPathFactory, messages: Messages) -> None:
    path = tmp_path_factory.mktemp("session") / "deep" / "session.json"
    session = Session([m for m in messages if m["role"] != "system"])
    session.save(path)
    assert Session.load(path) == session
    assert [p.name for p in path.parent.iterdir()] == ["session.json"]


@contextlib.contextmanager
def small_files(n_bytes: int) -> Iterator[None]:
    """A disk that is full after `n_bytes` of any file."""
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    Session([{"role": "user", "content": "old"}]).save(path)
    with pytest.raises(TypeError):
        Session([{"role": "user", "content": object()}]).save(path)
    with small_files(100), pytest.raises(SessionFileError, match="File too large"):
        Session([{"role": "user", "content": "new" * 100}]).save(path)
    assert Session.load(path).messages[0]["content"] == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["session.json"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionFileError, match="file"):
        Session().save(tmp_path / "file" / "session.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a session"),
        ("{", "not a session"),
        ("[1]", "messages"),
        ('{"schema_version": 1}', "messages"),
        ('{"schema_version": 99, "messages": []}', "99"),
        ('{"schema_version": 1, "messages": [{"role": "wizard"}]}', "wizard"),
        ('{"schema_version": 1, "messages": [{"role": "tool", "tool_call_id": "c7"}]}', "c7"),
        ("[" * 100_000, "not a session"),
    ],
)
def test_a_bad_file_is_an_error_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(text)
    with pytest.raises(SessionFileError, match=words) as caught:
        Session.load(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, AgentError)


def test_a_missing_or_binary_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="nowhere"):
        Session.load(tmp_path / "nowhere.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SessionFileError, match="not a session"):
        Session.load(tmp_path / "binary")


def test_clear_and_trim_work_in_place() -> None:
    session = Session([{"role": "user", "content": str(n)} for n in range(5)])
    messages = session.messages
    session.trim(2)
    assert [m["content"] for m in messages] == ["3", "4"]
    session.clear()
    assert messages == []
    assert json.dumps(session.messages) == "[]"


@pytest.mark.parametrize("question", [None, 5, {"role": "user", "content": "hi"}, b"hi", ["hi"], [None], [["hi"]]])
def test_what_is_no_question_is_refused_with_words(question: Any) -> None:
    """Regression: TypeError and ValueError ("dictionary update sequence …") came up from inside."""
    with pytest.raises(HistoryError, match="expected"):
        Agent(ScriptedModel([])).run(question)


def test_half_a_surrogate_pair_is_saved_and_comes_back(tmp_path: Path) -> None:
    """Regression: UnicodeEncodeError. A byte of a command line that is no UTF-8 arrives as one."""
    session = Session([{"role": "user", "content": "a\udcffb 京 😀"}])
    session.save(tmp_path / "s.json")
    assert Session.load(tmp_path / "s.json").messages == session.messages
    assert "京 😀" in (tmp_path / "s.json").read_text(encoding="utf-8")
