"""A question that the loop itself puts to the model, beside the conversation: its answer is JSON, not a message.

The prompt is the conversation's own plus one user message, with the same tools (none of which may be called): what the
model has read already is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from laploop.models import accumulate

from .run import Run


class AsideError(Exception):
    """The model gave no answer of the form that was asked for."""


def ask_aside(
    run: Run, messages: Sequence[dict[str, Any]], instruction: str, schema: dict[str, Any], max_tokens: int
) -> Any:
    """The JSON value that the model gives; its tokens count as the run's.

    Args:
        messages: a valid history.
        instruction: what is asked.
        schema: what the answer must look like.
        max_tokens: of the answer.

    Raises:
        AsideError: it was cut, is no JSON, or the run was stopped.
    """
    fields: dict[str, Any] = {k: v for k, v in run.settings.request.items() if k in ("seed", "top_p", "top_k", "min_p")}
    if len(run.tools):
        fields.update(tools=run.tools.to_openai(), tool_choice="none")
    if not run.counter.is_estimate:  # a model in this process; servers may not know the field
        fields["enable_thinking"] = False
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    stream = run.model.stream(
        [*messages, {"role": "user", "content": instruction}],
        **fields, response_format=form, temperature=0.0, max_tokens=max_tokens,
    )  # fmt: skip
    chunks = list(run.stop.until(stream))
    if run.stop.is_set():
        raise AsideError("the run was stopped")
    if not chunks:
        raise AsideError("the model sent nothing")
    completion = accumulate(chunks)
    run.usage.add(completion.get("usage"))
    choice = completion["choices"][0]
    run.trace.add(
        "aside_finished",
        round=run.rounds,
        instruction=instruction,
        content=choice["message"].get("content"),
        finish_reason=choice.get("finish_reason"),
        usage=completion.get("usage"),
    )
    if choice.get("finish_reason") == "length":
        raise AsideError("the token limit cut the reply")
    try:
        return json.loads(choice["message"].get("content") or "")
    except (ValueError, RecursionError):
        raise AsideError("the reply is not JSON") from None
