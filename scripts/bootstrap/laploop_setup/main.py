"""The two commands: scripts/run and scripts/test."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from . import install
from .llama import BACKENDS
from .places import Places, SetupError, UsageError, say

INTERRUPTED = 130
_INTERRUPTED_LINE = "interrupted; the same command goes on from here"
# Sub-commands that load no model unless one is named.
_NO_MODEL = {"models", "tools", "cache", "trace", "help"}
_MODEL_FLAGS = ("-m", "--model", "-hf")


def _places() -> Places:
    return Places(Path(__file__).resolve().parents[3])


def own_flags(arguments: list[str]) -> tuple[install.Wanted, bool, list[str]]:
    """Split off the flags of set-up itself, which stand first; returns (wanted, timings, the rest unchanged).

    Raises:
        UsageError: --gpu without one of the known backends.
    """
    gpu: str | None = None
    reinstall = timings = False
    rest = list(arguments)
    while rest:
        flag, separator, value = rest[0].partition("=")
        if flag == "--gpu":
            value = value if separator else (rest[1] if len(rest) > 1 else "")
            if value not in BACKENDS:
                raise UsageError(f"--gpu {value or 'without a value'}: choose one of {', '.join(BACKENDS)}")
            gpu, rest = value, rest[1 if separator else 2 :]
        elif rest[0] == "--reinstall":
            reinstall, rest = True, rest[1:]
        elif rest[0] == "--timings":
            timings, rest = True, rest[1:]
        else:
            break
    return install.Wanted(gpu=gpu, reinstall=reinstall), timings, rest


def needs_default_model(arguments: list[str], environment: dict[str, str]) -> bool:
    """Tell whether laploop would load its default model: a command that uses one, and no model named."""
    if environment.get("LAPLOOP_MODEL"):
        return False
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    for argument in arguments:
        if argument == "--":
            break
        if argument in ("-h", "--help", "--version"):
            return False
        if argument in _MODEL_FLAGS or argument.startswith("--model=") or (argument[:2] == "-m" and argument[2:]):
            return False
    return bool(command) and command not in _NO_MODEL


def run_command(arguments: list[str]) -> int:
    """Set up, get a model, run laploop; returns the exit code (0.1 s and no pip when nothing is missing)."""
    try:
        return _run(arguments)
    except UsageError as error:
        say(str(error))
        return 2
    except (SetupError, OSError) as error:  # OSError: a full disk, a folder without rights, ...
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say(_INTERRUPTED_LINE)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    wanted, timings, rest = own_flags(arguments)
    timings = timings or os.environ.get("LAPLOOP_TIMINGS", "") not in ("", "0")
    places = _places()
    start = time.monotonic()
    install.ensure(places, wanted)
    installed = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    if needs_default_model(rest, environment):
        environment["LAPLOOP_MODEL"] = _default_model(places, rest, environment)
    fetched = time.monotonic()
    program = [str(places.program("laploop")), *rest]
    if not timings and os.name != "nt":
        sys.stdout.flush()
        os.execve(program[0], program, environment)
    code = _call(program, environment)
    if timings:
        split = (
            (installed - start, "install"),
            (fetched - installed, "model"),
            (time.monotonic() - fetched, "answer"),
        )
        say("timings: " + ", ".join(f"{name} {seconds:.1f} s" for seconds, name in split))
    return code


def _default_model(places: Places, rest: list[str], environment: dict[str, str]) -> str:
    """Ask the installed package which model is to be had; its one line on a fallback goes to the screen."""
    import subprocess

    command = [str(places.python), "-I", "-m", "laploop.scripts.default_model", *rest]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", env=environment)
    try:
        output, _ = process.communicate()
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C reached it too; it has said so
        raise SystemExit(INTERRUPTED) from None
    if process.returncode != 0 or not output.strip():
        raise SystemExit(process.returncode or 1)  # it has said why
    return output.strip()


def _call(program: list[str], environment: dict[str, str]) -> int:
    """Run a program that shares the terminal; Ctrl-C is its own affair."""
    import subprocess

    # a handler and not SIG_IGN, which the program would inherit
    previous = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.Popen(program, env=environment).wait()
    finally:
        signal.signal(signal.SIGINT, previous)
    return 128 - code if code < 0 else code


def test_command(arguments: list[str]) -> int:
    """Set up with the test tools and run all checks, or pytest alone with the arguments given."""
    from . import checks

    # A shell makes its background jobs ignore Ctrl-C, and so would the programs to which tests send one.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        wanted, _, rest = own_flags(arguments)
        places = _places()
        start = time.monotonic()
        install.ensure(places, install.Wanted(gpu=wanted.gpu, reinstall=wanted.reinstall, extras=("dev",)))
        return checks.run_all(places, rest, setup_s=time.monotonic() - start)
    except UsageError as error:
        say(str(error))
        return 2
    except (SetupError, OSError) as error:  # OSError: a full disk, a folder without rights, ...
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say(_INTERRUPTED_LINE)
        return INTERRUPTED
