"""What every chat model here offers: `create` and `stream`, one checked request, one shape of reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import Unpack

from .completion import ChatCompletion, ChatCompletionChunk, accumulate
from .request import Request, RequestOptions


class Model(ABC):
    """A chat model; `ChatModel` and `ScriptedModel` are the two here, `laploop.agent.OpenAIModel` wraps a client."""

    name: str

    def create(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[RequestOptions]) -> ChatCompletion:
        """Answer `messages`; the reply is the sum of what `stream` would have given.

        Args:
            messages: OpenAI messages.
            **options: see `laploop.models.request.Request`.

        Raises:
            RequestError: a field is unknown or wrong.
        """
        return accumulate(self.stream(messages, **options))

    def stream(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[RequestOptions]
    ) -> Iterator[ChatCompletionChunk]:
        """Answer `messages` chunk by chunk; the last chunk carries finish_reason, usage, timings and raw_output.

        The request is checked at the call, not at the first chunk. Closing the iterator ends the generation.

        Raises:
            RequestError: a field is unknown or wrong.
        """
        return self._stream(Request.of(messages, options))

    @abstractmethod
    def _stream(self, request: Request) -> Iterator[ChatCompletionChunk]: ...
