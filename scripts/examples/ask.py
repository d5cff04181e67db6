# /// script
# requires-python = ">=3.10"
# dependencies = ["laploop", "llama-cpp-python==0.3.36"]
#
# [tool.uv.extra-build-variables]
# llama-cpp-python = { CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF" }
# ///
"""Ask a model on this machine, with tools of your own: `uv run ask.py "What is 23 times 17?"`."""

import os
import shutil
import sys

from laploop.agent import Agent, CallFinished, TextDelta
from laploop.models import ChatModel, ModelError
from laploop.models.errors import ModelUnavailableError
from laploop.tools import builtin_tools, tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers and return the product."""
    return a * b


@tool
def free_space(folder: str = ".") -> str:
    """Return how many gigabytes are free on the disk of a folder, for example "."."""
    return f"{shutil.disk_usage(folder).free / 1e9:.1f} GB"


def load() -> ChatModel:
    """Load the model that LAPLOOP_MODEL names, else the default, else a smaller one, with a word about it."""
    if name := os.environ.get("LAPLOOP_MODEL"):
        return ChatModel.load(name)
    try:
        return ChatModel.load("qwen3-1.7b")
    except ModelUnavailableError as error:
        print(f"{error}\nUsing qwen2.5-coder-1.5b instead.", file=sys.stderr)
        return ChatModel.load("qwen2.5-coder-1.5b")


def main(question: str) -> None:
    """Print the answer as it comes; results of tools go to stderr."""
    get_time = next(tool for tool in builtin_tools() if tool.name == "get_time")
    with load() as model:
        for event in Agent(model, tools=[multiply, free_space, get_time]).stream(question):
            if isinstance(event, CallFinished):
                print(f"{event.name}({event.arguments}) = {event.content}", file=sys.stderr)
            elif isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
    print()


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "What is 23 times 17, and how much disk space is free here?")
    except ModelError as problem:
        sys.exit(f"ask.py: {problem}")
