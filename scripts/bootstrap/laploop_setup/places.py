"""Where set-up puts things, and what is said when it cannot go on. Knows no step of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


class SetupError(Exception):
    """Set-up cannot go on; the message is one line that names the cause and the way out."""


class UsageError(SetupError):
    """An argument of scripts/run or scripts/test itself is wrong."""


def say(message: str) -> None:
    """Write one `laploop:` line to stderr, which keeps stdout for the answer."""
    sys.stderr.write(f"laploop: {message}\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Places:
    """The paths of one checkout; all that set-up makes lies under `.venv` (and setuptools' `build`)."""

    root: Path

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / ".venv"

    @property
    def bin(self) -> Path:
        """The folder of the environment's programs."""
        return self.venv / ("Scripts" if os.name == "nt" else "bin")

    def program(self, name: str) -> Path:
        """Path of a program of the environment, with the platform's suffix."""
        return self.bin / (name + ".exe" if os.name == "nt" else name)

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.program("python")

    @property
    def stamp(self) -> Path:
        """What the last set-up finished."""
        return self.venv / "laploop-setup.json"

    @property
    def lock(self) -> Path:
        """Held while a set-up runs."""
        return self.venv / "laploop-setup.lock"

    @property
    def log(self) -> Path:
        """pip's full output, but for the build of llama.cpp."""
        return self.venv / "setup.log"

    @property
    def build_log(self) -> Path:
        """Full output of the build of llama.cpp."""
        return self.venv / "llama-build.log"

    def wheels(self, gpu: str) -> Path:
        """Where the llama-cpp-python wheel of one backend is kept."""
        return self.venv / "wheels" / gpu

    @property
    def pyproject(self) -> Path:
        """Names, dependencies and the list of packages."""
        return self.root / "pyproject.toml"

    @property
    def constraints(self) -> Path:
        """The exact version of every dependency."""
        return self.root / "constraints.txt"
