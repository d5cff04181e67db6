"""OpenAIModel over a server that others wrote: llama-cpp-python's own, in an environment that uv makes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from laploop.agent import Agent, OpenAIModel, check_history
from laploop.models import ModelError, resolve_model
from laploop.tools import tool

openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")
pytestmark = pytest.mark.slow

MODEL = "smollm2-135m"
USER = [{"role": "user", "content": "Say hello."}]


@tool
def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: where
    """
    return f"{city}: 31 °C"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the running server."""
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    kept = [path.as_uri() for path in Path(sys.prefix, "wheels").glob("*") if path.is_dir()]
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {"UV_FIND_LINKS": ",".join(kept), "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    wanted = f"llama-cpp-python[server]=={version('llama-cpp-python')}"
    server = ["python", "-m", "llama_cpp.server", "--model", str(resolve_model(MODEL).path), "--model_alias", MODEL]
    settings = ["--n_ctx", "1024", "--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "uv", "run", "--no-project", "--with", wanted, *server, *settings]
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        yield client


def test_a_reply_is_the_servers_own(client: Any) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 20, "seed": 1}
    plain = client.chat.completions.create(model=MODEL, messages=USER, **options).choices[0]
    reply = OpenAIModel(client, MODEL).create(USER, **options)["choices"][0]
    assert plain.message.content
    assert reply["message"] == {"role": "assistant", "content": plain.message.content}
    assert reply["finish_reason"] == plain.finish_reason


def test_fields_of_llama_cpps_kind_reach_it(client: Any) -> None:
    """With one candidate a token, every temperature gives the greedy reply."""
    model = OpenAIModel(client, MODEL)
    said = [model.create(USER, max_tokens=12, **o)["choices"][0]["message"]["content"] for o in ALIKE]  # type: ignore[misc]
    assert said[0] == said[1]


ALIKE: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.9, "top_k": 1}]


def test_the_loop_calls_a_tool_and_answers(client: Any) -> None:
    """The server forces a named function by its grammar; what this small model answers is not asked for."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    agent = Agent(
        OpenAIModel(client, MODEL), [get_weather], tool_choice=named, temperature=0, max_tokens=64, max_rounds=1
    )
    result = agent.run("What is the weather in Rome?")
    check_history(result.messages)
    call = next(c for m in result.messages for c in m.get("tool_calls") or ())
    city = json.loads(call["function"]["arguments"])["city"]
    assert next(m["content"] for m in result.messages if m["role"] == "tool") == f"{city}: 31 °C"
    assert result.answer.strip()


def test_a_choice_that_it_does_not_know_is_said_otherwise(client: Any) -> None:
    tools = [get_weather.to_openai(), {**get_weather.to_openai(), "function": {"name": "other", "parameters": {}}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools[:1]}}
    model = OpenAIModel(client, MODEL)
    reply = model.create(USER, tools=tools, tool_choice=choice, max_tokens=8, temperature=0)
    assert reply["choices"][0]["finish_reason"]


def test_a_stream_that_the_server_gives_up_is_not_taken_for_a_reply(client: Any) -> None:
    """It notices a prompt that is too long only after it has begun to answer, and then ends without a word."""
    with pytest.raises(ModelError, match="broke off before its end") as caught:
        OpenAIModel(client, MODEL).create([{"role": "user", "content": "word " * 2000}])
    assert MODEL in str(caught.value)
