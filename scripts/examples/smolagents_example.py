# /// script
# requires-python = ">=3.10"
# dependencies = ["laploop[openai]", "llama-cpp-python==0.3.36", "smolagents[openai]>=1.20"]
#
# [tool.uv.extra-build-variables]
# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }
# ///
"""An agent of smolagents on a model in this process: `uv run smolagents_example.py`."""

import os
import secrets
import sys

from laploop.models import ChatModel, ModelError, openai_client
from smolagents import OpenAIModel, ToolCallingAgent, tool

READING = secrets.choice(range(100, 1000))  # no model can know it


@tool
def get_temperature(place: str) -> str:
    """Return the temperature of a place in degrees Fahrenheit.

    Args:
        place: which place, for example "oven"
    """
    print(f"get_temperature({place!r}) = {READING}", file=sys.stderr)
    return f"The {place} is at {READING} °F."


def main(question: str) -> None:
    """Print the answer; what the tool returned goes to stderr."""
    with ChatModel.load(os.environ.get("LAPLOOP_MODEL", "qwen3-1.7b")) as model:
        chat = OpenAIModel(model.name, client=openai_client(model), temperature=0, max_tokens=512)
        # smolagents brings its own rules, and asks for a call in each reply: the answer is a call too.
        agent = ToolCallingAgent([get_temperature], chat, max_steps=5, verbosity_level=0)
        print(agent.run(question))


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "How warm is the kiln?")
    except ModelError as problem:
        sys.exit(f"smolagents_example.py: {problem}")
