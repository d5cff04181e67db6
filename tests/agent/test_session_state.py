"""A session saved with its state goes on as if its process had not ended: the same text, and nothing computed twice."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from laploop.agent import Agent, HistoryError, Session
from laploop.agent.session import state_path
from laploop.engine import EngineConfig
from laploop.engine.prefix_store import PrefixStore
from laploop.engine.state_file import read_head
from laploop.models import ChatModel, ScriptedModel
from laploop.tools import tool

CONFIG = EngineConfig(n_ctx=2048, n_threads=1, draft_max=0, prefix_cache_bytes=0, **EXACT)
Load = Callable[..., ChatModel]


@tool
def get_time(city: str) -> str:
    """The time in a city."""
    return f"12:30 in {city}"


@pytest.fixture
def load(tiny_path: Path) -> Iterator[Load]:
    """Loads the tiny model as a new process would; closes what it loaded."""
    models: list[ChatModel] = []

    def fresh(**changes: Any) -> ChatModel:
        models.append(ChatModel.load(tiny_path, config=replace(CONFIG, **changes)))
        return models[-1]

    yield fresh
    for model in models:
        model.close()


def agent(model: ChatModel, **settings: Any) -> Agent:
    return Agent(model, [get_time], max_rounds=2, temperature=1.2, seed=7, max_tokens=40, **settings)


def told(session: Session) -> list[tuple[Any, ...]]:
    """Messages without the ids of calls, which are drawn."""
    return [(m["role"], m.get("content"), [c["function"] for c in m.get("tool_calls", ())]) for m in session.messages]


def cached(result: Any) -> int:
    return int(result.usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("seed", range(6))
def test_saved_loaded_and_continued_is_uninterrupted(load: Load, tmp_path: Path, seed: int) -> None:
    """Text, tokens of the prompt and cached tokens of the next turns are those of the process that went on."""
    rng = random.Random(seed)
    first, session = load(), Session()
    for _ in range(rng.randrange(1, 4)):
        agent(first, tool_choice=rng.choice(["auto", "required"])).run(f"turn {rng.random()} 你好 <|im_end|>", session)
    session.save(tmp_path / "talk.json", first)

    second = load()
    resumed = Session.load(tmp_path / "talk.json", second)
    assert resumed == session
    for question in ("and then?", "再说一次"):
        here, there = agent(first).run(question, session), agent(second).run(question, resumed)
        assert here.usage == there.usage
        assert told(resumed) == told(session)
        assert cached(there) > 0
    assert resumed.n_restored > 0


def test_the_first_turn_evaluates_only_what_is_new(load: Load, tmp_path: Path) -> None:
    """Counted where llama.cpp is called: the new question, and the last token of the reply before, never decoded."""
    first, session = load(), Session()
    agent(first).run("a question " * 20, session)
    session.save(tmp_path / "talk.json", first)
    second = load()
    resumed = Session.load(tmp_path / "talk.json", second)
    decode, positions = second.engine.context.decode, []

    def counting(runs: Any) -> bool:
        positions.extend(position for _, position, _, _ in runs)
        return decode(runs)

    second.engine.context.decode = counting  # type: ignore[method-assign]
    result = agent(second).run("next", resumed)
    assert min(positions) == cached(result) == resumed.n_restored
    new = result.usage["prompt_tokens"] - cached(result)
    assert new < 30 < resumed.n_restored


def test_an_engine_of_several_conversations_resumes_several(load: Load, tmp_path: Path) -> None:
    """Without thinking, which may take as much room as there is, and would drive the others out."""
    first = load(n_seq_max=3, n_ctx=4096)
    sessions = [Session() for _ in range(3)]
    for n, session in enumerate(sessions):
        agent(first, enable_thinking=False).run(f"I am number {n} " * 5, session)
        session.save(tmp_path / f"{n}.json", first)
    second = load(n_seq_max=3, n_ctx=4096)
    resumed = [Session.load(tmp_path / f"{n}.json", second) for n in range(3)]
    for here, there in zip(sessions, resumed, strict=True):
        a, b = (
            agent(first, enable_thinking=False).run("go on", here),
            agent(second, enable_thinking=False).run("go on", there),
        )
        assert cached(b) == there.n_restored > 0
        assert (told(here), a.usage["total_tokens"]) == (told(there), b.usage["total_tokens"])


def test_what_does_not_fit_is_read_anew(load: Load, tmp_path: Path) -> None:
    """A smaller context than it was saved with: the state does not fit, the conversation goes on."""
    first, session = load(), Session()
    agent(first).run("word " * 100, session)
    session.save(tmp_path / "talk.json", first)
    second = load(n_ctx=512)
    resumed = Session.load(tmp_path / "talk.json", second)
    assert resumed == session and resumed.n_restored == 0
    assert second.create([{"role": "user", "content": "hi"}], max_tokens=4)["usage"]["completion_tokens"]


@pytest.mark.parametrize("change", [{"type_k": "f16", "type_v": "f16"}, {"flash_attn": "auto"}])
def test_another_kind_of_state_is_told_once_and_read_anew(load: Load, tmp_path: Path, change: dict[str, Any]) -> None:
    first, session = load(), Session()
    agent(first).run("hello", session)
    session.save(tmp_path / "talk.json", first)
    with pytest.warns(UserWarning, match="of another model or build; the conversation is read anew") as caught:
        resumed = Session.load(tmp_path / "talk.json", load(**change))
    assert len(caught) == 1
    assert resumed == session and resumed.n_restored == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "rubbish", "folder"])
def test_a_damaged_state_costs_time_only(load: Load, tmp_path: Path, damage: str) -> None:
    first, session = load(), Session()
    agent(first).run("hello", session)
    session.save(tmp_path / "talk.json", first)
    path = state_path(tmp_path / "talk.json")
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"cut": whole[:-100], "flipped": flipped, "empty": b"", "rubbish": b"{}" * 99}[damage])
    second = load()
    with pytest.warns(UserWarning, match="read anew") as caught:
        resumed = Session.load(tmp_path / "talk.json", second)
    assert len(caught) == 1 and resumed.n_restored == 0
    # Without the state the tokens are those of the text, so the answer may be another one; the history is the same.
    assert agent(second).run("go on", resumed).answer
    assert resumed.messages[: len(session.messages)] == session.messages


def test_messages_alone_need_no_model_and_no_state(load: Load, tmp_path: Path) -> None:
    model, session = load(), Session()
    agent(model).run("hello", session)
    session.save(tmp_path / "talk.json")
    assert [p.name for p in tmp_path.iterdir()] == ["talk.json"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Session.load(tmp_path / "talk.json", load()) == session
    data = json.loads((tmp_path / "talk.json").read_text())
    assert data["messages"] == session.messages


def test_a_model_that_has_no_state_saves_messages(tmp_path: Path) -> None:
    session = Session()
    with ScriptedModel(["Hello."]) as model:
        Agent(model).run("hi", session)
        session.save(tmp_path / "talk.json", model)
    assert [p.name for p in tmp_path.iterdir()] == ["talk.json"]
    assert Session.load(tmp_path / "talk.json", model) == session


def test_what_was_forgotten_is_not_kept_in_the_state(load: Load, tmp_path: Path) -> None:
    """The state stays as long as the messages only grow; it goes when they were cleared, or are of another session."""
    path, model, session = tmp_path / "talk.json", load(), Session()
    agent(model).run("hello", session)
    session.save(path, model)
    agent(model).run("more", session)
    session.save(path)
    assert state_path(path).exists()  # of the first turn: it serves for the beginning
    resumed = Session.load(path)
    resumed.save(path)
    assert state_path(path).exists()
    resumed.clear()
    resumed.save(path)
    assert not state_path(path).exists()
    session.save(path, model)
    Session([{"role": "user", "content": "somebody else"}]).save(path)
    assert not state_path(path).exists()


def test_an_older_state_serves_for_what_it_holds(load: Load, tmp_path: Path) -> None:
    """As after a kill between the two files: the messages are newer than the state."""
    path, first, session = tmp_path / "talk.json", load(), Session()
    agent(first).run("hello " * 30, session)
    session.save(path, first)
    agent(first).run("more", session)
    session.save(path)
    second = load()
    resumed = Session.load(path, second)
    here, there = agent(first).run("go on", session), agent(second).run("go on", resumed)
    assert 0 < cached(there) < cached(here)
    assert resumed.messages[: len(session.messages) - 2] == session.messages[:-2]


def test_the_state_is_bounded_and_its_beginning_is_kept(load: Load, tmp_path: Path) -> None:
    first, session = load(), Session()
    result = agent(first).run("hello", session)
    assert session.opening
    messages = [*session.opening.system, *session.messages]
    bytes_per_token = first.engine.kv_size_bytes // first.n_ctx
    n = first.save_state(tmp_path / "s.kv", messages, most_bytes=50 * bytes_per_token, **session.opening.options)
    assert n == 50 < result.usage["prompt_tokens"]
    assert (tmp_path / "s.kv").stat().st_size < 50 * bytes_per_token * 1.5 + 20_000
    assert load().load_state(tmp_path / "s.kv") == 50


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_only_the_user_can_read_a_session(load: Load, tmp_path: Path) -> None:
    model, session = load(), Session()
    agent(model).run("hello", session)
    session.save(tmp_path / "talk.json", model)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}


def test_a_state_that_cannot_be_written_is_one_warning(load: Load, tmp_path: Path) -> None:
    model, session = load(), Session()
    agent(model).run("hello", session)
    state_path(tmp_path / "talk.json").mkdir(parents=True)
    (state_path(tmp_path / "talk.json") / "mine").write_text("x")
    session.save(tmp_path / "other.json")
    with pytest.warns(UserWarning, match="cannot be saved"):
        assert session.save_state(tmp_path / "talk.json", model) == 0
    assert Session.load(tmp_path / "other.json") == session


def test_what_was_said_never_comes_into_the_shared_store(load: Load, tmp_path: Path) -> None:
    """Sessions hold it, since their owner asked for them; the shared store holds system prompts and tools only."""
    store = tmp_path / "store"
    shared = {"prefix_cache_bytes": 10**9, "prefix_cache_dir": store}
    first, session = load(**shared), Session()
    for question in ("my secret is xyzzy", "secret xyzzy again"):
        agent(first).run(question, session)
    session.save(tmp_path / "talk.json", first)
    first.close()
    second = load(**shared)
    resumed = Session.load(tmp_path / "talk.json", second)
    agent(second).run("what was it? xyzzy", resumed)
    Agent(second).run("and without tools: xyzzy", resumed)
    second.close()
    third = load()
    assert "xyzzy" in third.engine.detokenize(tokens_in(state_path(tmp_path / "talk.json")))
    entries = PrefixStore(store).entries()
    assert entries
    for entry in entries:
        text = third.engine.detokenize(tokens_in(entry.path))
        assert "xyzzy" not in text and "get_time" in text
        assert b"xyzzy" not in entry.path.read_bytes()


def tokens_in(path: Path) -> list[int]:
    with path.open("rb") as file:
        return [int(t) for t in read_head(file, path.stat().st_size)[1]]


CHILD = """
import sys
from pathlib import Path
from laploop.agent import Agent, Session
from laploop.engine import EngineConfig
from laploop.models import ChatModel
model_path, path, config = sys.argv[1], Path(sys.argv[2]), eval(sys.argv[3])
with ChatModel.load(model_path, config=EngineConfig(**config)) as model:
    session = Session.load(path, model) if path.exists() else Session()
    print("ready", flush=True)
    while True:
        Agent(model, temperature=0, max_tokens=4).run(f"turn {len(session.messages)}", session)
        session.save(path, model)
        print(len(session.messages), session.n_restored, flush=True)
        if len(session.messages) > 40:
            session.clear()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9")
