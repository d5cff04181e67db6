# /// script
# requires-python = ">=3.10"
# dependencies = ["laploop[openai]", "llama-cpp-python==0.3.36", "pydantic-ai-slim[openai]>=1.0"]
#
# [tool.uv.extra-build-variables]
# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }
# ///
"""An agent of Pydantic AI on a model in this process: `uv run pydantic_ai_example.py`."""

import os
import secrets
import sys

from laploop.models import ChatModel, ModelError, async_openai_client
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

READING = secrets.choice(range(100, 1000))  # no model can know it
RULES = "You are an assistant with tools. What a tool can tell, never guess: call it, then answer from its result."


def get_temperature(place: str) -> str:
    """Return the temperature of a place in degrees Fahrenheit."""
    print(f"get_temperature({place!r}) = {READING}", file=sys.stderr)
    return f"The {place} is at {READING} °F."


def main(question: str) -> None:
    """Print the answer; what the tool returned goes to stderr."""
    with ChatModel.load(os.environ.get("LAPLOOP_MODEL", "qwen3-1.7b")) as model:
        chat = OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=async_openai_client(model)))
        settings = {"temperature": 0, "max_tokens": 512}
        agent = Agent(chat, instructions=RULES, tools=[get_temperature], model_settings=settings)
        print(agent.run_sync(question).output)


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "How warm is the kiln?")
    except ModelError as problem:
        sys.exit(f"pydantic_ai_example.py: {problem}")
