"""The llama-cpp-python wheel: the maintainer's prebuilt one where that can be had, else a slim source build.

The wheel stays in `.venv/wheels/<backend>`: an interrupted set-up, another Python version and the test of the
single-file example use it again. Knows nothing of laploop's own installation.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import threading
import urllib.request
from collections.abc import Mapping

from . import process
from .causes import failure
from .places import Places, SetupError, say

BACKENDS = ("cpu", "cuda", "vulkan", "metal")
# Variants that the maintainer's release workflow publishes; that of CUDA 12.4 wants CUDA 12's libraries.
WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl"
_VARIANT = {"cpu": "cpu", "cuda": "cu124", "vulkan": "vulkan", "metal": "metal"}
_INDEX_WAIT_S = 4.0
# Only ggml and llama: the multimodal, common and server parts, which the bindings do not use here, would take
# four times as long to compile.
_SLIM = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF"
_BACKEND_FLAG = {
    "cpu": "",
    "cuda": "-DGGML_CUDA=on",
    "vulkan": "-DGGML_VULKAN=on",
    "metal": "-DGGML_METAL=on",
}
_STEP = re.compile(r"\[(\d+)/(\d+)\]")


def default_backend() -> str:
    """Return the backend of a first set-up with no --gpu: Metal on Apple silicon, the CPU elsewhere."""
    return "metal" if sys.platform == "darwin" and platform.machine() == "arm64" else "cpu"


def cmake_arguments(gpu: str, environment: Mapping[str, str]) -> str:
    """Return CMAKE_ARGS of the slim build; what the user has set comes last, where it wins."""
    return " ".join(part for part in (_SLIM, _BACKEND_FLAG[gpu], environment.get("CMAKE_ARGS", "")) if part)


def wheel_index(environment: Mapping[str, str]) -> str:
    """Return the address of the index of prebuilt wheels, "" if LAPLOOP_LLAMA_WHEELS=off asks for a build."""
    chosen = environment.get("LAPLOOP_LLAMA_WHEELS", WHEEL_INDEX).rstrip("/")
    return "" if chosen.lower() == "off" else chosen


def index_offers(address: str, version: str, wait_s: float = _INDEX_WAIT_S) -> bool:
    """Tell whether the index page lists a wheel of this version; one that is silent for `wait_s` does not.

    In a thread, since the look-up of a host name knows no time limit of its own.
    """
    found: list[bool] = []

    def ask() -> None:
        try:
            page = f"{address}/llama-cpp-python/"  # our constant, or the user's own choice
            with urllib.request.urlopen(page, timeout=wait_s) as answer:  # noqa: S310 - https, by default
                found.append(f"llama_cpp_python-{version}-" in answer.read().decode("utf-8", "replace"))
        except (OSError, ValueError):
            found.append(False)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(wait_s)
    return bool(found and found[0])


def obtain(places: Places, version: str, gpu: str, lock: int) -> None:
    """Put a working llama-cpp-python of this version into the environment.

    Raises:
        SetupError: it can be neither fetched nor built.
    """
    folder = places.wheels(gpu)
    if _kept(folder, version) and _install(places, version, gpu, lock):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if _fetch(places, version, gpu, lock) and _install(places, version, gpu, lock):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _build(places, version, gpu, lock)
    if not _install(places, version, gpu, lock):
        raise SetupError(f"llama.cpp was built but does not load; the reason stands at the end of {places.log}")


def _kept(folder: os.PathLike[str], version: str) -> bool:
    return any(name.startswith(f"llama_cpp_python-{version}-") for name in _names(folder))


def _names(folder: os.PathLike[str]) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _pip_wheel(places: Places, version: str, gpu: str, *options: str) -> list[str]:
    # Built or fetched under another name first: a wheel in its final folder is a whole one.
    return [
        str(places.python), "-m", "pip", "wheel", "-v", "--no-deps", "--progress-bar", "off",
        "-w", str(_partial(places, gpu)), *options, f"llama-cpp-python=={version}",
    ]  # fmt: skip


def _partial(places: Places, gpu: str) -> os.PathLike[str]:
    return places.venv / "wheels" / f"{gpu}.partial"


def _take(places: Places, gpu: str) -> None:
    partial = _partial(places, gpu)
    for name in _names(partial):
        os.replace(os.path.join(partial, name), places.wheels(gpu) / name)
    shutil.rmtree(partial, ignore_errors=True)


def _fetch(places: Places, version: str, gpu: str, lock: int) -> bool:
    base = wheel_index(os.environ)
    if not base:
        return False
    address = f"{base}/{_VARIANT[gpu]}"
    if not index_offers(address, version):
        say(f"{address} does not answer with llama-cpp-python {version}: building it from source")
        return False
    progress = process.Progress(f"fetching the prebuilt {gpu} wheel of llama-cpp-python {version}")
    # The maintainer's index alone: other indexes of the user's configuration stay out of this one step.
    options = ("--index-url", address, "--only-binary", "llama-cpp-python")
    status = process.run(
        _pip_wheel(places, version, gpu, *options),
        log=places.log,
        progress=progress,
        on_line=lambda line: None,
        environment=process.clean_environment({"PIP_EXTRA_INDEX_URL": "", "PIP_NO_INDEX": "0"}),
        keep_open=lock,
    )
    progress.close(succeeded=status == 0)
    if status != 0:
        say(f"no prebuilt wheel fits this machine (see {places.log}): building from source")
        return False
    _take(places, gpu)
    return True


def _build(places: Places, version: str, gpu: str, lock: int) -> None:
    if os.name != "nt" and not any(
        shutil.which(name) for name in (os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang") if name
    ):
        raise SetupError(failure("no C compiler: CMAKE_C_COMPILER not set", "building llama.cpp", None))
    places.build_log.write_text("", encoding="utf-8")
    progress = process.Progress(f"building llama.cpp for {gpu} from source (3 to 10 minutes on two cores)")

    def on_line(line: str) -> None:
        step = _STEP.match(line)
        if step:
            progress.title = f"building llama.cpp for {gpu}: {step[1]}/{step[2]}"
        elif line.startswith(("Downloading ", "Collecting ", "Installing build dependencies")):
            progress.detail = line[:40]
        if step or "Building wheel" in line:
            progress.detail = ""

    # pip files a built wheel in its cache under the source's address alone, not under CMAKE_ARGS: only the
    # plain CPU build may come from there or go there.
    plain = gpu == "cpu" and not os.environ.get("CMAKE_ARGS")
    options = ["--no-binary", "llama-cpp-python", *([] if plain else ["--no-cache-dir"])]
    status = process.run(
        _pip_wheel(places, version, gpu, *options),
        log=places.build_log,
        progress=progress,
        on_line=on_line,
        environment=process.clean_environment({"CMAKE_ARGS": cmake_arguments(gpu, os.environ)}),
        keep_open=lock,
    )
    progress.close(succeeded=status == 0)
    if status != 0:
        text = places.build_log.read_text(encoding="utf-8", errors="replace")
        raise SetupError(failure(text, "building llama.cpp", places.build_log))
    _take(places, gpu)


def _install(places: Places, version: str, gpu: str, lock: int) -> bool:
    """Install the kept wheel with what it needs, and tell whether its library loads."""
    wheels = [name for name in _names(places.wheels(gpu)) if name.startswith(f"llama_cpp_python-{version}-")]
    progress = process.Progress(f"installing llama-cpp-python {version} ({gpu})")
    wheel = str(places.wheels(gpu) / wheels[0])
    constraints = ["-c", str(places.constraints)]
    steps = (
        [str(places.python), "-m", "pip", "install", "--progress-bar", "off", *constraints, wheel],
        # the wheel again, alone: a wheel of the same version but another backend may be there already
        [str(places.python), "-m", "pip", "install", "--no-deps", "--no-index", "--force-reinstall", wheel],
    )
    for command in steps:
        status = _logged(places, command, progress, lock)
        if status != 0:
            progress.close(succeeded=False)
            raise SetupError(failure(_tail(places), "installing llama-cpp-python", places.log))
    loads = _logged(places, [str(places.python), "-I", "-c", "import llama_cpp"], progress, lock) == 0
    progress.close(succeeded=loads)
    if not loads:
        say(f"the {gpu} wheel of llama-cpp-python does not load on this machine (reason in {places.log})")
    return loads


def _logged(places: Places, command: list[str], progress: process.Progress, lock: int) -> int:
    return process.run(
        command,
        log=places.log,
        progress=progress,
        on_line=lambda line: None,
        environment=process.clean_environment(),
        keep_open=lock,
    )


def _tail(places: Places, n_characters: int = 20_000) -> str:
    return places.log.read_text(encoding="utf-8", errors="replace")[-n_characters:]
