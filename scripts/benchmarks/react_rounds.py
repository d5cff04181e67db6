"""The text protocol on a small model: does every round parse?

    python scripts/benchmarks/react_rounds.py -m smollm2-135m [--prompts 20] [--max-tokens 160] [--temperature 0]

Each prompt, English and Chinese, is asked with the choice left to the model and with a call required. A round parses
when its reply holds calls or a final answer and nothing that could not be read, and its calls' arguments validate. What
the model says is not judged. Prints a row a kind, what went wrong on stderr, and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
from laploop.engine import EngineConfig
from laploop.models import ChatModel

TEXT = {"type": "string"}


def function(name: str, description: str, required: str, /, **properties: Any) -> dict[str, Any]:
    """A tool in OpenAI form; `required` lists names."""
    schema = {
        "type": "object", "properties": properties, "required": required.split(), "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    function("get_weather", "Weather of a city now.", "city", city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    function("calculator", "Calculate an expression exactly.", "expression", expression=TEXT),
    function("get_time", "Date and time now.", "", timezone=TEXT),
    function(
        "search_notes",
        "Search the user's notes.",
        "query",
        query={"type": "string", "minLength": 1, "maxLength": 40},
        limit={"type": "integer", "minimum": 1, "maximum": 20},
        tags={"type": "array", "items": {"enum": ["work", "home"]}, "maxItems": 2},
    ),
]
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
PROMPTS = {
    "en": (
        "How warm is it in Lisbon?",
        "Is it colder in Oslo or in Rome today?",
        "What is 23 times 17?",
        "What time is it in Tokyo?",
        "Which of my work notes mention the budget?",
        "Say hello to Anna.",
        "Tell me a joke about a tool called Action: nothing.",
        "Add 12.5 and 7, then double it.",
        'Look for "quote \\" and {brace}" in my notes.',
        "Why is the sky blue?",
    ),
    "zh": (
        "北京今天天气怎么样？",
        "上海和广州哪里更热？",
        "帮我算一下 128 除以 4。",
        "现在几点了？",
        "查一下我关于出差的笔记，最多三条。",
        "你好，你是谁？",
        "用一句话介绍李白。",
        "(3+5)*12 等于几？",
        "哈尔滨现在多少华氏度？",
        "我的笔记里有没有“会议纪要”？",
    ),
}


@dataclass(frozen=True)
class Round:
    """One reply; `fault` is empty where it parses."""

    language: str
    choice: str
    kind: str  # "calls" or "answer"
    thinks: bool
    finish_reason: str
    n_tokens: int
    fault: str
    raw: str


def fault_of(choice: dict[str, Any]) -> str:
    """What keeps a reply from being one; "" for nothing."""
    message = choice["message"]
    if choice.get("invalid_tool_calls"):
        return f"cannot be read: {choice['invalid_tool_calls'][0]['error']}"
    calls = message.get("tool_calls") or []
    if not calls and not (message["content"] or "").strip():
        return "neither a call nor an answer"
    for call in calls:
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        if name not in SCHEMAS:
            return f"calls {name}"
        if error := next(jsonschema.Draft202012Validator(SCHEMAS[name]).iter_errors(arguments), None):
            return f"does not validate: {error.json_path}: {error.message[:120]}"
    return ""


def run(model: ChatModel, n_prompts: int = 20, max_tokens: int = 160, temperature: float = 0.0) -> Iterator[Round]:
    """Ask `n_prompts` prompts, taking turns between the languages, each with both choices."""
    rows = zip(*PROMPTS.values(), strict=True)
    pairs = [(language, prompt) for row in rows for language, prompt in zip(PROMPTS, row, strict=True)]
    for seed, (language, prompt) in enumerate(pairs[:n_prompts]):
        for choice in ("auto", "required"):
            completion = model.create(
                [{"role": "user", "content": prompt}],
                tools=TOOLS,
                tool_choice=choice,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
            )
            [reply] = completion["choices"]
            calls = reply["message"].get("tool_calls")
            fault = fault_of(reply) or ("no call" if choice == "required" and not calls else "")
            yield Round(
                language,
                choice,
                "calls" if calls else "answer",
                "reasoning_content" in reply["message"],
                reply["finish_reason"],
                completion["usage"]["completion_tokens"],
                fault,
                reply["raw_output"],
            )


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--raw", action="store_true", help="print every output on stderr")
    given = parser.parse_args()
    started = time.perf_counter()
    config = EngineConfig(n_ctx=2048, n_threads=given.threads)
    with ChatModel.load(given.model, config=config, dialect="react") as model:
        rounds = list(run(model, given.prompts, given.max_tokens, given.temperature))
    seconds = time.perf_counter() - started
    print(f"{'':13}{'rounds':>8}{'parse':>7}{'calls':>7}{'answers':>9}{'thoughts':>10}{'cut':>5}{'tokens':>8}")
    for language in PROMPTS:
        for choice in ("auto", "required"):
            rows = [r for r in rounds if (r.language, r.choice) == (language, choice)]
            print(
                f"{language} {choice:10}{len(rows):8}{sum(not r.fault for r in rows):7}"
                f"{sum(r.kind == 'calls' for r in rows):7}{sum(r.kind == 'answer' for r in rows):9}"
                f"{sum(r.thinks for r in rows):10}{sum(r.finish_reason == 'length' for r in rows):5}"
                f"{sum(r.n_tokens for r in rows):8}"
            )
    for each in rounds:
        if each.fault or given.raw:
            print(f"{each.language} {each.choice}: {each.fault or 'parses'}: {each.raw!r}", file=sys.stderr)
    n_right = sum(not r.fault for r in rounds)
    result = {
        "benchmark": "react_rounds", "model": given.model, "rounds": len(rounds), "parse": n_right,
        "share": round(n_right / len(rounds), 4) if rounds else None, "temperature": given.temperature,
        "calls": sum(r.kind == "calls" for r in rounds), "cut": sum(r.finish_reason == "length" for r in rounds),
        "tokens": sum(r.n_tokens for r in rounds), "seconds": round(seconds, 1),
    }  # fmt: skip
    print(json.dumps(result))
    return int(n_right < len(rounds))


if __name__ == "__main__":
    sys.exit(main())
