"""The messages that are remembered from run to run, and the files they are kept in. It asks no model.

The system prompt is not part of a session: each run adds its own. The messages are in a JSON file that any program can
read; beside it, where a model was given, lies what that model has read of them, so that it need not read them again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from laploop.models import Model

from .errors import HistoryError, SessionFileError
from .history import check_history, trim_history
from .json_text import dumps

SCHEMA_VERSION = 1
_CLAIM = threading.Lock()  # of all sessions: one of its own could not be copied with them


class Opening(NamedTuple):
    """What a model was shown in a session's last run beside its messages.

    Args:
        system: the run's own system message, if it had one.
        options: of its requests: tools, thinking.
    """

    system: tuple[dict[str, Any], ...]
    options: Mapping[str, Any]


@dataclass
class Session:
    """Messages of a conversation, oldest first. A run appends its question, rounds and answer.

    One run at a time: a second one beside it is refused. A run that raises leaves the session as it was; a run that is
    cancelled leaves its finished rounds there.

    Attributes:
        messages: OpenAI messages.
        opening: how the last run began; it is set by the run.
        n_restored: tokens that the model need not read again, since `load` brought their state.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    opening: Opening | None = field(default=None, init=False, repr=False, compare=False)
    n_restored: int = field(default=0, init=False, compare=False)
    _has_run: bool = field(default=False, init=False, repr=False, compare=False)
    # The state on disk that is of this session, and the messages it goes with.
    _stated: tuple[Path, list[dict[str, Any]]] | None = field(default=None, init=False, repr=False, compare=False)

    @contextlib.contextmanager
    def in_run(self, messages: Sequence[dict[str, Any]]) -> Iterator[None]:
        """Have the session for one run, whose `messages` go on from this session's.

        Raises:
            HistoryError: it is in another run, or has got other messages since this run was made.
        """
        with _CLAIM:
            if self._has_run or self.messages != list(messages[: len(self.messages)]):
                raise HistoryError(
                    "the session is in use by another run, which would lose one of the two turns; wait for its end, "
                    "or give each thread a Session of its own"
                )
            self._has_run = True
        try:
            yield
        finally:
            self._has_run = False

    def clear(self) -> None:
        """Forget everything."""
        self.messages.clear()

    def trim(self, keep_last: int) -> None:
        """Keep the last user message and at most `keep_last` latest messages, calls with their results."""
        self.messages[:] = trim_history(self.messages, keep_last)

    def save(self, path: str | Path, model: Model | None = None) -> None:
        """Write the session as JSON; the file is the old one or the whole new one, whatever happens.

        Args:
            path: the file, such as "talk.json".
            model: the model of its last run. What that has read is then saved beside the messages ("talk.json.kv", see
                `save_state`); without it, a state that lies there stays as long as the messages only grew.

        Raises:
            SessionFileError: it cannot be written.
        """
        target, messages = Path(path), list(self.messages)
        text = dumps({"schema_version": SCHEMA_VERSION, "messages": messages}, indent=1)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(target, text + "\n")
            place, stated = self._stated or (None, [])
            if place != target.resolve() or messages[: len(stated)] != stated:
                self._stated = None
                state_path(target).unlink(missing_ok=True)  # it holds what the messages have forgotten
        except OSError as error:
            raise SessionFileError(f"cannot write the session to {target}: {error.strerror or error}") from error
        if model is not None:
            self.save_state(target, model)

    def save_state(self, path: str | Path, model: Model) -> int:
        """Write what the model has read of the session beside its messages, which `save` wrote to `path`.

        The state is bounded (`ChatModel.save_state`); if it cannot be written a warning says so: nothing is lost but
        time. Models that are not in this process have none.

        Returns:
            The tokens that the next process need not read.
        """
        save = getattr(model, "save_state", None)
        if save is None or self.opening is None or not self.messages:
            return 0
        messages = list(self.messages)
        try:
            n_tokens = int(save(state_path(path), [*self.opening.system, *messages], **self.opening.options))
        except OSError as error:
            warnings.warn(
                f"the state of the session cannot be saved ({error.strerror or error}); the next process reads the "
                "messages anew",
                stacklevel=2,
            )
            return 0
        self._stated = (Path(path).resolve(), messages)
        return n_tokens

    @classmethod
    def load(cls, path: str | Path, model: Model | None = None) -> Session:
        """Read a session.

        Args:
            path: the file.
            model: what it will go on with. If it is the one that the session was saved with, it reads nothing twice;
                else it reads the messages anew, and a warning says why.

        Raises:
            SessionFileError: the file is missing, damaged, or of another version.
        """
        source = Path(path)
        try:
            if not source.is_file() and os.path.lexists(source):  # a pipe would be waited for, a device never ends
                raise SessionFileError(f"cannot read the session {source}: it is no file")
            data = json.loads(source.read_text(encoding="utf-8"))
        except OSError as error:
            raise SessionFileError(f"cannot read the session {source}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise SessionFileError(
                f"{source} is not a session: {error}. Restore it from a copy, or delete it to start anew"
            ) from error
        if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
            raise SessionFileError(f'{source} is not a session: expected an object with a list "messages"')
        if (version := data.get("schema_version")) != SCHEMA_VERSION:
            raise SessionFileError(
                f"{source} has schema_version {version!r}; this laploop reads {SCHEMA_VERSION}. "
                "Use the version of laploop that wrote it, or delete the file to start anew"
            )
        try:
            check_history(data["messages"])
        except HistoryError as error:
            raise SessionFileError(f"{source} is damaged: {error}") from error
        session = cls(data["messages"])
        session._stated = (source.resolve(), list(session.messages))
        if load := getattr(model, "load_state", None):
            session.n_restored = int(load(state_path(source)))
        return session


def state_path(path: str | Path) -> Path:
    """Where the state of the session in `path` lies."""
    path = Path(path)
    return path.with_name(f"{path.name}.kv")


def _write_atomically(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
