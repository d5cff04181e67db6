"""The stages of scripts/test. Knows the programs, not what they look at (pyproject.toml says that)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from .places import Places
from .stamp import PACKAGE_FOLDERS, load

_FOREIGN = ("PYTHONHOME", "PYTHONPATH")  # would put other packages before those of .venv


@dataclass(frozen=True)
class Stage:
    """One finished stage; `code` is its exit status."""

    name: str
    seconds: float
    code: int

    def __str__(self) -> str:
        """One row of the table."""
        return f"  {self.name:<14} {self.seconds:8.1f} s  {f'FAILED ({self.code})' if self.code else 'ok'}"


def commands(places: Places) -> list[tuple[str, list[str]]]:
    """Return name and command line of each stage before the tests."""
    python = str(places.python)
    # each by itself: their namespace `laploop` has no folder of its own, and so no py.typed
    packages = [word for folder in PACKAGE_FOLDERS for word in ("-p", f"laploop.{folder}")]
    return [
        ("ruff check", [python, "-m", "ruff", "check", "."]),
        ("ruff format", [python, "-m", "ruff", "format", "--check", "."]),
        ("lint-imports", [str(places.program("lint-imports"))]),
        ("mypy", [python, "-m", "mypy", "--strict", *packages]),
        ("mypy set-up", [python, "-m", "mypy", "--strict", "scripts/bootstrap/laploop_setup"]),
    ]


def pytest_command(places: Places, arguments: list[str]) -> list[str]:
    """Return pytest's command line: all but the slow tests, unless the arguments choose with `-m`."""
    chosen = any(argument == "-m" or argument.startswith("-m=") for argument in arguments)
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    command = [str(places.python), "-m", "pytest", *colour, "--durations=20", "--durations-min=1"]
    return [*command, *([] if chosen else ["-m", "not slow"]), *arguments]


def run_all(places: Places, arguments: list[str], *, setup_s: float) -> int:
    """Run the stages, each whatever became of those before; returns 0 only if all of them passed.

    With arguments only pytest runs. pytest's own closing line is printed last, after the table of times.
    """
    stamp = load(places.stamp)
    print(f"laploop tests: Python {stamp.python}, llama-cpp-python {stamp.llama} ({stamp.gpu})", flush=True)
    stages = [Stage("set-up", setup_s, 0)]
    for name, command in [] if arguments else commands(places):
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        code = subprocess.run(command, cwd=places.root, env=_environment(places)).returncode
        stages.append(Stage(name, time.monotonic() - start, code))
    print("\n== pytest", flush=True)
    start = time.monotonic()
    code, closing = _echoed(pytest_command(places, arguments), places)
    stages.append(Stage("pytest", time.monotonic() - start, code))
    print("\n" + "\n".join(str(stage) for stage in stages), flush=True)
    failed = [stage for stage in stages if stage.code != 0]
    if any(stage.name != "pytest" for stage in failed):
        print("laploop tests: FAILED in " + ", ".join(stage.name for stage in failed), flush=True)
    print(closing, flush=True)
    return failed[0].code if failed else 0


def _environment(places: Places) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    environment["PATH"] = str(places.bin) + os.pathsep + environment.get("PATH", "")
    environment["VIRTUAL_ENV"] = str(places.venv)
    return environment


def _echoed(command: list[str], places: Places) -> tuple[int, str]:
    """Run with the output shown as it comes; returns the exit status and the last line that was not empty."""
    # Ctrl-C is pytest's, which ends with a summary. A handler and not SIG_IGN, which pytest and the programs
    # that its tests start would inherit.
    previous = signal.signal(signal.SIGINT, lambda number, frame: None)
    last = line = b""
    try:
        with subprocess.Popen(command, cwd=places.root, env=_environment(places), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), 65536):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                *whole, line = (line + piece).split(b"\n")
                last = next((text for text in reversed(whole) if text.strip()), last)
        code = process.returncode
    finally:
        signal.signal(signal.SIGINT, previous)
    closing = (line if line.strip() else last).decode("utf-8", "replace").rstrip()
    return (128 - code if code < 0 else code), closing
