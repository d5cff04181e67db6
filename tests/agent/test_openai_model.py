"""The same loop over a real `openai` client, which talks HTTP to a server on loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.agent import Agent, OpenAIModel, ReasoningDelta, check_history
from laploop.agent.server_calls import ServerCalls
from laploop.models import (
    Model,
    ModelError,
    ModelUnavailableError,
    ScriptedModel,
    accumulate,
    async_openai_client,
    openai_client,
)
from laploop.models.errors import RequestError
from laploop.models.requests.request import Request
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
STOP = chunk({}, "stop")
TWO_ROUNDS = [
    [
        chunk({"role": "assistant", "reasoning_content": "Two cities."}),
        chunk({"tool_calls": [call_part(0, name="get_weather", arguments="")]}),
        chunk({"tool_calls": [call_part(0, arguments='{"city": "Be')]}),
        chunk({"tool_calls": [call_part(0, arguments='rn"}')]}),
        chunk({"tool_calls": [call_part(1, name="get_weather", arguments='{"city": "Rome"}')]}),
        chunk({}, "tool_calls"),
        USAGE,
    ],
    [chunk({"role": "assistant", "content": "Both "}), chunk({"content": "31."}), STOP, USAGE],
]


class Server:
    """Speaks HTTP on loopback. A reply is the chunks of a stream, (status, error), or a text as it stands."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.hanging = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                server.answer(self)

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._http.server_port}/v1"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        reply = self.replies[len(self.requests) - 1]
        if reply == "hang":
            self.hanging.wait(30)
            reply = []
        status, kind = 200, "text/event-stream"
        if isinstance(reply, tuple):
            status, kind = reply[0], "application/json"
            text = json.dumps({"error": reply[1]})
        elif isinstance(reply, str):
            text = reply
        else:
            text = "".join(f"data: {e}\n\n" for e in [*map(json.dumps, reply), "[DONE]"])
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    def close(self) -> None:
        self.hanging.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def model(server: Server) -> Iterator[OpenAIModel]:
    """The server's model, through a client that does not try twice."""
    openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    with openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as client:
        yield OpenAIModel(client, "m")


def test_the_loop_runs_over_a_real_client(server: Server, model: OpenAIModel) -> None:
    server.replies = TWO_ROUNDS
    agent = Agent(model, [get_weather], temperature=0.2, top_k=20)
    events = list(agent.stream("Bern or Rome?"))
    result = events[-1].result  # type: ignore[union-attr]
    assert (result.answer, result.stop_reason, result.usage["total_tokens"]) == ("Both 31.", "answer", 20)
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["Bern 31", "Rome 31"]
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["Two cities."]
    check_history(result.messages)
    first, second = server.requests
    assert (first["model"], first["stream"], first["temperature"], first["top_k"]) == ("m", True, 0.2, 20)
    assert first["tools"] == second["tools"] == [get_weather.to_openai()]
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [c["function"]["arguments"] for c in second["messages"][2]["tool_calls"]] == [
        '{"city": "Bern"}',
        '{"city": "Rome"}',
    ]


def test_the_loop_is_the_same_with_a_client_in_between(calls: Callable[..., str]) -> None:
    """model → agent, and model → client → model → agent."""
    pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    turns = [
        "<think>\nTwo cities.\n</think>\n\n"
        + calls(("get_weather", {"city": "Bern"}), ("get_weather", {"city": "北京"})),
        "Both 31.",
    ]

    def run(model: Model) -> tuple[list[Any], list[dict[str, Any]], dict[str, Any]]:
        events = list(Agent(model, [get_weather], enable_thinking=True).stream("Bern or 北京?"))
        told = [type(e).__name__ + getattr(e, "text", "") for e in events if type(e).__name__ != "CallFinished"]
        result = events[-1].result  # type: ignore[union-attr]
        for message in result.messages:
            for call in [*message.get("tool_calls", ()), message]:
                call.pop("id", None), call.pop("tool_call_id", None)
        return told, result.messages, result.usage

    with openai_client(ScriptedModel(turns)) as client:
        assert run(OpenAIModel(client, "scripted")) == run(ScriptedModel(turns))


