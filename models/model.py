"""What every chat model here offers: `create` and `stream`, one checked request, one shape of reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import Unpack

from .completion import ChatCompletion, ChatCompletionChunk, accumulate, in_openais_form
from .requests.request import Request, RequestOptions
from .requests.request_checks import check_stream_options


class Model(ABC):
    """A chat model; `ChatModel` and `ScriptedModel` are the two here, `laploop.agent.OpenAIModel` wraps a client."""

    name: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def can_think(self) -> bool:
        """Whether `enable_thinking` may change anything; true where that is not known."""
        return True

    def create(self, /, messages: Sequence[Mapping[str, Any]], **options: Unpack[RequestOptions]) -> ChatCompletion:
        """Answer `messages`; the reply is the sum of what `stream` would have given.

        Args:
            messages: OpenAI messages.
            **options: see `laploop.models.requests.request.Request`.

        Raises:
            RequestError: a field is unknown or wrong.
        """
        return accumulate(self._stream(Request.of(messages, options)))

    def stream(
        self,
        /,
        messages: Sequence[Mapping[str, Any]],
        *,
        stream_options: Mapping[str, bool] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[ChatCompletionChunk]:
        """Answer `messages` chunk by chunk.

        The request is checked at the call, not at the first chunk. Closing the iterator ends the generation. A call
        comes when it is whole; while one is being written, a choice with an empty delta names its tool in `calling`,
        for those who watch.

        Args:
            messages: OpenAI messages.
            stream_options: None: the last chunk carries finish_reason, usage and timings. {"include_usage": …} puts
                usage and timings where OpenAI has usage: True in a chunk of its own behind the others, False nowhere.
            **options: see `laploop.models.requests.request.Request`.

        Raises:
            RequestError: a field is unknown or wrong.
        """
        if stream_options is not None:
            check_stream_options(stream_options)
        chunks = self._stream(Request.of(messages, options))
        if stream_options is None:
            return chunks
        return in_openais_form(chunks, bool(stream_options.get("include_usage")))

    @abstractmethod
    def _stream(self, request: Request) -> Iterator[ChatCompletionChunk]: ...
