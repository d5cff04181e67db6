"""The official OpenAI client, answered by a model in this process: no socket, no port, no key.

Whatever is written for `openai.OpenAI`, frameworks included, runs over a Model so. It only joins client and transport;
`endpoint` says what is answered.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from laploop.engine.values import shown

from ..errors import ModelError
from ..model import Model
from .transport import BASE_URL, async_http_client, sync_http_client

if TYPE_CHECKING:
    import openai


def openai_client(model: Model) -> openai.OpenAI:
    """An `openai.OpenAI` that `model` answers, in the caller's thread. Closing the client leaves the model loaded.

    `chat.completions.create`, plain and streamed, and `models` work; anything else gets OpenAI's error of status 404.
    What OpenAI's API lacks (top_k, enable_thinking, …) goes into `extra_body`. Closing a stream ends its generation.
    There is no time limit and no retry unless one is asked for; a limit is looked at between the model's steps.

    Args:
        model: ChatModel, ScriptedModel, or any other; requests name it by its `name`.

    Raises:
        ModelError: no model, or the package openai is not installed.
    """
    package, httpx = _packages(model)
    client: openai.OpenAI = package.OpenAI(http_client=sync_http_client(model, httpx), **_settings())
    return client


def async_openai_client(model: Model) -> openai.AsyncOpenAI:
    """The same as `openai.AsyncOpenAI`, for asyncio: the model decodes in a thread, the event loop goes on.

    Cancelling the task, or a timeout, returns at once; the generation ends after the model's next step.

    Raises:
        ModelError: no model, or the package openai is not installed.
    """
    package, httpx = _packages(model)
    client: openai.AsyncOpenAI = package.AsyncOpenAI(http_client=async_http_client(model, httpx), **_settings())
    return client


def _settings() -> dict[str, Any]:
    return {"base_url": BASE_URL, "api_key": "in-process", "max_retries": 0, "timeout": None}


def _packages(model: Any) -> tuple[Any, Any]:
    """openai, and the HTTP library that this version of it uses: httpx, from version 3 on httpx2."""
    if not isinstance(model, Model):
        loading = model if isinstance(model, str) else "qwen3-1.7b"
        raise ModelError(f'model is {shown(model)}; expected a loaded one, such as ChatModel.load("{loading}")')
    try:
        package = import_module("openai")
    except ImportError as error:
        raise ModelError("the package openai is not installed: pip install 'laploop[openai]'") from error
    modules = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return package, next(module for module in modules if module.Timeout is package.Timeout)
