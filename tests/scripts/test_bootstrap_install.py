"""scripts/run as a whole, on a small checkout and an index on loopback: fresh, repeated, killed, two at once.

The checkout has the real scripts and a command that prints its arguments; the index serves a stand-in for
llama-cpp-python (as a wheel, and as a source that "compiles") and the setuptools of this environment.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib.metadata
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.3.36"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "laploop"
version = "0.1.0"
dependencies = ["llama-cpp-python"]
[project.scripts]
laploop = "laploop.scripts.entry:main"
[tool.setuptools]
packages = ["laploop.scripts"]
package-dir = { "laploop.scripts" = "scripts" }
"""
CLI = """
import os, sys
def main():
    print("laploop got", sys.argv[1:], os.environ.get("LAPLOOP_MODEL", "-"))
"""
DEFAULT_MODEL = "import sys; print('small-model' if sys.argv[1:] == ['what?'] else sys.argv[1:])"
BACKEND = """
import os, sys, time, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    for step in (1, 2):
        print(f"[{step}/2] cc -c part.c", flush=True)
    if "-DBREAK" in os.environ["CMAKE_ARGS"]:
        sys.exit("CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage")
    name = "llama_cpp_python-0.3.36-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        info = "llama_cpp_python-0.3.36.dist-info/"
        wheel.writestr("llama_cpp.py", f"built_with = {os.environ['CMAKE_ARGS']!r}")
        metadata = "Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: 0.3.36\\n"
        wheel.writestr(info + "METADATA", metadata)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def fake_wheel() -> bytes:
    """A prebuilt llama-cpp-python."""
    data = io.BytesIO()
    info = f"llama_cpp_python-{VERSION}.dist-info/"
    with zipfile.ZipFile(data, "w") as wheel:
        wheel.writestr("llama_cpp.py", "built_with = 'prebuilt'")
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {VERSION}\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    return data.getvalue()


def fake_source() -> bytes:
    """Its source archive, with a build back end of its own."""
    name = f"llama_cpp_python-{VERSION}"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {VERSION}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND,
    }
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def setuptools_wheel() -> tuple[str, bytes]:
    """The setuptools of this environment, made into a wheel again, since the tests reach no network."""
    installed = importlib.metadata.distribution("setuptools")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for file in installed.files or ():
            path = Path(str(installed.locate_file(file)))
            if ".." not in file.parts and path.suffix != ".pyc" and path.is_file():
                wheel.write(path, file.as_posix())
    return f"setuptools-{installed.version}-py3-none-any.whl", data.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """A package index; while `held` is set, the wheel of llama-cpp-python is asked for in vain."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        name, content = setuptools_wheel()
        self.files = {
            f"/whl/cpu/llama-cpp-python/llama_cpp_python-{VERSION}-py3-none-any.whl": fake_wheel(),
            f"/simple/llama-cpp-python/llama_cpp_python-{VERSION}.tar.gz": fake_source(),
            f"/simple/setuptools/{name}": content,
        }
        self.setuptools_version = name.split("-")[1]
        self.asked = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Files, and for each folder the page with its links."""

    server: Index

    def do_GET(self) -> None:
        path = self.path.partition("#")[0]
        content = self.server.files.get(path)
        if content is None:
            links = [name for name in self.server.files if name.startswith(path)]
            content = "".join(f'<a href="{name}">{name.rpartition("/")[2]}</a>' for name in links).encode()
            self.send_response(200 if links else 404)
            self.send_header("Content-Type", "text/html")
        else:
            if path.startswith("/whl/"):
                self.server.asked.set()
                self.server.free.wait(60)
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client was killed: that is what some tests are about
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    server = Index()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.free.set()
    server.shutdown()
    thread.join()
    server.server_close()


class Checkout:
    """A checkout with the real set-up scripts and hardly anything else."""

    def __init__(self, root: Path, index: Index) -> None:
        self.root = root
        (root / "scripts").mkdir(parents=True)
        shutil.copy2(ROOT / "scripts" / "run", root / "scripts" / "run")
        shutil.copytree(
            ROOT / "scripts" / "bootstrap",
            root / "scripts" / "bootstrap",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (root / "scripts" / "entry.py").write_text(CLI)
        (root / "scripts" / "default_model.py").write_text(DEFAULT_MODEL)
        (root / "pyproject.toml").write_text(PYPROJECT)
        pins = f"llama-cpp-python=={VERSION}\nsetuptools=={index.setuptools_version}\n"
        (root / "constraints.txt").write_text(pins)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "LAPLOOP_", "CMAKE_"))}
        self.environment |= {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_INDEX_URL": f"{index.address}/simple",
            "LAPLOOP_LLAMA_WHEELS": f"{index.address}/whl",
            "CC": sys.executable,  # a program that exists: nothing is compiled here
        }

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.root / "scripts" / "run"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | changes,
            # a shell ignores Ctrl-C on behalf of its background jobs; these tests may be one
            preexec_fn=None if os.name == "nt" else _heed_ctrl_c,
        )

    def run(self, *arguments: str, **changes: str) -> tuple[int, str, str]:
        with self.start(*arguments, **changes) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def module(self, code: str) -> str:
        python = self.root / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        return subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()

    def llama(self) -> str:
        return self.module("import llama_cpp; print(llama_cpp.built_with)")

    def n_installs(self) -> int:
        log = (self.root / ".venv" / "setup.log").read_text()
        return sum(line.startswith("$ ") and " -e " in line for line in log.splitlines())


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def made(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose first set-up was killed in its middle, and then called twice at the same time."""
    checkout = Checkout(tmp_path_factory.mktemp("made") / "with a blank", index)
    index.free.clear()
    index.asked.clear()
    with checkout.start("tools") as process:
        assert index.asked.wait(60), "the prebuilt wheel was never asked for"
        process.kill()
        process.communicate()
    index.free.set()
    with checkout.start("tools", "2") as one, checkout.start("tools", "3") as other:
        results = [(process.communicate(), process.returncode) for process in (one, other)]
    assert [code for _, code in results] == [0, 0], results
    assert [out for (out, _), _ in results] == [
        "laploop got ['tools', '2'] -\n",
        "laploop got ['tools', '3'] -\n",
    ]
    return checkout


