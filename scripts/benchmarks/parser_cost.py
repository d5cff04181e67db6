"""What the output parser costs: microseconds a piece of four characters, and whether ten times the text is ten times
the time.

    python scripts/benchmarks/parser_cost.py [--pieces 5000] [--rounds 5]

No model is needed. Each scenario is a long output of its kind, built from a beginning, a part that is repeated, and an
end. Prints a row a scenario and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from laploop.models import OutputParser

PIECE = 4  # characters, about one token
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "note", "parameters": PARAMETERS}}]


class Scenario(NamedTuple):
    """A kind of long output: `begin`, `middle` over and over, `end`."""

    dialect: str
    begin: str
    middle: str
    end: str = ""
    options: Mapping[str, Any] = MappingProxyType({})

    def text(self, n_chars: int) -> str:
        """An output of about so many characters."""
        return self.begin + self.middle * max(1, n_chars // len(self.middle)) + self.end


NO_THINKING = {"enable_thinking": False}
CALL = '<tool_call>\n{"name": "note", "arguments": {"text": "a"}}\n</tool_call>\n'
SCENARIOS = {
    "content": Scenario("qwen3", "", "Words of an answer, one after the other. ", options=NO_THINKING),
    "content with stop texts": Scenario(
        "qwen3", "", "Words, and more. ", options={**NO_THINKING, "stop": ["STOP", "and then", "\n\n\n", "###"]}
    ),
    "marks and backticks": Scenario(
        "qwen2.5-coder", "x", " a < b, `<tool_call>`, ```x``` </tools> <t", "", NO_THINKING
    ),
    "white space": Scenario("qwen3", "", " \n\t ", "x", NO_THINKING),
    "thoughts": Scenario("qwen3", "<think>\n", "Let me see: a < b, so\n\n", "</think>\n\nYes."),
    "thoughts that were not opened": Scenario("qwen3", "", "Let me see: a < b, so\n\n"),
    "one long string": Scenario("qwen3", CALL[:-26] + '"', "line of the text\\n", '"}}\n</tool_call>', NO_THINKING),
    "many calls": Scenario("qwen3", "", CALL, "", NO_THINKING),
    "malformed calls": Scenario("qwen3", "", "<tool_call>\nnote(text=1)\n</tool_call>\n", "", NO_THINKING),
    "a bare call": Scenario("qwen2.5", '{"name": "note", "arguments": {"text": "', "some text ", '"}}'),
    "protocol: thought": Scenario("react", "Thought: ", "So it is.\nThen Act.\n", "\nFinal Answer: x"),
    "protocol: answer": Scenario("react", "Final Answer: ", "So it is.\n- Then\nA. ", ""),
    "protocol: calls": Scenario("react", "Thought: x", '\nAction: note\nAction Input: {"text": "a"}'),
    "protocol: one long input": Scenario("react", "Action: note\nAction Input: {", '"text": [1, "two"],\n', '"x": 1}'),
}


def seconds(scenario: Scenario, n_chars: int, piece: int) -> tuple[float, int]:
    """Processor time to parse one output in pieces, and their number: the clock would count other processes too."""
    text = scenario.text(n_chars)
    pieces = [text[at : at + piece] for at in range(0, len(text), piece)]
    parser = OutputParser(dialect=scenario.dialect, tools=TOOLS, **scenario.options)
    t0_s = time.process_time()
    for part in pieces:
        parser.feed(part)
    parser.finish()
    parser.result()
    return time.process_time() - t0_s, len(pieces)


def measure(scenario: Scenario, n_pieces: int, rounds: int) -> dict[str, float]:
    """Median microseconds a piece, how many times longer ten times the text takes, and the same as one giant piece."""
    n_chars = n_pieces * PIECE
    sizes = {
        "short": (n_chars // 10, PIECE),
        "long": (n_chars, PIECE),
        "giant": (n_chars, n_chars * 2),
        "giant_long": (n_chars * 10, n_chars * 20),
    }
    times: dict[str, list[float]] = {kind: [] for kind in sizes}
    for _ in range(rounds):
        for kind, (size, piece) in sizes.items():
            spent_s, n = seconds(scenario, size, piece)
            times[kind].append(spent_s / n)
    a_piece_s = statistics.median(times["long"])
    # The quickest rounds: what disturbs a measurement only ever adds to it.
    return {
        "us_a_piece": round(a_piece_s * 1e6, 2),
        "ratio_for_10x": round(10 * min(times["long"]) / min(times["short"]), 1),
        "ratio_for_10x_in_one_piece": round(min(times["giant_long"]) / min(times["giant"]), 1),
    }


def main() -> None:
    """Measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pieces", type=int, default=5000, help="pieces of four characters in the longer outputs")
    arguments.add_argument("--rounds", type=int, default=5, help="measurements, of which the median counts")
    given = arguments.parse_args()
    print(f"{'scenario':32} {'µs a piece':>10} {'10x text':>9} {'10x, one piece':>15}")
    rows = {}
    for name, scenario in SCENARIOS.items():
        row = rows[name] = measure(scenario, given.pieces, given.rounds)
        figures = f"{row['us_a_piece']:10.2f} {row['ratio_for_10x']:9.1f} {row['ratio_for_10x_in_one_piece']:15.1f}"
        print(f"{name:32} {figures}", flush=True)
    worst = {key: max(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
    print(json.dumps({"benchmark": "parser_cost", "pieces": given.pieces, "worst": worst, "scenarios": rows}))


if __name__ == "__main__":
    main()
