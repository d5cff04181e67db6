"""MCP servers, real ones: the tests' own over stdio and HTTP, one from PyPI, one from npm. Killed, slow, cancelled."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from laploop.tools import Tool, ToolResult

pytest.importorskip("mcp")

from laploop.tools.mcp import McpError, McpServerConfig, McpServers, read_servers
from laploop.tools.mcp.servers import as_tool_result, effects_of, tool_name

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


@contextlib.contextmanager
def running(name: str = "odd", **settings: Any) -> Iterator[tuple[McpServers, dict[str, Tool]]]:
    config = McpServerConfig(name, **{"command": sys.executable, "args": (str(SERVER),), **settings})
    with McpServers([config]) as servers:
        found = {item.name: item for item in servers.tools()}
        assert servers.problems == ()
        yield servers, found


@pytest.fixture(scope="module")
def odd() -> Iterator[dict[str, Tool]]:
    with running() as (_, tools):
        yield tools


def test_tools_are_prefixed_and_carry_their_schemas_and_effects(odd: dict[str, Tool]) -> None:
    assert list(odd) == ["odd_echo", "odd_slow", "odd_die", "odd_fail", "odd_picture", "odd_table", "odd_environment"]
    echo = odd["odd_echo"]
    assert echo.description.startswith("Repeat a text") and echo.group == "odd"
    assert echo.parameters["properties"]["times"]["default"] == 1 and echo.parameters["required"] == ["text"]
    assert [sorted(odd[f"odd_{name}"].effects) for name in ("echo", "slow", "die")] == [
        ["read"], ["read", "write"], ["irreversible", "network", "read"],
    ]  # fmt: skip


def test_calls_results_and_errors(odd: dict[str, Tool]) -> None:
    assert odd["odd_echo"].invoke({"text": "好", "times": 3}).content == "好好好"
    failed = odd["odd_fail"].invoke({})
    assert failed.is_error and "Error executing tool fail" in failed.content
    assert odd["odd_picture"].invoke({}).content == "see:\n(image/png, 30 bytes)"
    assert odd["odd_table"].invoke({}).value == {"rows": [[1, "二"]], "n": 1}
    wrong = odd["odd_echo"].invoke({"times": 2})
    assert wrong.is_error and "text" in wrong.content and wrong.fault == "arguments"


def test_calls_run_side_by_side(odd: dict[str, Tool]) -> None:
    results: list[ToolResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(odd["odd_slow"].invoke({"seconds": 0.5}))) for _ in range(8)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.content for r in results] == ["waited"] * 8
    assert time.monotonic() - begun < 8 * 0.5, "one after the other they take four seconds"


def test_large_results_are_bounded(odd: dict[str, Tool]) -> None:
    result = odd["odd_echo"].invoke({"text": "x" * 1000, "times": 3000})
    assert len(result.content) < 201_000 and result.content.endswith("[cut: 200,000 of 3,000,000 characters]")


def test_a_server_gets_no_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "x")
    with running(env={"MINE": "1"}) as (_, tools):
        seen = tools["odd_environment"].invoke({}).content.split()
    assert "MY_SECRET_TOKEN" not in seen and {"MINE", "PATH"} <= set(seen)


def test_a_server_that_dies_in_mid_call_gives_a_result_and_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(env={"LAPLOOP_TEST_LOG": str(log)}) as (_, tools):
        died = tools["odd_die"].invoke({})
        assert died.is_error and "ended during the call" in died.content and died.fault == ""
        assert tools["odd_echo"].invoke({"text": "again"}).content == "again"
    assert len(started(log)) == 2


def started(log: Path) -> list[int]:
    """The servers that began, by what each wrote: their process ids."""
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("start ")]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
@pytest.mark.parametrize("in_mid_call", [True, False])
def test_a_server_killed_from_outside(tmp_path: Path, in_mid_call: bool) -> None:
    """In mid-call: a result, long before the timeout. Between two calls: the next one does not notice."""
    log = tmp_path / "log"
    with running(env={"LAPLOOP_TEST_LOG": str(log)}) as (_, tools):
        (pid,) = started(log)
        if in_mid_call:
            results: list[ToolResult] = []
            thread = threading.Thread(target=lambda: results.append(tools["odd_slow"].invoke({"seconds": 25})))
            thread.start()
            wait_for(lambda: "slow begins" in log.read_text())
            os.kill(pid, signal.SIGKILL)
            thread.join(20)
            assert not thread.is_alive() and results[0].is_error and "ended during the call" in results[0].content
        else:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: is_gone(pid))
            time.sleep(0.2)  # for the end of its output to be seen
        assert tools["odd_echo"].invoke({"text": "again"}).content == "again"
        assert len(started(log)) == 2
    wait_for(lambda: all(map(is_gone, started(log))))


def wait_for(condition: Any) -> None:
    for _ in range(400):
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_a_call_that_takes_too_long_is_given_up_and_the_server_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(env={"LAPLOOP_TEST_LOG": str(log)}) as (servers, tools):
        quick = Tool(
            "quick",
            "",
            tools["odd_slow"].parameters,
            tools["odd_slow"].function,
            timeout_s=1.0,
            effects=frozenset({"read"}),
        )
        result = quick.invoke({"seconds": 30})
        assert result.fault == "timeout" and "timed out after 1 s" in result.content
        wait_for(lambda: "slow was cancelled" in log.read_text())
        assert tools["odd_echo"].invoke({"text": "alive"}).content == "alive"
        assert len(started(log)) == 1
        del servers


def test_a_stopped_run_cancels_its_call(tmp_path: Path) -> None:
    log, stop = tmp_path / "log", threading.Event()
    with running(env={"LAPLOOP_TEST_LOG": str(log)}) as (_, tools):
        threading.Timer(0.5, stop.set).start()
        assert tools["odd_slow"].invoke({"seconds": 30}, stop=stop).fault == "stopped"
        wait_for(lambda: "slow was cancelled" in log.read_text())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": "laploop-no-such-program", "args": ()}, "did not start"),
        ({"args": ("-c", "import sys; sys.exit('missing key')")}, "missing key"),
        ({"args": ("-c", "print('no protocol'); import time; time.sleep(30)"), "timeout_s": 2.0}, "within 2 s"),
        ({"command": "", "args": (), "url": "http://127.0.0.1:1/mcp"}, "did not start"),
    ],
)
def test_a_server_that_does_not_start_hinders_no_other(settings: dict[str, Any], said: str) -> None:
    bad = McpServerConfig("bad", **{"command": sys.executable, **settings})
    good = McpServerConfig("good", command=sys.executable, args=(str(SERVER),))
    with McpServers([bad, good]) as servers:
        assert next(item.name for item in servers.tools()) == "good_echo"
        (problem,) = servers.problems
    assert "'bad'" in problem and said in problem and "\n" not in problem


def test_streamable_http(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVER), str(port)]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: socket.create_connection(("127.0.0.1", port), 0.1).close() is None)
        return process

    process = start()
    try:
        config = McpServerConfig("web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Mine": "1"}, timeout_s=10)
        with McpServers([config]) as servers:
            tools = {item.name: item for item in servers.tools()}
            assert tools["web_echo"].invoke({"text": "a", "times": 2}).content == "aa"
            died = tools["web_die"].invoke({})
            process.wait(10)
            assert died.is_error
            process = start()
            assert tools["web_echo"].invoke({"text": "b"}).content == "b"
    finally:
        process.kill()
        process.wait()


def test_the_time_server_from_pypi() -> None:
    pytest.importorskip("mcp_server_time")
    config = McpServerConfig("time", command=sys.executable, args=("-m", "mcp_server_time", "--local-timezone", "UTC"))
    with McpServers([config]) as servers:
        tools = {item.name: item for item in servers.tools()}
        assert servers.problems == ()
        value = json.loads(tools["time_get_current_time"].invoke({"timezone": "Asia/Tokyo"}).content)
        assert value["timezone"] == "Asia/Tokyo" and value["datetime"].endswith("+09:00")
        assert tools["time_get_current_time"].invoke({"timezone": "Mars"}).is_error


def npm_server() -> list[str]:
    """The command of npm's reference filesystem server; skips where it is not to be had."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    roots = [Path(os.environ.get("LAPLOOP_NPM_MODULES", "")), Path.cwd() / "node_modules"]
    for root in roots:
        script = root / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
        if root.parts and script.is_file():
            return [node, str(script)]
    pytest.skip("npm's @modelcontextprotocol/server-filesystem is not installed; LAPLOOP_NPM_MODULES names its folder")


