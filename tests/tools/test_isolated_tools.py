"""Isolated tools: another process, the same results; it is killed with its children; its limits hold."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import isolated_tools as functions
import pytest
from laploop.tools import Tool, ToolError, tool

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
posix = pytest.mark.skipif(sys.platform == "win32", reason="no limits and signals there")


def isolated(function: Any, **settings: Any) -> Tool:
    return tool(isolated=True, **settings)(function)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return Path("/proc/self").exists() is False


def test_the_result_is_that_of_the_function() -> None:
    """Conversions, type hints, coroutines and decorated functions included; what it prints is not part of it."""
    result = isolated(functions.double).invoke('{"n": "21"}')
    assert (result.content, result.value, result.is_error, result.notes) == ("42", 42, False, ('/n: "21" read as 21',))
    assert isolated(functions.next_year).invoke({"day": "2024-05-06"}).content == '"2025-05-06"'
    assert isolated(functions.later).invoke({"text": "北京"}).content == "北京"
    assert functions.own_process.invoke({}).value != os.getpid()


def test_faults_are_those_of_the_function() -> None:
    assert isolated(functions.junk).invoke({}).content == "ValueError: nothing came"
    bad = isolated(functions.double).invoke({"n": "x"})
    assert bad.is_error and bad.fault == "arguments"


@posix
@pytest.mark.parametrize("by", ["deadline", "stop"])
def test_it_is_killed_with_its_children(tmp_path: Path, by: str) -> None:
    file = tmp_path / "pids"
    stop = threading.Event()
    results = []
    hang = isolated(functions.hang, timeout_s=5 if by == "deadline" else None)
    caller = threading.Thread(target=lambda: results.append(hang.invoke({"file": str(file)}, stop=stop)))
    caller.start()
    while not file.exists() and caller.is_alive():
        time.sleep(0.01)
    pids = [int(pid) for pid in file.read_text().split()]
    if by == "stop":
        stop.set()
    caller.join()
    assert results[0].is_error and "its process was killed" in results[0].content
    assert results[0].fault == ("timeout" if by == "deadline" else "stopped")
    end = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not [pid for pid in pids if is_alive(pid)]


@posix
def test_memory_has_a_limit() -> None:
    result = isolated(functions.hog, memory_mb=2048).invoke({})
    assert result.is_error and "MemoryError" in result.content


@posix
def test_a_process_that_ends_without_a_result_says_how() -> None:
    result = isolated(functions.crash).invoke({})
    assert result.fault == "died" and "SIGABRT" in result.content


def test_code_that_never_waits_is_killed() -> None:
    assert isolated(functions.spin, timeout_s=1).invoke({}).fault == "timeout"


def test_a_function_that_cannot_be_found_is_refused_when_the_tool_is_made() -> None:
    def inner() -> None:
        """Inner."""

    main = type(inner)(inner.__code__, {}, "main")
    main.__module__, main.__qualname__, main.__doc__ = "__main__", "main", "Main."
    for function, said in ((inner, "top of a module"), (main, "file of its own"), (print, "plain function")):
        with pytest.raises(ToolError, match=said):
            Tool("f", "d", NO_PARAMETERS, function, isolated=True)
    with pytest.raises(ToolError, match="megabytes"):
        isolated(functions.spin, memory_mb=0)