# --- servers that differ


def pieces(calls: list[tuple[str, str]], style: str) -> list[dict[str, Any]]:
    """A stream that makes these calls, each in two pieces, as a server of this style sends it."""
    parts = []
    for i, (name, arguments) in enumerate(calls):
        middle = len(arguments) // 2
        first = {
            "index": i,
            "id": f"c{i}",
            "type": "function",
            "function": {"name": name, "arguments": arguments[:middle]},
        }
        second: dict[str, Any] = {"index": i, "function": {"arguments": arguments[middle:]}}
        if style == "no id":
            first["id"] = None
        elif style == "no index":
            first["index"] = second["index"] = None
        elif style == "neither":
            first["index"] = second["index"] = first["id"] = None
        elif style == "index 0":
            first["index"] = second["index"] = 0
        elif style == "all repeated":
            second = {**first, "function": {"name": name, "arguments": arguments[middle:]}}
        parts += [first, second]
    return [*(chunk({"tool_calls": [part]}) for part in parts), chunk({}, "stop"), USAGE]


@pytest.mark.parametrize("style", ["openai", "no id", "no index", "neither", "index 0", "all repeated"])
@given(calls=st.lists(st.tuples(st.sampled_from(["f", "g"]), st.text(max_size=6)), min_size=1, max_size=4))
def test_calls_arrive_whole_from_every_kind_of_server(style: str, calls: list[tuple[str, str]]) -> None:
    mended, fold = ServerCalls(), pieces(calls, style)
    for part in fold:
        for choice in part["choices"]:
            mended.mend(choice)
    found = accumulate(fold)["choices"][0]["message"]["tool_calls"]
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in found] == calls
    ids = [c["id"] for c in found]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert style in ("no id", "neither") or ids == [f"c{i}" for i in range(len(calls))]


def test_a_server_without_ids_is_good_enough_for_the_loop(server: Server, model: OpenAIModel) -> None:
    server.replies = [pieces([("get_weather", '{"city": "Bern"}')] * 2, "neither"), TWO_ROUNDS[1]]
    result = Agent(model, [get_weather]).run("Bern?")
    check_history(result.messages)
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["Bern 31", "Bern 31"]


def test_a_server_that_wants_another_name_for_max_tokens_gets_it(server: Server, model: OpenAIModel) -> None:
    complaint = {
        "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "param": "max_tokens",
    }
    server.replies = [(400, complaint), TWO_ROUNDS[1], TWO_ROUNDS[1]]
    for _ in range(2):
        assert model.create(USER, max_tokens=7)["choices"][0]["message"]["content"] == "Both 31."
    names = [[n for n in ("max_tokens", "max_completion_tokens") if n in r] for r in server.requests]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


def test_a_server_without_stream_options_is_not_sent_them(server: Server, model: OpenAIModel) -> None:
    server.replies = [(422, {"message": "stream_options: extra fields not permitted"}), TWO_ROUNDS[1][:-1]]
    assert "usage" not in model.create(USER)
    assert ["stream_options" in r for r in server.requests] == [True, False]


