# /// script
# requires-python = ">=3.10"
# dependencies = ["laploop[openai]", "llama-cpp-python==0.3.36", "langchain-openai>=1.0"]
#
# [tool.uv.extra-build-variables]
# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }
# ///
"""LangChain's ChatOpenAI on a model in this process: `uv run langchain_example.py`."""

import os
import secrets
import sys

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from laploop.models import ChatModel, ModelError, async_openai_client, openai_client

READING = secrets.choice(range(100, 1000))  # no model can know it
RULES = "You are an assistant with tools. What a tool can tell, never guess: call it, then answer from its result."


@tool
def get_temperature(place: str) -> str:
    """Return the temperature of a place in degrees Fahrenheit."""
    print(f"get_temperature({place!r}) = {READING}", file=sys.stderr)
    return f"The {place} is at {READING} °F."


def chat_over(model: ChatModel) -> ChatOpenAI:
    """LangChain's chat model, with our clients in the place of its own."""
    client, async_client = openai_client(model), async_openai_client(model)
    return ChatOpenAI(
        model=model.name,
        client=client.chat.completions,
        root_client=client,
        async_client=async_client.chat.completions,
        root_async_client=async_client,
        temperature=0,
        max_completion_tokens=512,
    )


def main(question: str) -> None:
    """Print the answer; what the tool returned goes to stderr."""
    with ChatModel.load(os.environ.get("LAPLOOP_MODEL", "qwen3-1.7b")) as model:
        chat = chat_over(model)
        messages: list[BaseMessage] = [SystemMessage(RULES), HumanMessage(question)]
        reply = chat.bind_tools([get_temperature], tool_choice="required").invoke(messages)
        for _ in range(5):
            messages += [reply, *(get_temperature.invoke(call) for call in reply.tool_calls)]
            if not reply.tool_calls:
                break
            reply = chat.bind_tools([get_temperature]).invoke(messages)
        print(reply.text)


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "How warm is the kiln?")
    except ModelError as problem:
        sys.exit(f"langchain_example.py: {problem}")
