"""One call of an isolated tool in a process of its own: it can be killed, its memory and processor time have limits.

It knows no schemas and no models. The process is started afresh, never forked: ours holds a model, and threads. It
finds the function by module and name, so that the main script is not run a second time; that is also why a function of
the main script, a lambda or an inner function cannot be isolated. Arguments and results cross as JSON: nothing that the
other side wrote is ever unpickled. On Windows there is no limit but the time.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from .errors import ToolError

MAX_RESULT_BYTES = 256_000_000  # more is not read; the process is killed instead
_MAX_SAID_CHARS = 300  # of its stderr, where it ended without a result
_POLL_S = 0.02
_CHILD = "from laploop.tools.isolation import child; child()"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """memory_mb: address space, None for no limit. cpu_s: processor time, None for no limit."""

    memory_mb: int | None
    cpu_s: float | None


class ProcessEndedError(ToolError):
    """The process ended without a result: killed by the system, by a limit, or by itself."""


def check_importable(name: str, function: Callable[..., Any]) -> None:
    """Raise ToolError unless another process can find `function` by its module and name."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not inspect.isfunction(function) or not module or not path:
        raise ToolError(f"{name}: isolated needs a plain function, not {type(function).__name__}; wrap it in a `def`")
    if module == "__main__":
        raise ToolError(
            f"{name}: isolated needs a function of a module that another process can import; "
            "this one is defined in the script that was started: move it to a file of its own"
        )
    if "<" in path:
        raise ToolError(f"{name}: isolated needs a function at the top of a module, not {path}: move it there")


def run_isolated(
    function: Callable[..., Any], arguments: Mapping[str, Any], limits: ProcessLimits, given_up: threading.Event
) -> dict[str, Any]:
    """Call `function(**arguments)` in a new process; the fields of its ToolResult.

    Args:
        function: one that check_importable accepts.
        arguments: JSON values that the schema has accepted.
        limits: what the process may use.
        given_up: once it is set, the process and those that it started are killed.

    Raises:
        ProcessEndedError: no result came.
    """
    order = {
        "path": sys.path,
        "module": function.__module__,
        "function": function.__qualname__,
        "arguments": arguments,
        "memory_mb": limits.memory_mb,
        "cpu_s": limits.cpu_s,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # its own children can be killed with it
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    too_much = threading.Event()
    result, said = (_Reader(pipe, too_much) for pipe in (process.stdout, process.stderr))
    try:
        with contextlib.suppress(OSError):  # it ended before it read: its exit says why
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
        while process.poll() is None and not (given_up.wait(_POLL_S) or too_much.is_set()):
            pass
    finally:
        _kill(process)
    if too_much.is_set():
        raise ProcessEndedError(f"its process was killed: it wrote more than {MAX_RESULT_BYTES:,} bytes")
    return _read_result(result.text(), said.text(), process.returncode)


def _read_result(result: str, said: str, code: int) -> dict[str, Any]:
    try:
        fields = json.loads(result)
        return {name: fields[name] for name in ("content", "is_error", "value", "notes", "fault")}
    except (ValueError, KeyError, TypeError, RecursionError):
        how = f"signal {-code} ({_signal_name(-code)})" if code < 0 else f"exit code {code}"
        last = " ".join(said[-_MAX_SAID_CHARS:].split())
        raise ProcessEndedError(
            f"its process ended by {how} without a result" + (f": {last}" if last else "")
        ) from None


class _Reader:
    """Reads a pipe to its end in a thread, so that neither side waits for the other."""

    def __init__(self, pipe: IO[bytes], too_much: threading.Event) -> None:
        self._pipe, self._too_much, self._data = pipe, too_much, bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while piece := self._pipe.read1(1 << 16):  # type: ignore[attr-defined]  # a BufferedReader has it
                self._data += piece
                if len(self._data) > MAX_RESULT_BYTES:
                    self._too_much.set()
                    return

    def text(self) -> str:
        self._thread.join(5)  # a grandchild that left the session may hold the pipe open
        return self._data.decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its session; nothing happens to what has ended by itself."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def child() -> None:
    """The other side: read the order from stdin, run the function, write the result to what stdout was."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints must not stand in the result
    order = json.load(sys.stdin)
    notes = _limit(order["memory_mb"], order["cpu_s"])
    from .definition import Tool, as_result, failure
    from .invocation import error_line, run_to_deadline
    from .result_text import to_json_value
    from .signature import Binder

    try:
        target: Any = importlib.import_module(order["module"])
        for part in order["function"].split("."):
            target = getattr(target, part)
        function = target.function if isinstance(target, Tool) else target
        binder = Binder(function, strict=False)
        result = run_to_deadline(lambda: binder.call(order["arguments"]), None, "isolated", finish=as_result)
        value = to_json_value(result.value)
    except Exception as error:  # noqa: BLE001 - whatever it raises is an answer for the model
        result, value = failure(error_line(error), ()), None
    fields = {"content": result.content, "is_error": result.is_error, "value": value, "fault": result.fault}
    out.write(json.dumps({**fields, "notes": [*notes, *result.notes]}).encode())
    out.close()
    os._exit(0)  # threads that the function left behind do not hold the process


def _limit(memory_mb: int | None, cpu_s: float | None) -> list[str]:
    """Set the limits; what cannot be set is noted."""
    if sys.platform == "win32":
        return ["no limits of memory and processor time on Windows"]
    import resource

    notes = []
    wanted = [(resource.RLIMIT_CORE, "core files", 0)]
    if memory_mb is not None:
        wanted.append((resource.RLIMIT_AS, "memory", memory_mb * 1024 * 1024))
    if cpu_s is not None:
        wanted.append((resource.RLIMIT_CPU, "processor time", max(1, int(cpu_s + 1))))
    for which, label, most in wanted:
        hard = resource.getrlimit(which)[1]
        try:
            resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        except (ValueError, OSError) as error:  # macOS has no limit of address space
            notes.append(f"no limit of {label}: {error}")
    return notes
