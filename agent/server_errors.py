"""What an `openai` client raises, as one plain sentence of this house's errors.

It goes by names and attributes of the client's errors, so that it imports neither openai nor an HTTP library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laploop.models import ModelError, ModelUnavailableError
from laploop.models.errors import RequestError

_THEIRS = {"OpenAIError", "HTTPError", "StreamError"}  # openai's root, and httpx's two


def is_refusal(error: Exception) -> bool:
    """Whether the server understood the request, and does not want it so."""
    return getattr(error, "status_code", None) in (400, 422)


def plain_error(error: Exception, name: str, client: Any, body: Mapping[str, Any]) -> ModelError | None:
    """The error to raise in the place of `error`; None if that is a bug and no error of the client.

    Args:
        error: what the client raised.
        name: the model's name at the server.
        client: the client, for its address.
        body: what was sent, for the fields that the server may not know.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & _THEIRS:
        return None
    server, status, said = _address(client), getattr(error, "status_code", None), _message(error)
    if kinds & {"APITimeoutError", "TimeoutException"}:
        return ModelUnavailableError(
            f"{name}: {server} did not answer in time; give the client a longer timeout or ask for less"
        )
    if kinds & {"APIConnectionError", "TransportError"}:
        cause = error.__cause__ or error
        return ModelUnavailableError(f"{name}: no connection to {server} ({cause}); is the server running?")
    if status in (401, 403):
        return ModelError(f"{name}: {server} refuses the key ({said}); give the client another api_key")
    if status == 404:
        return ModelError(f"{name}: {server} does not know this model or has no chat completions ({said})")
    if status == 429:
        return ModelUnavailableError(f"{name}: {server} is too busy or the quota is used up ({said}); try again later")
    if is_refusal(error):
        hint = "; not of OpenAI's API: " + ", ".join(body["extra_body"]) if body.get("extra_body") else ""
        return RequestError(f"{name}: {server} refuses the request: {said}{hint}")
    return ModelError(f"{name}: {server} failed{f' with status {status}' if status else ''}: {said}")


def ends_early(name: str, client: Any) -> ModelError:
    """The error for a stream that ended without a finish_reason."""
    return ModelError(f"{name}: the reply of {_address(client)} broke off before its end; ask again")


def _address(client: Any) -> str:
    return str(getattr(client, "base_url", None) or "the server").rstrip("/")


def _message(error: Exception) -> str:
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, Mapping) else None
    return str(said or getattr(error, "message", None) or error)
