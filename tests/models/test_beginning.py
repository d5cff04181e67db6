"""What prompts begin with: the system prompt and the tools, and never a word of the user's."""

from __future__ import annotations

from typing import Any

import pytest
from laploop.engine.prefix_store import PrefixStore
from laploop.models import ChatModel
from laploop.models.requests.request import Request

SYSTEM = {"role": "system", "content": "You answer in one sentence, and call a tool where one helps. " * 3}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def beginning(model: ChatModel, messages: list[dict[str, Any]], **options: Any) -> str:
    request = Request.of(messages, options)
    tokens = model._transcripts.tokens_of(model.render(request))
    return model.engine.detokenize(tokens[: model._beginnings.n_tokens(request, tokens)])


@pytest.mark.parametrize("said", ["a", "b", "What is the weather?", "\n\nfirst", " ", "user", "你好", "<|im_end|>"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["plain", "tools"])
def test_it_ends_where_the_user_begins(tiny_chat: ChatModel, said: str, tools: list[dict[str, Any]]) -> None:
    text = beginning(tiny_chat, [SYSTEM, {"role": "user", "content": said}], tools=tools)
    whole = str(tiny_chat.render(Request.of([SYSTEM, {"role": "user", "content": said}], {"tools": tools})))
    assert whole.startswith(text)
    assert text.rstrip("\n").endswith("<|im_start|>user")
    assert SYSTEM["content"].strip() in text
    assert ("get_weather" in text) == bool(tools)


def test_a_second_system_message_may_be_about_the_user(tiny_chat: ChatModel) -> None:
    summary = {"role": "system", "content": "The user's name is Zoë."}
    text = beginning(tiny_chat, [SYSTEM, summary, {"role": "user", "content": "Hello"}])
    assert "Zoë" not in text and SYSTEM["content"].strip() in text


def test_the_rounds_of_a_conversation_share_it(tiny_chat: ChatModel) -> None:
    messages = [SYSTEM, {"role": "user", "content": "One"}]
    first = beginning(tiny_chat, messages, tools=TOOLS)
    messages += [{"role": "assistant", "content": "1"}, {"role": "user", "content": "Two"}]
    assert beginning(tiny_chat, messages, tools=TOOLS) == first


def test_a_chat_saves_it_and_a_second_one_starts_from_it(tiny_chat: ChatModel, tmp_path: Any, tiny_path: Any) -> None:
    from laploop.engine import EngineConfig

    config = EngineConfig(n_ctx=2048, n_threads=1, prefix_cache_dir=tmp_path)
    usages = []
    for said in ("One", "Another"):
        with ChatModel.load(tiny_path, config=config) as model:
            reply = model.create([SYSTEM, {"role": "user", "content": said}], tools=TOOLS, max_tokens=8, seed=1)
            usages.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
    (entry,) = PrefixStore(tmp_path).entries()
    assert usages[0] == 0
    assert usages[1] == entry.n_tokens
