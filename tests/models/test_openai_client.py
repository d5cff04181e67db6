"""The official client over a model in this process: what it gets is what the model gave, in OpenAI's shapes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from laploop.engine import EngineConfig, GrammarError
from laploop.engine.between_steps import look_up
from laploop.models import (
    ChatModel,
    Model,
    ModelError,
    ScriptedModel,
    accumulate,
    async_openai_client,
    openai_client,
)
from laploop.models.openai_api.transport import async_http_client, sync_http_client
from laploop.models.requests.request import Request
from pydantic import BaseModel

openai = pytest.importorskip("openai", reason="needs the extra laploop[openai]")

USER: list[Any] = [{"role": "user", "content": "hi"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>'
REPLIES = [
    "Hello there.",
    "北京 🙂 \ud800 \x00",
    "",
    CALL,
    f"One moment.\n{CALL}\n{CALL}",
    "<think>\nTwo cities.\n</think>\n\nBern and Rome.",
    f"<think>\nHm.\n</think>\n\n{CALL}",
    '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "get_weather", "arguments": {"ci',
]
PER_REPLY = {"id", "created"}


def piece(text: str = "a", **fields: Any) -> dict[str, Any]:
    """A chunk of a stream, as a model gives it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": fields.pop("finish_reason", None)}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**head, **fields}