def test_a_server_that_takes_no_thoughts_back_is_not_sent_them(server: Server, model: OpenAIModel) -> None:
    history = [*USER, {"role": "assistant", "content": "ho", "reasoning_content": "Hm."}, *USER]
    server.replies = [(400, {"message": "Unknown parameter: 'messages[1].reasoning_content'"}), TWO_ROUNDS[1]]
    model.create(history)
    assert [["reasoning_content" in m for m in r["messages"]] for r in server.requests] == [
        [False, True, False],
        [False] * 3,
    ]


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": "Hm."}])
def test_a_text_stands_beside_calls(message: dict[str, Any]) -> None:
    """llama-cpp-python's server refuses null there, and its templates fail where nothing stands."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    told = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    history = [*USER, {"role": "assistant", "tool_calls": [call], **message}, told]
    sent = OpenAIModel(None, "m").body(Request.of(history, {}))["messages"]
    assert sent == [*USER, {"role": "assistant", "tool_calls": [call], "content": message.get("content") or ""}, told]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_server_without_allowed_tools_is_offered_only_those(mode: str, server: Server, model: OpenAIModel) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g", "h")]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools[1:]}}
    server.replies = [(400, {"message": "tool_choice: bad type"}), TWO_ROUNDS[1]]
    model.create(USER, tools=tools, tool_choice=choice)
    assert server.requests[0]["tool_choice"] == choice
    assert (server.requests[1]["tools"], server.requests[1].get("tool_choice", "auto")) == (tools[1:], mode)


# --- what goes wrong


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        ((400, {"message": "bad temperature"}), RequestError, "refuses the request: bad temperature"),
        ((401, {"message": "no such key"}), ModelError, r"refuses the key \(no such key\)"),
        ((404, {"message": "no model m"}), ModelError, r"does not know this model .*\(no model m\)"),
        ((429, {"message": "slow down"}), ModelUnavailableError, r"too busy .*\(slow down\)"),
        ((500, {"message": "boom"}), ModelError, "failed with status 500: boom"),
        ('data: {"error": {"message": "boom"}}\n\n', ModelError, "failed: boom"),
        ([chunk({"content": "Bo"})], ModelError, "broke off before its end"),
        ([], ModelError, "broke off before its end"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, (str, tuple)) else None,
)
def test_a_servers_failure_is_a_plain_sentence(
    reply: Any, kind: type[ModelError], said: str, server: Server, model: OpenAIModel
) -> None:
    server.replies = [reply]
    with pytest.raises(ModelError, match=said) as caught:
        Agent(model, [get_weather]).run("Bern?")
    assert type(caught.value) is kind
    assert server.address in str(caught.value)


def test_a_refusal_names_the_fields_that_only_some_servers_know(server: Server, model: OpenAIModel) -> None:
    server.replies = [(400, {"message": "unknown field"})]
    with pytest.raises(RequestError, match="unknown field; not of OpenAI's API: top_k, enable_thinking"):
        model.create(USER, top_k=5, enable_thinking=False)


def test_an_answer_that_does_not_come_in_time_is_told_apart(server: Server) -> None:
    openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    server.replies = ["hang"]
    with (
        openai.OpenAI(base_url=server.address, api_key="none", max_retries=0, timeout=0.1) as client,
        pytest.raises(ModelUnavailableError, match="did not answer in time"),
    ):
        OpenAIModel(client, "m").create(USER)


def test_a_server_that_is_not_there_is_told_apart() -> None:
    openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    with socket.socket() as taken:  # bound but not listening: nobody else gets the port, nobody answers
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with (
            openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client,
            pytest.raises(ModelUnavailableError, match=r"no connection to .*; is the server running\?"),
        ):
            OpenAIModel(client, "m").create(USER)


def test_an_async_client_is_refused_with_the_way_out() -> None:
    pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    with pytest.raises(TypeError, match=r"not an openai.AsyncOpenAI; for asyncio: Agent.arun"):
        OpenAIModel(async_openai_client(ScriptedModel(["Hi."])), "scripted").create(USER)


def test_closing_the_stream_closes_the_connection() -> None:
    pytest.importorskip("openai", reason="needs the extra laploop[openai]")
    with ScriptedModel(["Hello there."]) as scripted, openai_client(scripted) as client:
        stream = OpenAIModel(client, "scripted").stream(USER)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        with pytest.raises(StopIteration):
            next(stream)


# --- what is sent


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