def test_after_a_kill_two_calls_at_once_finish_it_together_installing_once(made: Checkout) -> None:
    assert made.llama() == "prebuilt"
    assert made.n_installs() == 1


def test_a_repeat_passes_arguments_unchanged_and_says_and_installs_nothing(made: Checkout) -> None:
    before = (made.root / ".venv" / "setup.log").read_bytes()
    arguments = ["tools", "--gpu", "cuda", "--", "a b", "", '"', "--reinstall"]
    assert made.run(*arguments) == (0, f"laploop got {arguments} -\n", "")
    assert (made.root / ".venv" / "setup.log").read_bytes() == before


def test_a_question_without_a_model_gets_the_one_that_can_be_had(made: Checkout) -> None:
    assert made.run("what?") == (0, "laploop got ['what?'] small-model\n", "")
    assert made.run("what?", LAPLOOP_MODEL="mine") == (0, "laploop got ['what?'] mine\n", "")
    code, out, _ = made.run("--offline", "what?")
    assert (code, out) == (0, "laploop got ['--offline', 'what?'] ['--offline', 'what?']\n")


def test_timings_are_told_on_stderr_when_asked_for(made: Checkout) -> None:
    for call in (made.run("--timings", "tools"), made.run("tools", LAPLOOP_TIMINGS="1")):
        code, out, err = call
        assert (code, out) == (0, "laploop got ['tools'] -\n")
        assert err.startswith("laploop: timings: install ")
        assert ", model " in err
        assert ", answer " in err


def test_a_new_module_is_linked_and_a_deleted_one_cut_off_without_any_index(made: Checkout) -> None:
    """The strict editable install links file by file: without another install the new one is not found."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "LAPLOOP_LLAMA_WHEELS": "http://127.0.0.1:9"}
    extra = made.root / "scripts" / "extra.py"
    extra.write_text("print('here')")
    assert made.run("tools", **nowhere)[0] == 0
    assert made.module("import laploop.scripts.extra") == "here"
    extra.unlink()
    assert made.run("tools", **nowhere)[0] == 0
    assert made.module("import importlib.util as u; print(u.find_spec('laploop.scripts.extra'))") == "None"


def test_another_backend_is_built_with_the_users_cmake_arguments_and_stays(
    made: Checkout,
) -> None:
    """The index has no vulkan wheel, so this is the source build; a wheel of the same version gives way."""
    code, out, err = made.run("--gpu", "vulkan", "tools", CMAKE_ARGS="-DGGML_NATIVE=OFF")
    assert (code, out) == (0, "laploop got ['tools'] -\n"), err
    assert made.llama().split()[-2:] == ["-DGGML_VULKAN=on", "-DGGML_NATIVE=OFF"]
    assert "[2/2] cc -c part.c" in (made.root / ".venv" / "llama-build.log").read_text()
    assert made.run("tools") == (0, "laploop got ['tools'] -\n", "")
    assert made.run("--gpu", "cpu", "tools")[0] == 0
    assert made.llama() == "prebuilt"


def test_a_broken_build_is_one_line_with_cause_and_log_and_the_next_goes_on(made: Checkout) -> None:
    code, out, err = made.run("--gpu", "metal", "tools", CMAKE_ARGS="-DBREAK")
    last = err.strip().splitlines()[-1]
    assert (code, out) == (1, "")
    assert "there is no C++ compiler" in last
    assert str(made.root / ".venv" / "llama-build.log") in last
    assert "Traceback" not in err
    assert made.run("tools")[0] == 0
    assert made.llama().endswith("-DGGML_METAL=on")


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C cannot be sent to one process there")
def test_ctrl_c_ends_set_up_with_one_line_and_leaves_no_program_behind(index: Index, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout", index)
    index.free.clear()
    index.asked.clear()
    try:
        with checkout.start("tools") as process:
            assert index.asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
    finally:
        index.free.set()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "laploop: interrupted; the same command goes on from here"
    assert "Traceback" not in err
    import fcntl

    # pip held this lock too: it can be taken, so pip is gone
    with (checkout.root / ".venv" / "laploop-setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_any_index_one_line_says_so(index: Index, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout", index)
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "LAPLOOP_LLAMA_WHEELS": "off",
        "PIP_RETRIES": "1",
    }
    code, out, err = checkout.run("tools", **nowhere)
    assert (code, out) == (1, "")
    assert "the package index cannot be reached" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_link_in_the_place_of_the_environment_is_not_followed(index: Index, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout", index)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("keep me")
    (checkout.root / ".venv").symlink_to(elsewhere, target_is_directory=True)
    code, _, err = checkout.run("tools")
    assert code == 1
    assert err.count("\n") == 1
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]
