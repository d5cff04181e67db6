"""From a failed program's output to its likely cause and the way out. Pure text; runs nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_COMPILER = {
    "linux": "install one: `apt install build-essential`, `dnf install gcc-c++` or your system's like",
    "darwin": "install one: `xcode-select --install`",
    "win32": 'install "Desktop development with C++" of the Visual Studio Build Tools',
}


def _compiler() -> str:
    return _COMPILER.get(sys.platform, "install a C and C++ compiler")


# (pattern in the output, cause, way out), the most telling first.
_CAUSES = (
    (r"No space left on device|not enough space on the disk", "the disk is full", "free 2 GB and repeat"),
    (
        r"ensurepip is not available|No module named '?(ensurepip|venv)",
        "this Python comes without venv",
        f"install it: `apt install python3.{sys.version_info[1]}-venv` on Debian and Ubuntu",
    ),
    (
        r"CUDA_TOOLKIT_ROOT|CUDAToolkit|CMAKE_CUDA_COMPILER|nvcc",
        "no CUDA toolkit was found",
        "install it with its nvcc on PATH, or use --gpu cpu",
    ),
    (
        r"Could NOT find Vulkan|glslc",
        "no Vulkan SDK was found",
        "install it (`apt install libvulkan-dev glslc`), or use --gpu cpu",
    ),
    (
        r"CMAKE_C(XX)?_COMPILER|could not find any instance of Visual Studio|nmake.*no such file"
        r"|'cl' is not recognized",
        "there is no C++ compiler",
        "",
    ),
    (
        r"Killed signal terminated program|out of memory|virtual memory exhausted",
        "memory ran out while compiling",
        "repeat with CMAKE_BUILD_PARALLEL_LEVEL=1 set",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|getaddrinfo failed"
        r"|nodename nor servname|Network is unreachable|NewConnectionError|ConnectTimeoutError"
        r"|ReadTimeoutError|Max retries exceeded|Connection (refused|reset)|ProxyError|RemoteDisconnected",
        "the package index cannot be reached",
        "check the network, or pip's index and proxy settings, and repeat: what is there already stays",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "the package index's certificate is not trusted",
        "check the clock, or name your certificates in PIP_CERT",
    ),
    (
        r"from versions: none\)",
        "the package index cannot be reached or does not have a package",
        "check the network, or pip's index and proxy settings, and repeat",
    ),
    (
        r"No matching distribution found|Could not find a version",
        "the package index lacks a version that constraints.txt asks for",
        "check that pip's index is up to date, and that this Python is 3.10 to 3.13",
    ),
    (r"Permission denied|PermissionError|Access is denied", "a file may not be written", "check its owner"),
)


def cause(output: str) -> tuple[str, str] | None:
    """Return (cause, way out) for the first pattern that the output shows, or None."""
    for pattern, why, way_out in _CAUSES:
        if re.search(pattern, output, re.IGNORECASE):
            return why, way_out or _compiler()
    return None


def failure(output: str, doing: str, log: Path | None) -> str:
    """Compose the one line for a failed step from its output."""
    known = cause(output)
    if known:
        text = f"{doing} failed: {known[0]}; {known[1]}"
    else:
        errors = re.findall(r"^\s*(?:error|ERROR|FAILED)\b:?\s*(.+)$", output, re.MULTILINE)
        text = f"{doing} failed" + (f": {errors[0].strip()[:200]}" if errors else "")
    return f"{text} (full output: {log})" if log else text
