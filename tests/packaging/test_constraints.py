"""constraints.txt fixes one exact version of everything, for each Python that laploop supports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = [Requirement(line) for line in LINES if line and not line.startswith("#")]
WANTED = [Requirement(text) for text in PROJECT["dependencies"]] + [
    Requirement(text) for extra in PROJECT["optional-dependencies"].values() for text in extra
]
SYSTEMS = {"linux": "posix", "darwin": "posix", "win32": "nt"}


def pins_for(python: str, system: str) -> dict[str, list[str]]:
    environment = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system}
    environment |= {
        "os_name": SYSTEMS[system],
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
    }
    found: dict[str, list[str]] = {}
    for pin in PINS:
        if pin.marker is None or pin.marker.evaluate(environment):
            found.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_dependency_has_one_exact_version_that_its_requirement_allows(python: str, system: str) -> None:
    pins = pins_for(python, system)
    assert {name: versions for name, versions in pins.items() if len(versions) != 1} == {}
    assert all(versions[0].startswith("==") for versions in pins.values())
    for wanted in WANTED:
        name = canonicalize_name(wanted.name)
        if name == "laploop" or (wanted.marker and not wanted.marker.evaluate({"sys_platform": system})):
            continue
        assert name in pins, f"constraints.txt lacks {name}"
        assert wanted.specifier.contains(pins[name][0].removeprefix("==")), f"{wanted} contradicts {pins[name][0]}"


def test_the_single_file_example_asks_for_the_same_llama_cpp() -> None:
    text = (ROOT / "scripts/examples/ask.py").read_text(encoding="utf-8")
    (pin,) = pins_for("3.12", "linux")["llama-cpp-python"]
    assert f'"llama-cpp-python{pin}"' in text


def test_the_build_of_llama_cpp_is_the_same_slim_one_everywhere() -> None:
    """pyproject.toml (uv in the checkout), the example (uv alone) and set-up must not drift apart."""
    flags = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF"
    for name in ("pyproject.toml", "scripts/examples/ask.py", "scripts/bootstrap/laploop_setup/llama.py"):
        assert flags in (ROOT / name).read_text(encoding="utf-8"), name
