"""The same loop over a real `openai` client, which talks HTTP to a server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from laploop.agent import Agent, OpenAIModel, ReasoningDelta, check_history
from laploop.models.request import Request
from laploop.tools import tool

USER = [{"role": "user", "content": "hi"}]


@tool
def get_weather(city: str) -> str:
    """Weather.

    Args:
        city: where
    """
    return f"{city} 31"


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def call_part(index: int, **function: str) -> dict[str, Any]:
    part: dict[str, Any] = {"index": index, "function": function}
    return part | ({"id": f"id{index}", "type": "function"} if "name" in function else {})


USAGE = {
    **chunk({}),
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}
REPLIES = [
    [
        chunk({"role": "assistant", "reasoning_content": "Two cities."}),
        chunk({"tool_calls": [call_part(0, name="get_weather", arguments="")]}),
        chunk({"tool_calls": [call_part(0, arguments='{"city": "Be')]}),
        chunk({"tool_calls": [call_part(0, arguments='rn"}')]}),
        chunk({"tool_calls": [call_part(1, name="get_weather", arguments='{"city": "Rome"}')]}),
        chunk({}, "tool_calls"),
        USAGE,
    ],
    [chunk({"role": "assistant", "content": "Both "}), chunk({"content": "31."}), chunk({}, "stop"), USAGE],
]


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the requests it got."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            events = [json.dumps(c) for c in REPLIES[len(requests) - 1]] + ["[DONE]"]
            body = "".join(f"data: {e}\n\n" for e in events).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/v1", requests
    http.shutdown()
    http.server_close()
    thread.join()


def test_the_loop_runs_over_a_real_client(server: tuple[str, list[dict[str, Any]]]) -> None:
    openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    address, requests = server
    with openai.OpenAI(base_url=address, api_key="none") as client:
        agent = Agent(OpenAIModel(client, "m"), [get_weather], temperature=0.2, top_k=20)
        events = list(agent.stream("Bern or Rome?"))
    result = events[-1].result  # type: ignore[union-attr]
    assert (result.answer, result.stop_reason, result.usage["total_tokens"]) == ("Both 31.", "answer", 20)
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["Bern 31", "Rome 31"]
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["Two cities."]
    check_history(result.messages)
    first, second = requests
    assert (first["model"], first["stream"], first["temperature"], first["top_k"]) == ("m", True, 0.2, 20)
    assert first["tools"] == second["tools"] == [get_weather.to_openai()]
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [c["function"]["arguments"] for c in second["messages"][2]["tool_calls"]] == [
        '{"city": "Bern"}',
        '{"city": "Rome"}',
    ]


def test_only_what_differs_from_the_default_is_sent() -> None:
    body = OpenAIModel(None, "m").body(Request.of(USER, {}))
    assert body == {"model": "m", "messages": USER, "stream": True, "stream_options": {"include_usage": True}}


def test_fields_that_openai_lacks_go_into_the_extra_body() -> None:
    options = {
        "enable_thinking": False,
        "thinking_budget": 64,
        "top_k": 5,
        "seed": 1,
        "stop": ["x"],
        "max_tokens": 9,
    }
    body = OpenAIModel(None, "m").body(Request.of(USER, options))
    assert body["extra_body"] == {"enable_thinking": False, "thinking_budget": 64, "top_k": 5}
    assert (body["seed"], body["stop"], body["max_tokens"]) == (1, ["x"], 9)


def test_without_tools_the_fields_about_tools_stay_away() -> None:
    request = Request.of(USER, {"tool_choice": "none", "parallel_tool_calls": False})
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(OpenAIModel(None, "m").body(request))
