"""What OpenAI's HTTP API would answer, over a Model: chat completions and the list of models.

Bytes in, bytes out. Knows OpenAI's paths, statuses, error shape and event stream; knows no HTTP library, no client, and
nothing of how the model computes. Source: OpenAI's API reference, "Chat Completions", "Models", "Error codes".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from laploop.engine.between_steps import look_up
from laploop.engine.errors import ContextError, EngineError, GrammarError

from ..completion import accumulate
from ..errors import ModelError, RequestError, TemplateError
from ..model import Model
from ..requests.request import RequestOptions

_COMPLETIONS, _MODELS = "/chat/completions", "/models"
#: How the sentences of RequestError begin to speak of what they are about.
_PARAMETER = re.compile(
    r"\b(messages\[\d+\]|tools\[\d+\]|"
    + "|".join(["messages", "stream_options", *RequestOptions.__annotations__])
    + r")(?!\w)"
)
_UNSUPPORTED = re.compile(r"unsupported request field '([^']*)'")


@dataclass(frozen=True)
class Answer:
    """A response: its status, its type, and its bytes as they come. `close` ends a generation that is under way."""

    status: int
    content_type: str
    parts: Iterable[bytes]
    close: Callable[[], None] = lambda: None


class _ApiError(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(model: Model, method: str, path: str, body: bytes) -> Answer:
    """Answer one request. A stream's first chunk is made here, so that what fails before it has its own status.

    Args:
        model: what answers.
        method: "GET", "POST", …
        path: the URL's path behind the base URL, decoded, such as "/chat/completions".
        body: the request's body.

    What is set with `between_steps` is also called at each chunk, for models that are not made of steps; what it raises
    ends the generation and comes through.
    """
    try:
        return _route(model, method, path.rstrip("/"), body)
    except _ApiError as error:
        return _json(error.body, error.status)
    except (ModelError, EngineError) as error:
        shaped = _shaped(error)
        return _json(shaped.body, shaped.status)


def _route(model: Model, method: str, path: str, body: bytes) -> Answer:
    if path == _COMPLETIONS:
        _only("POST", method, path)
        return _complete(model, _fields(body))
    if path == _MODELS:
        _only("GET", method, path)
        return _json({"object": "list", "data": [_described(model)]})
    if path.startswith(_MODELS + "/"):
        _only("GET", method, path)
        _check_name(model, path.removeprefix(_MODELS + "/"))
        return _json(_described(model))
    raise _ApiError(
        404,
        f"no such endpoint in process: {method} {path or '/'}; there are POST {_COMPLETIONS}, GET {_MODELS} and "
        f"GET {_MODELS}/{{model}}",
        code="unknown_url",
    )


def _only(allowed: str, method: str, path: str) -> None:
    if method != allowed:
        raise _ApiError(405, f"{path} takes {allowed}, not {method}", code="method_not_allowed")


def _described(model: Model) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": 0, "owned_by": "laploop"}


def _check_name(model: Model, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise _ApiError(400, f'a model must be named: model="{model.name}"', param="model")
    if name != model.name:
        raise _ApiError(
            404, f"the model {name!r} does not exist; there is {model.name!r}", param="model", code="model_not_found"
        )


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _ApiError(400, f"the body must be a JSON object, got {type(fields).__name__}")
    return fields


def _complete(model: Model, fields: dict[str, Any]) -> Answer:
    _check_name(model, fields.pop("model", None))
    messages = fields.pop("messages", None)
    if messages is None:
        raise _ApiError(400, "messages is missing: at least one message is needed", param="messages")
    streamed = fields.pop("stream", None) or False
    if not isinstance(streamed, bool):
        raise _ApiError(400, f"stream must be true or false, got {streamed!r}", param="stream")
    stream_options = fields.pop("stream_options", None)
    if not streamed:
        if stream_options is not None:
            raise _ApiError(400, "stream_options is only allowed where stream is true", param="stream_options")
        return _json(accumulate(_checked(model.stream(messages, **fields))))
    as_openai = {"include_usage": False} if stream_options is None else stream_options
    events = _events(_checked(model.stream(messages, stream_options=as_openai, **fields)))
    first = next(events)
    return Answer(200, "text/event-stream", _chained(first, events), events.close)


def _checked(chunks: Iterator[dict[str, Any]]) -> Generator[dict[str, Any], None, None]:
    try:
        for chunk in chunks:
            look_up()
            yield chunk
    finally:
        if (close := getattr(chunks, "close", None)) is not None:
            close()


def _events(chunks: Generator[dict[str, Any], None, None]) -> Generator[bytes, None, None]:
    begun = False
    try:
        for chunk in chunks:
            yield _event(chunk)
            begun = True
    except (ModelError, EngineError) as error:
        if not begun:
            raise
        yield _event(_shaped(error).body)
    finally:
        chunks.close()
    yield b"data: [DONE]\n\n"


def _chained(first: bytes, others: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _json(value: Any, status: int = 200) -> Answer:
    return Answer(status, "application/json", (json.dumps(value).encode(),))


def _shaped(error: ModelError | EngineError) -> _ApiError:
    message = str(error)
    if isinstance(error, ContextError):
        return _ApiError(400, message, param="messages", code="context_length_exceeded")
    if isinstance(error, TemplateError):
        return _ApiError(400, message, param="messages")
    if isinstance(error, RequestError):
        return _ApiError(400, message, param=_parameter(message))
    if isinstance(error, GrammarError):  # of a tool's schema, or of the response format's
        return _ApiError(400, message)
    return _ApiError(500, message)


def _parameter(message: str) -> str | None:
    """The field that a RequestError names; its sentence begins with it, or with the call that messages lack."""
    if unsupported := _UNSUPPORTED.match(message):
        return unsupported[1]
    if named := _PARAMETER.search(message):
        return named[1]
    return "messages" if message.startswith("the call ") else None