def timeless(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A reply as plain data, without what differs from one reply to the next."""
    data = json.loads(json.dumps(completion))
    for call in data["choices"][0]["message"].get("tool_calls") or ():
        call["id"] = "id"
    return {k: v for k, v in data.items() if k not in PER_REPLY}


class Endless(Model):
    """Says "a" for ever, a piece at a time; tells how far it came and whether it was ended."""

    name = "endless"

    def __init__(self, before: Callable[[int], None] = lambda n: None) -> None:
        self.n = 0
        self.ended = threading.Event()
        self._before = before

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        try:
            while True:
                self._before(self.n)
                self.n += 1
                yield piece()
        finally:
            self.ended.set()


class Failing(Model):
    """Fails with the given error, after `n` pieces."""

    name = "failing"

    def __init__(self, error: Exception, n: int) -> None:
        self._error, self._n = error, n

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        for _ in range(self._n):
            yield piece()
        raise self._error


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", REPLIES)
def test_a_plain_reply_is_the_models_own(raw: str) -> None:
    options: dict[str, Any] = {"tools": [WEATHER], "extra_body": {"enable_thinking": True}}
    with openai_client(ScriptedModel([raw])) as client:
        reply = client.chat.completions.create(model="scripted", messages=USER, **options)
    own = ScriptedModel([raw]).create(USER, tools=[WEATHER], enable_thinking=True)
    assert timeless(reply.model_dump(exclude_unset=True)) == timeless(own)


@pytest.mark.parametrize("raw", REPLIES)
def test_a_streamed_reply_adds_up_to_the_plain_one(raw: str) -> None:
    options: dict[str, Any] = {"tools": [WEATHER], "extra_body": {"enable_thinking": True}}
    with openai_client(ScriptedModel([raw, raw])) as client:
        plain = client.chat.completions.create(model="scripted", messages=USER, **options)
        with client.chat.completions.create(
            model="scripted", messages=USER, stream=True, stream_options={"include_usage": True}, **options
        ) as stream:
            chunks = [chunk.model_dump(exclude_unset=True) for chunk in stream]
    assert timeless(accumulate(chunks)) == timeless(plain.model_dump(exclude_unset=True))


@pytest.mark.parametrize("raw", REPLIES)
def test_the_async_client_gets_the_same(raw: str) -> None:
    options: dict[str, Any] = {"model": "scripted", "messages": USER, "tools": [WEATHER]}

    async def both() -> tuple[Any, Any]:
        async with async_openai_client(ScriptedModel([raw, raw])) as client:
            plain = await client.chat.completions.create(**options)
            stream = await client.chat.completions.create(
                stream=True, stream_options={"include_usage": True}, **options
            )
            return plain, accumulate([chunk.model_dump(exclude_unset=True) async for chunk in stream])

    plain, streamed = asyncio.run(both())
    own = timeless(ScriptedModel([raw]).create(USER, tools=[WEATHER]))
    assert timeless(plain.model_dump(exclude_unset=True)) == timeless(streamed) == own


def test_fields_that_openai_lacks_stay_in_the_reply(tiny_chat: ChatModel) -> None:
    with openai_client(ScriptedModel([REPLIES[6], REPLIES[8]])) as client:
        thought = client.chat.completions.create(
            model="scripted", messages=USER, tools=[WEATHER], extra_body={"enable_thinking": True}
        )
        broken = client.chat.completions.create(model="scripted", messages=USER, tools=[WEATHER])
    assert thought.choices[0].message.reasoning_content == "Hm."
    assert broken.choices[0].invalid_tool_calls[0]["raw"] == REPLIES[8]
    with openai_client(tiny_chat) as client:
        timed = client.chat.completions.create(
            model=tiny_chat.name, messages=USER, max_tokens=4, temperature=0, extra_body={"top_k": 3}
        )
    assert timed.timings["predicted_n"] == timed.usage.completion_tokens == 4


def test_usage_comes_alone_at_the_end_and_only_where_it_is_asked_for() -> None:
    with openai_client(ScriptedModel(["Hello there."] * 2)) as client:
        silent = list(client.chat.completions.create(model="scripted", messages=USER, stream=True))
        asked = list(
            client.chat.completions.create(
                model="scripted", messages=USER, stream=True, stream_options={"include_usage": True}
            )
        )
    assert [c.usage for c in silent] == [None] * len(silent)
    assert all(len(c.choices) == 1 for c in silent)
    assert [c.usage for c in asked[:-1]] == [None] * (len(asked) - 1)
    assert (asked[-1].choices, asked[-1].usage.total_tokens) == ([], 14)


def test_the_models_are_listed() -> None:
    with openai_client(ScriptedModel([], name="org/small:1.7b")) as client:
        assert [m.id for m in client.models.list()] == ["org/small:1.7b"]
        assert client.models.retrieve("org/small:1.7b").owned_by == "laploop"


def test_the_clients_own_helpers_work(tiny_chat: ChatModel) -> None:
    """`parse` fills a pydantic class, `stream` accumulates: both are built on plain requests."""

    class Answer(BaseModel):
        yes: bool

    with openai_client(tiny_chat) as client:
        parsed = client.chat.completions.parse(model=tiny_chat.name, messages=USER, response_format=Answer)
    assert isinstance(parsed.choices[0].message.parsed, Answer)
    with (
        openai_client(ScriptedModel([CALL])) as client,
        client.chat.completions.stream(model="scripted", messages=USER, tools=[WEATHER]) as stream,
    ):
        stream.until_done()
        message = stream.get_final_completion().choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Bern"}


def test_concurrent_async_requests_each_get_what_they_would_get_alone(tiny_path: Path) -> None:
    config = EngineConfig(n_ctx=2048, n_threads=1, n_seq_max=3, **EXACT)
    prompts: list[list[Any]] = [[{"role": "user", "content": text}] for text in ("one", "two", "three")]
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 12}

    async def together(model: ChatModel) -> list[Any]:
        async with async_openai_client(model) as client:
            asked = [client.chat.completions.create(model=model.name, messages=p, **options) for p in prompts]
            return [r.choices[0].message.content for r in await asyncio.gather(*asked)]

    with ChatModel.load(tiny_path, config=config) as model:
        alone = [model.create(p, **options)["choices"][0]["message"]["content"] for p in prompts]
        assert asyncio.run(together(model)) == alone


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_it_works_over_httpx_and_its_successor(library: str) -> None:
    httpx = pytest.importorskip(library)
    if library == "httpx2" and int(openai.__version__.partition(".")[0]) < 3:
        pytest.skip("openai before version 3 knows only httpx")
    settings: dict[str, Any] = {"base_url": "http://x.invalid/v1", "api_key": "k"}
    create: dict[str, Any] = {"model": "scripted", "messages": USER}
    http = sync_http_client(ScriptedModel(["Hello.", "Hello."]), httpx)
    with openai.OpenAI(http_client=http, **settings) as client:
        assert client.chat.completions.create(**create).choices[0].message.content == "Hello."
        stream = client.chat.completions.create(stream=True, **create)
        assert "".join(c.choices[0].delta.content or "" for c in stream) == "Hello."

    async def talk() -> str:
        http = async_http_client(ScriptedModel(["Hello."]), httpx)
        async with openai.AsyncOpenAI(http_client=http, **settings) as client:
            stream = await client.chat.completions.create(stream=True, **create)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

    assert asyncio.run(talk()) == "Hello."


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    for make in (openai_client, async_openai_client):
        with pytest.raises(ModelError, match=r"pip install 'laploop\[openai\]'"):
            make(ScriptedModel([]))


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0]"),
        (
            {"messages": [*USER, {"role": "tool", "tool_call_id": "x", "content": "late"}]},
            "messages[1]",
        ),
        (
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
                ]
            },
            "messages",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"stop": [""]}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"extra_body": {"enable_thinking": "yes"}}, "enable_thinking"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
        ({"extra_body": {"stream": "yes"}}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_all": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"model": ""}, "model"),
    ],
)
def test_a_wrong_field_is_a_bad_request_that_names_it(fields: dict[str, Any], param: str) -> None:
    with (
        openai_client(ScriptedModel([])) as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.chat.completions.create(**{"model": "scripted", "messages": USER, **fields})
    assert (caught.value.type, caught.value.param, caught.value.code) == ("invalid_request_error", param, None)


def test_messages_that_are_missing_are_named() -> None:
    with openai_client(ScriptedModel([])) as client, pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body={"model": "scripted"}, cast_to=object)
    assert caught.value.param == "messages"


@pytest.mark.parametrize("body", ["{", "[]", "[" * 100_000])
def test_a_body_that_is_no_json_object_is_a_bad_request(body: str) -> None:
    with openai_client(ScriptedModel([])) as client, pytest.raises(openai.BadRequestError, match="JSON"):
        client.post("/chat/completions", content=body.encode(), cast_to=object)


def test_an_unknown_model_is_not_found_and_the_known_one_is_named() -> None:
    with openai_client(ScriptedModel([])) as client:
        for ask in (
            lambda: client.chat.completions.create(model="gpt-5", messages=USER),
            lambda: client.models.retrieve("gpt-5"),
        ):
            with pytest.raises(openai.NotFoundError, match="there is 'scripted'") as caught:
                ask()
            assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_other_endpoints_are_not_found() -> None:
    with openai_client(ScriptedModel([])) as client:
        for ask in (
            lambda: client.embeddings.create(model="scripted", input="x"),
            lambda: client.responses.create(model="scripted", input="x"),
            lambda: client.completions.create(model="scripted", prompt="x"),
            lambda: client.files.list(),
        ):
            with pytest.raises(openai.NotFoundError, match="there are POST /chat/completions") as caught:
                ask()
            assert (caught.value.code, caught.value.type) == ("unknown_url", "invalid_request_error")


def test_a_wrong_method_is_named() -> None:
    with openai_client(ScriptedModel([])) as client:
        for ask in (
            lambda: client.get("/chat/completions", cast_to=object),
            lambda: client.post("/models", cast_to=object),
            lambda: client.models.delete("scripted"),
        ):
            with pytest.raises(openai.APIStatusError, match=r"takes (GET|POST), not") as caught:
                ask()
            assert (caught.value.status_code, caught.value.code) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_has_openais_code(tiny_chat: ChatModel, stream: bool) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 4000}]
    with openai_client(tiny_chat) as client, pytest.raises(openai.BadRequestError, match="context holds") as caught:
        client.chat.completions.create(model=tiny_chat.name, messages=long, stream=stream)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status"), [(ModelError("it broke"), 500), (GrammarError("it broke"), 400)], ids=["model", "grammar"]
)
def test_a_failure_before_the_first_piece_is_a_status(error: Exception, status: int, stream: bool) -> None:
    with openai_client(Failing(error, 0)) as client, pytest.raises(openai.APIStatusError, match="it broke") as caught:
        client.chat.completions.create(model="failing", messages=USER, stream=stream)
    assert caught.value.status_code == status


def test_a_failure_within_a_stream_is_an_event_that_the_client_raises() -> None:
    with openai_client(Failing(ModelError("it broke"), 2)) as client:
        stream = client.chat.completions.create(model="failing", messages=USER, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(2)] == ["a", "a"]
        with pytest.raises(openai.APIError, match="it broke") as caught:
            next(stream)
    assert caught.value.type == "server_error"


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    """What is no error of a model is a bug: nothing turns it into a polite status, and nothing tries again."""
    model = Failing(ZeroDivisionError("a bug"), 0)
    with openai_client(model) as client, pytest.raises((ZeroDivisionError, openai.APIConnectionError)) as caught:
        client.chat.completions.create(model="failing", messages=USER)  # which one is up to the client's version
    assert isinstance(caught.value.__cause__ or caught.value, ZeroDivisionError)


# --- ending early --------------------------------------------------------------------------------------------------


def test_closing_a_stream_ends_the_generation() -> None:
    model = Endless()
    with openai_client(model) as client:
        with client.chat.completions.create(model="endless", messages=USER, stream=True) as stream:
            assert next(stream).choices[0].delta.content == "a"
        assert model.ended.is_set()
        assert model.n <= 2


def test_closing_a_stream_frees_its_place(tiny_path: Path) -> None:
    """With one sequence, a second request could not begin while the first holds it."""
    config = EngineConfig(n_ctx=512, n_threads=1, n_seq_max=1)
    with ChatModel.load(tiny_path, config=config) as model, openai_client(model) as client:
        for _ in range(3):
            options: dict[str, Any] = {"model": model.name, "messages": USER, "temperature": 0}
            with client.chat.completions.create(stream=True, **options) as stream:
                next(stream)
            reply = client.chat.completions.create(max_tokens=3, **options)
            assert reply.usage.completion_tokens == 3


def test_a_time_limit_ends_the_generation_and_is_not_tried_again() -> None:
    model = Endless(before=lambda n: time.sleep(0.01))
    with openai_client(model) as client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="endless", messages=USER, timeout=0.05)
    assert model.ended.is_set()


def test_a_time_limit_on_a_stream_is_for_each_piece_not_for_the_readers_pauses() -> None:
    model = Endless(before=lambda n: time.sleep(0.3) if n == 2 else None)
    with openai_client(model) as client:
        stream = client.chat.completions.create(model="endless", messages=USER, stream=True, timeout=0.1)
        next(stream)
        time.sleep(0.2)
        next(stream)
        with pytest.raises(Exception, match=r"timed out|timeout"):
            next(stream)
    assert model.ended.is_set()


class Silent(Model):
    """Works for long and gives nothing, as where a prompt or a call is long; the engine looks up between its steps."""

    name = "silent"

    def __init__(self) -> None:
        self.n_steps = 0
        self.ended = threading.Event()

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        try:
            while self.n_steps < 20_000:
                self.n_steps += 1
                time.sleep(0.001)
                look_up()
            yield piece()
        finally:
            self.ended.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_time_limit_holds_where_nothing_comes_too(stream: bool) -> None:
    model = Silent()
    with openai_client(model) as client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="silent", messages=USER, stream=stream, timeout=0.05)
    assert model.ended.is_set()
    assert model.n_steps < 20_000


@pytest.mark.parametrize("stream", [False, True])
def test_cancelling_ends_a_generation_that_gives_nothing_too(stream: bool) -> None:
    model = Silent()

    async def ask() -> None:
        async with async_openai_client(model) as client:
            task = asyncio.create_task(client.chat.completions.create(model="silent", messages=USER, stream=stream))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(model.ended.wait, 30)

    asyncio.run(ask())
    assert 0 < model.n_steps < 20_000


def test_the_event_loop_goes_on_while_the_model_decodes() -> None:
    """The model waits for something that only the event loop can give it."""
    given = threading.Event()
    seen = []

    async def ask() -> None:
        model = Endless(before=lambda n: seen.append(given.wait(30)))
        async with async_openai_client(model) as client:
            asked = asyncio.create_task(client.chat.completions.create(model="endless", messages=USER, stream=True))
            await asyncio.sleep(0.05)
            given.set()
            async with await asked as stream:
                async for _ in stream:
                    break
            await asyncio.to_thread(model.ended.wait, 30)
            assert model.ended.is_set()

    asyncio.run(ask())
    assert all(seen)


@pytest.mark.parametrize("stream", [False, True])
def test_cancelling_a_task_returns_at_once_and_ends_the_generation(stream: bool) -> None:
    going_on = threading.Event()
    model = Endless(before=lambda n: going_on.wait(30) if n else None)

    async def ask() -> None:
        async with async_openai_client(model) as client:

            async def read() -> None:
                reply = await client.chat.completions.create(model="endless", messages=USER, stream=stream)
                if stream:
                    async for _ in reply:
                        pass

            task = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not model.ended.is_set(), "it waited for the model"
            going_on.set()
            await asyncio.to_thread(model.ended.wait, 30)

    asyncio.run(ask())
    assert model.ended.is_set()
    assert model.n <= 2


def test_an_async_time_limit_needs_no_piece_of_the_model() -> None:
    going_on = threading.Event()
    model = Endless(before=lambda n: going_on.wait(30))

    async def ask() -> None:
        async with async_openai_client(model) as client:
            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(model="endless", messages=USER, timeout=0.05)
            going_on.set()
            await asyncio.to_thread(model.ended.wait, 30)

    asyncio.run(ask())
    assert model.n == 1


def test_a_forgotten_async_stream_ends_its_generation() -> None:
    model = Endless(before=lambda n: time.sleep(0.001))

    async def ask() -> None:
        client = async_openai_client(model)
        stream = await client.chat.completions.create(model="endless", messages=USER, stream=True)
        async for _ in stream:
            break
        del stream, _
        while not model.ended.is_set():
            gc.collect()
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert model.ended.is_set()


def test_an_async_reader_that_does_not_read_holds_its_generation_back() -> None:
    model = Endless()

    async def ask() -> None:
        client = async_openai_client(model)
        stream = await client.chat.completions.create(model="endless", messages=USER, stream=True)
        await asyncio.sleep(0.1)
        assert model.n < 20
        n_read = 0
        async for _ in stream:
            n_read += 1
            if n_read == 100:
                break
        await stream.close()
        await asyncio.to_thread(model.ended.wait, 30)
        assert 100 <= model.n < 120

    asyncio.run(ask())
    assert model.ended.is_set()


def test_an_event_loop_that_closed_ends_what_was_still_under_way() -> None:
    model = Endless(before=lambda n: time.sleep(0.001))
    kept = []

    async def ask() -> None:
        client = async_openai_client(model)
        kept.append(await client.chat.completions.create(model="endless", messages=USER, stream=True))

    asyncio.run(ask())
    assert model.ended.wait(30)


INTERRUPTED = """
import asyncio, sys
from laploop.engine import EngineConfig
from laploop.models import ChatModel, async_openai_client, openai_client

FIELDS = {"messages": [{"role": "user", "content": "word " * 100}]}

async def ask(model):
    async with async_openai_client(model) as client:
        print("asking", flush=True)
        while True:
            async for _ in await client.chat.completions.create(model=model.name, stream=True, **FIELDS):
                pass

with ChatModel.load(sys.argv[1], config=EngineConfig(n_ctx=2048, n_threads=1)) as model:
    try:
        if sys.argv[2] == "async":
            asyncio.run(ask(model))
        else:
            with openai_client(model) as client:
                print("asking", flush=True)
                while True:
                    client.chat.completions.create(model=model.name, **FIELDS)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ctrl_c_leaves_the_client_and_the_program(tiny_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tiny_path), kind]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout
    assert child.stdout.readline() == "asking\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (out, err, child.returncode) == ("interrupted\n", "", 0)


def test_the_package_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, laploop.models as m; m.openai_client; print([n for n in ('openai', 'httpx') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@pytest.mark.parametrize(
    "chunks",
    [[piece(finish_reason="stop", usage=USAGE)], [piece(finish_reason="stop"), piece(choices=[], usage=USAGE)]],
    ids=["in the last piece", "apart"],
)
def test_usage_of_any_model_comes_as_openais_does(chunks: list[dict[str, Any]]) -> None:
    class Given(Model):
        name = "given"

        def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
            yield from chunks

    with openai_client(Given()) as client:
        for asked in (False, True):
            options: dict[str, Any] = {"stream_options": {"include_usage": True}} if asked else {}
            got = list(client.chat.completions.create(model="given", messages=USER, stream=True, **options))
            assert [(len(c.choices), bool(c.usage)) for c in got] == [(1, False), (0, True)][: 1 + asked]
        assert client.chat.completions.create(model="given", messages=USER).usage.total_tokens == 2
