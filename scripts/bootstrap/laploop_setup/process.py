"""Run one program: its output in a log, a progress line on the screen, nothing left behind when stopped."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

# They would send pip elsewhere, or Python to other packages: none of them is meant for this environment.
_STALE = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_PYTHON",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_NO_DEPS",
    "PIP_DRY_RUN",
)
_LINE_EVERY_S = 10.0  # where there is no terminal


def clean_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment less what belongs to other Pythons, with `changes`."""
    environment = {name: value for name, value in os.environ.items() if name not in _STALE}
    environment.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONUNBUFFERED="1")
    environment.update(changes or {})
    return environment


class Progress:
    """One line on stderr that is rewritten on a terminal, and written anew every ten seconds elsewhere."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self._terminal = sys.stderr.isatty()
        self._start = self._last = time.monotonic()
        self._write("...")

    def tick(self) -> None:
        """Show the present state if it is time to."""
        now = time.monotonic()
        if now - self._last >= (0.1 if self._terminal else _LINE_EVERY_S):
            self._last = now
            self._write()

    def close(self, *, succeeded: bool) -> None:
        """Leave the title on the screen, with the time it took."""
        self.detail = ""
        self._write(": done" if succeeded else ": failed")
        if self._terminal:
            sys.stderr.write("\n")
        sys.stderr.flush()

    def _write(self, state: str = "") -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        text = f"laploop: {self.title}{state}{self.detail and ' - ' + self.detail} ({minutes}:{seconds:02d})"
        sys.stderr.write(f"\r\x1b[K{text[:100]}" if self._terminal else text + "\n")
        sys.stderr.flush()


def run(
    command: list[str],
    *,
    log: Path,
    progress: Progress,
    on_line: Callable[[str], None],
    environment: Mapping[str, str],
    keep_open: int | None = None,
    directory: Path | None = None,
) -> int:
    """Run a program to its end and return its exit status.

    Its output, both streams, is appended to `log` and given to `on_line` line by line. `keep_open` is a
    descriptor it inherits (the lock). Whatever ends the wait (Ctrl-C, a signal, an error) ends the program
    and its children.
    """
    with log.open("a", encoding="utf-8") as sink:
        sink.write("$ " + subprocess.list2cmdline(command) + "\n")
        sink.flush()
        pass_fds = () if keep_open is None or os.name == "nt" else (keep_open,)
        with _group(command, environment, pass_fds, directory) as process:
            for line in _lines(process, progress):
                sink.write(line)
                on_line(line.strip())
            return process.wait()


def _lines(process: subprocess.Popen[str], progress: Progress) -> Iterator[str]:
    """Yield lines as they come; the progress moves on even while none does."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            progress.tick()
            continue
        if line is None:
            return
        progress.tick()
        yield line


@contextlib.contextmanager
def _group(
    command: list[str], environment: Mapping[str, str], pass_fds: tuple[int, ...], directory: Path | None
) -> Iterator[subprocess.Popen[str]]:
    # A session of its own, so that its children (cmake, ninja, compilers) can be ended with it.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=dict(environment),
        cwd=directory,
        start_new_session=os.name != "nt",
        pass_fds=pass_fds,
    )
    try:
        yield process
    except BaseException:
        end(process)
        raise


def end(process: subprocess.Popen[str]) -> None:
    """End a program started here and its children, first politely."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with contextlib.suppress(ProcessLookupError):
            if os.name == "nt":
                process.terminate()
            else:
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            return


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def signals_end_children() -> None:
    """Turn SIGTERM and SIGHUP into an orderly exit, so that `end` runs; Ctrl-C does so already."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # A signal that is ignored (nohup) stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
