"""Conversations that have names and are kept in the data folder: who has one open, what of it is on disk and when it is
written. It knows files and locks; not what is said.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import background
from .cli import complain
from .options import UsageFault

if TYPE_CHECKING:
    from laploop.agent import Session
    from laploop.models import Model

#: Most bytes of the states of all sessions; messages are not counted, and never removed.
MAX_STATES_BYTES = 2_000_000_000
MAX_NAME_BYTES = 100
IDLE_S = 1.0  # a person reads the answer; whoever sends line after line is not held up by each
_BAD_CHARS = frozenset('/\\<>:"|?*')
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in "0123456789")}  # Windows


class SessionInfo(NamedTuple):
    """A session on disk; `n_messages` is None where the file is no session."""

    name: str
    n_messages: int | None
    saved_s: float  # seconds since the epoch
    size_bytes: int  # messages and state
    path: Path


def folder() -> Path:
    """Where sessions lie."""
    from laploop.engine.folders import data_dir

    return data_dir() / "sessions"


def path_of(name: str) -> Path:
    """The file of a session. Raises UsageFault for what is no name: it must be a file's name on every system."""
    text = unicodedata.normalize("NFC", name)
    bad = sorted(c for c in set(text) if c in _BAD_CHARS or not c.isprintable())
    if not text or bad or text[0] in ". " or text[-1] in ". " or text.split(".")[0].upper() in _RESERVED:
        what = f"it holds {bad[0]!r}" if bad else "no file can have it"
        raise UsageFault(f"{name!r} is no name for a session: {what}; use letters, digits, spaces, - and _")
    if (n_bytes := len(text.encode())) > MAX_NAME_BYTES:
        raise UsageFault(f"the session's name has {n_bytes} bytes; at most {MAX_NAME_BYTES} are possible")
    return folder() / f"{text}.json"


@contextlib.contextmanager
def opened(name: str) -> Iterator[Path]:
    """Have a session for oneself; the path of its file, which need not exist.

    Raises UsageFault for what is no name, SessionFileError where another process has it open.
    """
    from filelock import FileLock, Timeout
    from laploop.agent import SessionFileError

    path = path_of(name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.blake2b(path.name.encode(), digest_size=8).hexdigest()
    lock = FileLock(path.parent / f".{digest}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise SessionFileError(
            f"the session {name} is open in another laploop; leave it there (/exit), or choose another name"
        ) from None
    try:
        for rest in path.parent.glob(".*.tmp"):  # of a killed process
            if rest.name.startswith(f".{path.name}."):
                rest.unlink(missing_ok=True)
        yield path
    finally:
        lock.release()


class Keeper:
    """Keeps a session on disk while a chat goes on: its messages after each question, the model's state when the user
    pauses and at the end.

    Args:
        path: of an `opened` session.
        model: what it goes on with.

    Raises:
        SessionFileError: there is a file that is no session.
    """

    def __init__(self, path: Path, model: Model) -> None:
        from laploop.agent import Session

        self.path = path
        self.session: Session = Session.load(path, model) if os.path.lexists(path) else Session()
        self._model = model
        self._timer: threading.Timer | None = None
        self._is_stated = True
        self._lock = threading.Lock()  # one state is written at a time

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        if not background.is_busy():  # a run that could not be stopped has the model
            self._save_state()

    def greeting(self) -> str:
        """What was resumed, in one line."""
        name, n = self.path.stem, len(self.session.messages)
        if not n:
            return f"Session {name} begins."
        n_restored = self.session.n_restored
        known = f"{n_restored:,} tokens need not be read again" if n_restored else "they will be read anew"
        return f"Session {name}: {n} messages, saved {local_time(self.path.stat().st_mtime)}; {known}."

    def pause(self) -> None:
        """Write nothing for now: a question comes."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def keep(self) -> None:
        """Write the messages, and the state soon."""
        from laploop.agent import AgentError

        self.pause()
        try:
            self.session.save(self.path)
        except AgentError as error:
            complain(str(error))
            return
        self._is_stated = False
        self._timer = threading.Timer(IDLE_S, self._save_state)
        self._timer.daemon = True
        self._timer.start()

    def _save_state(self) -> None:
        with self._lock:
            if self._is_stated:
                return
            self._is_stated = True
            self.session.save_state(self.path, self._model)
            bound_states(self.path)


def bound_states(latest: Path) -> None:
    """Remove the states that were saved longest ago until all fit; `latest` is the session that keeps its own."""
    from laploop.agent.session import state_path

    states = []
    for path in folder().glob("*.kv"):
        with contextlib.suppress(OSError):  # removed by another process
            states.append((path != state_path(latest), path.stat().st_mtime, path.stat().st_size, path))
    total = sum(size for _, _, size, _ in states)
    for is_other, _, size, path in sorted(states, key=lambda s: s[1]):
        if total <= MAX_STATES_BYTES:
            return
        if is_other:
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def all_sessions() -> list[SessionInfo]:
    """The sessions on disk, the latest first."""
    from laploop.agent import AgentError, Session
    from laploop.agent.session import state_path

    infos = []
    for path in folder().glob("*.json"):
        try:
            n_messages = len(Session.load(path).messages)
        except AgentError:
            n_messages = None
        with contextlib.suppress(OSError):  # removed meanwhile
            size_bytes = sum(p.lstat().st_size for p in (path, state_path(path)) if os.path.lexists(p))
            infos.append(SessionInfo(path.stem, n_messages, path.lstat().st_mtime, size_bytes, path))
    return sorted(infos, key=lambda info: -info.saved_s)


def remove(name: str) -> int:
    """Delete a session; returns its bytes.

    Raises UsageFault where there is none, SessionFileError where it is open in another process.
    """
    from laploop.agent.session import state_path

    if not os.path.lexists(path_of(name)):  # a broken link too can be removed
        names = ", ".join(info.name for info in all_sessions()) or "none"
        raise UsageFault(f"there is no session {name}; the sessions are: {names}")
    with opened(name) as path:
        files = [p for p in (state_path(path), path) if os.path.lexists(p)]
        size_bytes = sum(p.lstat().st_size for p in files)
        for file in files:
            file.unlink()
    return size_bytes


def local_time(seconds: float) -> str:
    """A time for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
