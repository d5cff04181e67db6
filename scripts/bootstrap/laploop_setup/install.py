"""Make `.venv` from whatever state it is in. Finished steps stand in the stamp: a next call goes on there."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass

from . import llama, lock, process, stamp
from .causes import failure
from .places import Places, SetupError, say
from .stamp import Stamp

# What set-up itself uses, and what stays when the environment is made anew for another Python.
_KEPT = ("wheels", "laploop-setup.lock", "setup.log", "llama-build.log")


@dataclass(frozen=True)
class Wanted:
    """What the caller needs in the environment; `gpu` None keeps what is there."""

    gpu: str | None = None
    extras: tuple[str, ...] = ()
    reinstall: bool = False


def ensure(places: Places, wanted: Wanted) -> bool:
    """Bring `.venv` to the wanted state; returns whether anything had to be done.

    Raises:
        SetupError: a step failed; its message is one line.
    """
    if not wanted.reinstall and not _missing(places, wanted):
        return False
    if places.venv.is_symlink() or (places.venv.exists() and not places.venv.is_dir()):
        raise SetupError(f"{places.venv} is a link or a file where set-up makes a folder: move it away")
    process.signals_end_children()
    with lock.held(places.lock) as descriptor:
        if wanted.reinstall:
            _clear(places, kept=_KEPT[1:])
        steps = _missing(places, wanted)  # again: whoever held the lock may have done it all
        if "packages" in steps:
            say("setting up in .venv; it can be interrupted at any time, the same command goes on from there")
        for step in steps:
            _STEPS[step](places, wanted, descriptor)
    return True


def _missing(places: Places, wanted: Wanted) -> list[str]:
    return stamp.missing(places, stamp.load(places.stamp), wanted.gpu, wanted.extras)


def _clear(places: Places, kept: tuple[str, ...]) -> None:
    for entry in list(places.venv.iterdir()):
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _make_venv(places: Places, wanted: Wanted, descriptor: int) -> None:
    """Make the environment with this Python; a half-made one, or one whose Python has gone, is made anew."""
    _clear(places, kept=_KEPT)
    _run(places, [sys.executable, "-I", "-m", "venv", str(places.venv)], "making .venv", descriptor)
    version = ".".join(str(part) for part in sys.version_info[:3])
    Stamp(interpreter=os.path.realpath(places.python), python=version).save(places.stamp)


def _get_llama(places: Places, wanted: Wanted, descriptor: int) -> None:
    state = stamp.load(places.stamp)
    gpu = wanted.gpu or state.gpu or llama.default_backend()
    version = stamp.pinned(places, "llama-cpp-python")
    # From here on no finished llama stands in the stamp, but the choice does: a resumed call needs no --gpu.
    state.with_changes(llama="", gpu=gpu).save(places.stamp)
    llama.obtain(places, version, gpu, descriptor)
    state.with_changes(llama=version, gpu=gpu).save(places.stamp)


def _get_packages(places: Places, wanted: Wanted, descriptor: int) -> None:
    state = stamp.load(places.stamp)
    extras = tuple(sorted({*state.extras, *wanted.extras}))
    dependencies, files = stamp.dependencies_hash(places), stamp.files_hash(places)
    constraints = ["-c", str(places.constraints)]
    # setuptools stays in the environment, so that linking a new file later needs no network
    _pip(places, ["install", *constraints, "setuptools"], "installing setuptools", descriptor)
    project = f"{places.root}[{','.join(extras)}]" if extras else str(places.root)
    options = ["--no-build-isolation", "--config-settings", "editable_mode=strict"]
    _pip(
        places,
        ["install", *constraints, *options, "-e", project],
        "installing laploop and what it needs",
        descriptor,
    )
    state.with_changes(extras=extras, dependencies=dependencies, files=files).save(places.stamp)


def _link(places: Places, wanted: Wanted, descriptor: int) -> None:
    """Install again after files came or went. Needs no network."""
    files = stamp.files_hash(places)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--config-settings", "editable_mode=strict"]
    _pip(places, ["install", *options, "-e", str(places.root)], "linking new files", descriptor)
    stamp.load(places.stamp).with_changes(files=files).save(places.stamp)


_STEPS = {"venv": _make_venv, "llama": _get_llama, "packages": _get_packages, "link": _link}


def _pip(places: Places, arguments: list[str], doing: str, descriptor: int) -> None:
    command = [str(places.python), "-m", "pip", arguments[0], "--progress-bar", "off", *arguments[1:]]
    _run(places, command, doing, descriptor)


def _run(places: Places, command: list[str], doing: str, descriptor: int) -> None:
    output: list[str] = []
    progress = process.Progress(doing)

    def on_line(line: str) -> None:
        output.append(line)
        if line.startswith(("Collecting ", "Downloading ", "Installing ")):
            progress.detail = line[:50]

    status = process.run(
        command,
        log=places.log,
        progress=progress,
        on_line=on_line,
        environment=process.clean_environment(),
        keep_open=descriptor,
    )
    progress.close(succeeded=status == 0)
    if status != 0:
        raise SetupError(failure("\n".join(output), doing, places.log))
