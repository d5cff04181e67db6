"""Five everyday questions over a folder of notes, a SQLite file and a PDF, without a network: is the answer right, and
does it say where it stands?

    python scripts/benchmarks/everyday_questions.py [-m qwen2.5-coder-1.5b] [--seed 0] [--transcripts FILE]

Greedy. Prints a line for each question and one JSON line at the end; --transcripts writes what was asked, called, found
and answered, as Markdown. The tests' own PDF writer makes the contract.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from laploop.agent import Agent, RunResult
from laploop.engine import EngineConfig
from laploop.models import ChatModel
from laploop.tools import Tool, builtin_tools, database_tools, document_tool
from laploop.tools.document_index import DocumentIndex
from laploop.tools.file_root import FileRoot

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from documents import make_pdf  # type: ignore[import-not-found]

OFFLINE = ("calculator", "get_time", "list_files", "read_file")


class Question(NamedTuple):
    """A question, what its answer has to hold (one of each group), and what it has to name as its source."""

    text: str
    facts: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]


QUESTIONS = [
    Question("Who repaired the boiler and what did it cost? Name the source.", (("Weber",), ("240",)), ("house.md",)),
    Question("What deposit does the lease contract ask for? Name the source.", (("1,800", "1800"),), ("lease.pdf",)),
    Question("预算会议什么时候开？在哪里？请注明出处。", (("周三", "星期三"), ("二楼",)), ("会议.md",)),
    Question("How much has Ann Berg spent in the shop in total? Name the table.", (("29.5",),), ("order", "customer")),
    Question(
        "How much is 20% of the deposit in the lease contract? Name the source.",
        (("360",),),
        ("lease.pdf", "1,800", "1800"),
    ),
]


def make_folder(root: Path) -> None:
    """The notes, the contract and the shop."""
    notes = root / "notes"
    notes.mkdir(parents=True)
    (notes / "house.md").write_text(
        "# House\n\nMeter read on 2 January: 48,120 kWh.\n\n## Repairs\n\n"
        "The boiler was repaired by Weber on 14 March; it cost 240 euros.\nThe gutter is still leaking.\n",
        "utf-8",
    )
    (notes / "garden.md").write_text(
        "# Garden\n\nThe tomatoes were planted on 3 May.\nThey need water daily.\n", "utf-8"
    )
    (notes / "会议.md").write_text(
        "# 预算会议\n\n时间：下周三下午三点。\n地点：二楼会议室。\n负责人：王芳。\n", "utf-8"
    )
    (root / "lease.pdf").write_bytes(
        make_pdf("Lease contract\nbetween Lind and Okafor", "Section 4\nThe deposit is 1,800 euros (two months).")
    )
    with sqlite3.connect(root / "shop.db") as shop:
        shop.executescript(
            """CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT);
            CREATE TABLE "order" (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), total REAL);
            INSERT INTO customer VALUES (1, 'Ann Berg'), (2, 'Bo Sand');
            INSERT INTO "order" VALUES (1, 1, 9.5), (2, 1, 20), (3, 2, 7);"""
        )
    shop.close()


def tools_of(root: Path) -> list[Tool]:
    """What an offline laptop has for such a folder."""
    index = DocumentIndex(FileRoot(root), root.parent / "index.db")
    offline = [item for item in builtin_tools(root=root) if item.name in OFFLINE]
    return [*offline, document_tool(root, index), *database_tools(root / "shop.db")]


def faults(question: Question, result: RunResult) -> list[str]:
    """What the answer lacks."""
    answer = result.answer or ""
    missing = [" or ".join(group) for group in question.facts if not any(word in answer for word in group)]
    cited = any(source in answer for source in question.sources)
    return [f"no {word}" for word in missing] + ([] if cited else ["no source"])


def transcript(question: Question, result: RunResult, found: list[str]) -> str:
    """One question as Markdown."""
    lines = [f"## {question.text}", ""]
    for message in result.messages:
        for call in message.get("tool_calls") or ():
            lines += [f"- `{call['function']['name']}({call['function']['arguments']})`"]
        if message["role"] == "tool":
            lines.append(f"    - {' '.join(str(message['content']).split())[:600]}")
    lines += ["", f"**{result.answer}**", "", f"({'right, with its source' if not found else ', '.join(found)})", ""]
    return "\n".join(lines)


def main() -> None:
    """Ask all five."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transcripts", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    pages: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "folder"
        make_folder(root)
        with ChatModel.load(options.model, config=EngineConfig(n_ctx=8192)) as model:
            for question in QUESTIONS:
                started = time.perf_counter()
                result = Agent(model, tools_of(root), temperature=0, seed=options.seed).run(question.text)
                seconds = time.perf_counter() - started
                found = faults(question, result)
                rows.append(
                    {"question": question.text, "faults": found, "rounds": result.rounds, "s": round(seconds, 1)}
                )
                pages.append(transcript(question, result, found))
                print(f"{'ok   ' if not found else 'FAULT'} {seconds:6.1f} s  {question.text}  {', '.join(found)}")
                print(pages[-1], file=sys.stderr)
    if options.transcripts:
        options.transcripts.write_text("\n".join(pages), "utf-8")
    print(
        json.dumps(
            {"model": options.model, "right": sum(not r["faults"] for r in rows), "runs": rows}, ensure_ascii=False
        )
    )


if __name__ == "__main__":
    main()