def test_the_filesystem_server_from_npm(tmp_path: Path) -> None:
    node, script = npm_server()
    (tmp_path / "a.txt").write_text("first line\nsecond\n")
    with McpServers([McpServerConfig("files", command=node, args=(script, str(tmp_path)))]) as servers:
        tools = {item.name: item for item in servers.tools()}
        assert servers.problems == ()
        assert "first line" in tools["files_read_text_file"].invoke({"path": str(tmp_path / "a.txt")}).content
        assert tools["files_read_text_file"].effects == {"read", "network"} or tools[
            "files_read_text_file"
        ].effects == {"read"}
        assert "irreversible" in tools["files_write_file"].effects
        refused = tools["files_read_text_file"].invoke({"path": "/etc/passwd"})
        assert refused.is_error and "root:" not in refused.content


def test_mcpservers_json_as_others_write_it(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "files": {
                        "command": "npx",
                        "args": ["-y", "${PKG}", "${DIR:-.}"],
                        "env": {"TOKEN": "${env:TOKEN}"},
                    },
                    "wiki": {
                        "type": "http",
                        "url": "https://w.example/mcp",
                        "headers": {"Authorization": "Bearer ${TOKEN}"},
                    },
                    "off": {"command": "x", "disabled": True},
                    "mine": {"command": "y", "timeout_s": 5, "effects": ["read"], "autoApprove": ["a"]},
                }
            }
        )
    )
    files, wiki, mine = read_servers(file, {"PKG": "p", "TOKEN": "t"})
    assert (files.command, files.args, files.env) == ("npx", ("-y", "p", "."), {"TOKEN": "t"})
    assert (wiki.url, wiki.headers) == ("https://w.example/mcp", {"Authorization": "Bearer t"})
    assert mine.effects == {"read"} and mine.timeout_s == 5 and "autoApprove" in mine.notes[0]
    assert [c.name for c in read_servers({"servers": {"a": {"command": "b"}}}, {})] == ["a"]
    assert [c.name for c in read_servers({"a": {"command": "b"}}, {})] == ["a"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "either `command`"), ({"command": "a", "url": "http://b"}, "either `command`"),
        ({"url": "b"}, "must start with"),
        ({"command": "a", "type": "sse"}, "SSE"), ({"command": "a", "args": "b"}, "expected a list"),
        ({"command": 1}, "expected a str"), ({"command": "a", "env": []}, "expected a dict"),
        ({"command": "a", "args": ["${NOT_SET}"]}, "NOT_SET is not set"),
        ({"command": "a", "cmd": "b"}, "'cmd' is not known"),
        ({"command": "a", "effects": ["harmless"]}, "choose from"), ({"command": "a", "effects": "read"}, "a list"),
        ({"command": "a", "timeout_s": "5"}, "give seconds"), ({"command": "a", "timeout_s": 0}, "above 0"),
        ("x", "expected an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_it_is_named_with_its_server(entry: Any, said: str) -> None:
    with pytest.raises(McpError, match="'s'") as caught:
        read_servers({"mcpServers": {"s": entry}}, {})
    assert said in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for content in ("", "[]", "{"):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(McpError, match=r"x\.json"):
            read_servers(tmp_path / "x.json")
    with pytest.raises(McpError):
        read_servers(tmp_path / "none.json")


def test_names_are_ones_that_every_template_can_write() -> None:
    assert tool_name("my server", "do.it/now") == "my_server_do_it_now"
    assert tool_name("2nd", "x") == "_2nd_x" and tool_name("文件", "读") == "文件_读"
    long = [tool_name("s", "x" * 80 + end) for end in "ab"]
    assert all(len(name) == 64 for name in long) and long[0] != long[1]


def test_effects_are_the_worst_where_annotations_are_silent() -> None:
    from mcp.types import ToolAnnotations

    for hints, effects in (
        (None, {"read", "irreversible", "network"}), (ToolAnnotations(), {"read", "irreversible", "network"}),
        (ToolAnnotations(read_only_hint=True), {"read", "network"}),
        (ToolAnnotations(read_only_hint=True, open_world_hint=False), {"read"}),
        (ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False), {"read", "write"}),
        (ToolAnnotations(destructive_hint=True, open_world_hint=False), {"read", "irreversible"}),
    ):  # fmt: skip
        assert effects_of(hints) == effects


def test_a_result_without_content_says_so() -> None:
    from mcp.types import CallToolResult

    assert as_tool_result(CallToolResult(content=[])).content == "(no content)"
    assert as_tool_result(CallToolResult(content=[], structured_content={"a": 1})).content == '{"a": 1}'


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    """Regression: reading it waited for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(McpError, match="is no file"):
        read_servers(tmp_path / "pipe")


def test_a_configuration_without_servers_is_told_of() -> None:
    with McpServers({}) as servers:
        assert servers.tools() == [] and "names none" in servers.problems[0]


def test_a_server_that_talks_beside_the_protocol_and_a_flood_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """Regression: the SDK's traceback on stderr; a flood of 200 MB was read whole for one line."""
    talk = "import sys; print('Welcome!', flush=True); sys.stderr.write('x' * 50_000_000 + ' the end'); sys.exit(1)"
    config = McpServerConfig("loud", command=sys.executable, args=("-c", talk))
    with McpServers([config]) as servers:
        assert servers.tools() == []
        assert "'loud'" in servers.problems[0] and "the end" in servers.problems[0]
    assert capfd.readouterr().err == ""
