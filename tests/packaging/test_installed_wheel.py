"""An installed wheel in an environment of its own: names that others rely on, a command that starts light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

# The names that design.md fixes, because others rely on them.
RELIED_ON = {
    "engine": ["Engine", "EngineConfig", "SamplingParams", "Grammar", "EngineError"],
    "models": [
        *["ChatModel", "ScriptedModel", "OutputParser", "parse_output", "render_prompt", "tool_grammar"],
        *["schema_report", "resolve_model", "ModelError"],
    ],
    "tools": ["Tool", "tool", "ToolRegistry", "ToolError", "schema_from_function", "parse_arguments"],
    "agent": ["Agent", "RunResult", "Session", "Trace"],
}
HEAVY = [
    "llama_cpp",
    "llguidance",
    "numpy",
    "rich",
    "prompt_toolkit",
    "httpx",
    "pydantic",
    "trafilatura",
    "jinja2",
]
HEAVY += ["huggingface_hub", "jsonschema", "feedparser"]


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment: laploop from the wheel, the rest from the tests' environment."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(place)], check=True)
    interpreter = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "--python",
        str(interpreter),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    libraries = run(interpreter, "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # A folder named in a .pth is searched after the environment's own packages, and .pth files inside it are
    # not read: an editable laploop in it stays out.
    Path(libraries, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def run(python: Path, code: str) -> str:
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("package", ["engine", "models", "tools", "agent", "scripts"])
def test_every_public_name_of_an_installed_laploop_can_be_imported(python: Path, package: str) -> None:
    code = f"""
import importlib, json
package = importlib.import_module("laploop.{package}")
names = {RELIED_ON.get(package, [])!r} + list(getattr(package, "__all__", []))
missing = [name for name in names if not hasattr(package, name)]
print(json.dumps([package.__file__, missing]))
"""
    where, missing = json.loads(run(python, code))
    assert Path(where).is_relative_to(python.parents[1]), "the wheel's laploop was not the one imported"
    assert missing == []


def test_names_that_others_rely_on_are_declared_public(python: Path) -> None:
    code = f"""
import importlib, json
names = {list(RELIED_ON)!r}
print(json.dumps({{name: importlib.import_module("laploop." + name).__all__ for name in names}}))
"""
    declared = json.loads(run(python, code))
    assert {package: sorted(set(names) - set(declared[package])) for package, names in RELIED_ON.items()} == {
        package: [] for package in RELIED_ON
    }


def test_every_module_can_be_imported_on_its_own(python: Path) -> None:
    """A circular import shows only when its module is the first one imported."""
    code = """
import json, pathlib, laploop.scripts, os
root = pathlib.Path(laploop.scripts.__file__).parents[1]
names = [".".join(("laploop", *path.relative_to(root).with_suffix("").parts)) for path in root.rglob("*.py")]
names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
failed = {}
for name in sorted(names):
    # forked, since what one import brings in must not help the next, and new processes would take minutes
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            __import__(name)
        except BaseException as error:
            os.write(writer, repr(error).encode()[:4000])
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    text = os.read(reader, 4000).decode()
    os.close(reader)
    if text:
        failed[name] = text
print(json.dumps([len(names), failed]))
"""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork; the other systems import the same files")
    count, failed = json.loads(run(python, code))
    assert count > 20
    assert failed == {}


def test_help_is_there_without_loading_anything_heavy(python: Path) -> None:
    code = "import sys; sys.argv = ['laploop', '--help']; from laploop.scripts.entry import main; main()"
    command = [str(python), "-I", "-X", "importtime", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: laploop")
    assert imported & {"click"}, "the list of imports was not understood"
    assert imported & set(HEAVY) == set()


def test_the_command_is_installed(python: Path) -> None:
    program = python.parent / ("laploop.exe" if os.name == "nt" else "laploop")
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.1.0" in done.stdout