def test_a_kill_at_any_moment_leaves_a_whole_session(tiny_path: Path, load: Load, tmp_path: Path) -> None:
    """The messages are those of a finished turn, not older than the last one that was told as saved, and the state, if
    it is of them, gives the answer that they give without it."""
    path, rng = tmp_path / "talk.json", random.Random(5)
    settings = {"n_ctx": 1024, "n_threads": 1, "prefix_cache_bytes": 0, **EXACT}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(8):
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(tiny_path), str(path), repr(settings)],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.3))
            child.kill()
            lines = [line.split() for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            child.wait()
            child.stdout.close()
            if not path.exists():
                assert not lines
                continue
            session = Session.load(path)
            assert len(session.messages) % 2 == 0
            if lines and int(lines[-1][0]) <= 40:
                assert len(session.messages) >= int(lines[-1][0])
        model = load(n_ctx=1024)
        resumed = Session.load(path, model)
        answer = Agent(model, temperature=0, max_tokens=8).run("last", resumed).answer
    assert resumed.n_restored > 0 and answer
    assert {p.name for p in tmp_path.iterdir()} >= {"talk.json", "talk.json.kv"}


def test_a_session_has_one_run_at_a_time() -> None:
    """Regression: of two runs in two threads one turn was lost, without a word."""
    session = Session()
    agent = Agent(ScriptedModel(["One.", "Two."]), system_prompt="")
    first, second = agent.stream("1?", session), agent.stream("2?", session)
    next(first)
    with pytest.raises(HistoryError, match="in use by another run"):
        next(second)
    list(first)
    late = agent.stream("3?", session)
    agent.run("2?", session)
    with pytest.raises(HistoryError, match="in use by another run"):
        next(late)
    assert [m["content"] for m in session.messages] == ["1?", "One.", "2?", "Two."]
