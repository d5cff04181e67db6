"""The messages that are remembered from run to run, and the file they are kept in. It asks no model.

The system prompt is not part of a session: each run adds its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import HistoryError, SessionFileError
from .history import check_history, trim_history
from .json_text import dumps

SCHEMA_VERSION = 1


@dataclass
class Session:
    """Messages of a conversation, oldest first. A run appends its question, rounds and answer.

    A run that raises leaves the session as it was; a run that is cancelled leaves its finished rounds there.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)

    def clear(self) -> None:
        """Forget everything."""
        self.messages.clear()

    def trim(self, keep_last: int) -> None:
        """Keep the last user message and at most `keep_last` latest messages, calls with their results."""
        self.messages[:] = trim_history(self.messages, keep_last)

    def save(self, path: str | Path) -> None:
        """Write the session as JSON; the file is the old one or the whole new one, whatever happens."""
        target = Path(path)
        text = dumps({"schema_version": SCHEMA_VERSION, "messages": self.messages}, indent=1)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(target, text + "\n")
        except OSError as error:
            raise SessionFileError(f"cannot write the session to {target}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Session:
        """Read a session. Raises SessionFileError if the file is missing, damaged, or of another version."""
        source = Path(path)
        try:
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
        return cls(data["messages"])


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
