"""What a reply took is free when it is over, not when the garbage collector comes by."""

from __future__ import annotations

import gc

from laploop.engine.matcher import Matcher
from laploop.engine.sequence import Sequence
from laploop.models import ChatModel

TOOLS = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}]


def test_a_generation_and_its_grammar_are_no_cycle(tiny_chat: ChatModel) -> None:
    """Regression: a generation and its watch knew each other, and with them stayed their grammar, 17 kB a reply, until
    the next full collection: 12 MB in a chat of a thousand turns."""
    messages = [{"role": "user", "content": "hello"}]
    tiny_chat.create(messages, tools=TOOLS, max_tokens=8)
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            tiny_chat.create(messages, tools=TOOLS, max_tokens=8)
            stream = tiny_chat.stream(messages, tools=TOOLS, max_tokens=8)
            next(stream)
            stream.close()
        alive = [type(o).__name__ for o in gc.get_objects() if isinstance(o, (Sequence, Matcher))]
    finally:
        gc.enable()
    assert alive.count("Sequence") <= 1 >= alive.count("Matcher")  # the engine drops the last one with the next step
