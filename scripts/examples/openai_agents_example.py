# /// script
# requires-python = ">=3.10"
# dependencies = ["laploop[openai]", "llama-cpp-python==0.3.36", "openai-agents>=0.6"]
#
# [tool.uv.extra-build-variables]
# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }
# ///
"""An agent of the OpenAI Agents SDK on a model in this process: `uv run openai_agents_example.py`."""

import os
import secrets
import sys

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from laploop.models import ChatModel, ModelError, async_openai_client

READING = secrets.choice(range(100, 1000))  # no model can know it
RULES = "You are an assistant with tools. What a tool can tell, never guess: call it, then answer from its result."


@function_tool
def get_temperature(place: str) -> str:
    """Return the temperature of a place in degrees Fahrenheit."""
    print(f"get_temperature({place!r}) = {READING}", file=sys.stderr)
    return f"The {place} is at {READING} °F."


def main(question: str) -> None:
    """Print the answer; what the tool returned goes to stderr."""
    set_tracing_disabled(True)  # the SDK would send a record of each run to OpenAI
    with ChatModel.load(os.environ.get("LAPLOOP_MODEL", "qwen3-1.7b")) as model:
        chat = OpenAIChatCompletionsModel(model=model.name, openai_client=async_openai_client(model))
        # "required" holds for the first reply: the SDK resets it once a tool was called.
        settings = ModelSettings(tool_choice="required", temperature=0, max_tokens=512)
        agent = Agent("assistant", instructions=RULES, tools=[get_temperature], model=chat, model_settings=settings)
        print(Runner.run_sync(agent, question).final_output)


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "How warm is the kiln?")
    except ModelError as problem:
        sys.exit(f"openai_agents_example.py: {problem}")
