"""What constraints cost: the mask of each token, the grammar of a request, the tokenizer's tables.

    python scripts/benchmarks/mask_cost.py [-m qwen2.5-coder-0.5b] [--repeats 5] [--no-gbnf]

Nothing is decoded. Valid calls are followed token by token with random logits; at each token the mask is computed and
written into the logits, and in the same run, in turn, llama.cpp's GBNF sampler does the same for the same schema on a
full array of candidates. A token's time is the median over the repeats, each with a new matcher; mean, p50, p99 and max
are over tokens. "swept" is once more with a buffer larger than the caches read before each token, as a decode reads the
weights.
Prints tables and one JSON line; exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import llama_cpp as C
import numpy as np
from laploop.engine.bitmask import apply_bitmask
from laploop.engine.gguf import read_gguf
from laploop.engine.grammar import Grammar
from laploop.engine.matcher import Matcher
from laploop.engine.native import NativeModel
from laploop.engine.vocabulary import Vocabulary
from laploop.models import resolve_model, tool_grammar
from laploop.models.schemas.schema import arguments_schema, enforced
from laploop.tools import builtin_tools
from llama_cpp.llama_grammar import json_schema_to_gbnf
from numpy.typing import NDArray

# Milliseconds. Those of masks hold for all tokens of all cases together; that of a grammar for tools seen before (an
# Agent checks them when it is made); the set-up's for what it adds to the model's load.
BARS = {"mask_mean": 0.1, "mask_p99": 1.0, "applied_mean": 0.4, "grammar_warm": 5.0, "setup": 200.0}
# No case has a maxLength above 400: from 1,500 on llama.cpp's grammar is a null pointer, at 20,000 it ends the process.
CACHE_BYTES = 64 * 2**20

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object with all of its properties required and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True)
class Case:
    """A tool's parameters and the arguments of one call."""

    name: str
    parameters: dict[str, Any]
    arguments: dict[str, Any]

    @property
    def text(self) -> str:
        """The arguments as they are generated."""
        return json.dumps(self.arguments, ensure_ascii=False)


PROSE = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. "
HARD = (
    Case("long string", obj(text={"type": "string", "minLength": 1}), {"text": PROSE * 3}),
    Case("maxLength 400", obj(text={"type": "string", "maxLength": 400}), {"text": PROSE * 3}),
    Case("maxLength 60", obj(text={"type": "string", "minLength": 3, "maxLength": 60}), {"text": PROSE[:56]}),
    Case(
        "unicode",
        obj(城市=STRING, note=STRING, kind={"enum": ["天气", "新闻", "météo"]}),
        {"城市": "北京市朝阳区", "note": "今天天气怎么样？🙂 Grüße, été — ñandú", "kind": "météo"},
    ),
    Case(
        "patterns",
        obj(
            code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4,8}(-[a-z]+)*$"},
            slug={"type": "string", "pattern": "^[a-z0-9_-]+$"},
            path={"type": "string", "pattern": "^(/[a-z0-9._]+)+$"},
        ),
        {"code": "AB-123456-abc-def", "slug": "hello-world_foo-2026", "path": "/usr/share/doc/readme.txt"},
    ),
    Case(
        "formats",
        obj(**{f: {"type": "string", "format": f} for f in ("date-time", "uuid", "uri", "email", "ipv4")}),
        {
            "date-time": "2026-11-30T23:59:12Z",
            "uuid": "123e4567-e89b-12d3-a456-426614174000",
            "uri": "https://example.com/a/b?c=d&e=f#g",
            "email": "some.one@example.com",
            "ipv4": "192.168.0.17",
        },
    ),
    Case(
        "enums",
        obj(
            unit={"enum": ["celsius", "fahrenheit", "kelvin"]},
            country={"enum": [f"Country number {i}" for i in range(200)]},
            n={"type": "integer", "minimum": -5, "maximum": 1999},
            x={"type": "number"},
            on={"type": "boolean"},
        ),
        {"unit": "kelvin", "country": "Country number 137", "n": 1042, "x": 3.14159, "on": True},
    ),
    Case(
        "deep",
        obj(
            query=obj(
                where={
                    "type": "array",
                    "items": obj(
                        field=STRING,
                        op={"enum": ["<", ">", "="]},
                        value={"anyOf": [INTEGER, STRING, {"type": "array", "items": STRING}]},
                    ),
                },
                limit=INTEGER,
            )
        ),
        {
            "query": {
                "where": [
                    {"field": "age", "op": ">", "value": 42},
                    {"field": "name", "op": "=", "value": ["Ann", "Bob"]},
                    {"field": "note", "op": "<", "value": "hello there"},
                ],
                "limit": 10,
            }
        },
    ),
)
BUILTIN_ARGUMENTS: dict[str, dict[str, Any]] = {
    "get_weather": {"city": "北京"},
    "get_news": {"topic": "AI and laptops"},
    "read_url": {"url": "https://news.example.org/technology/articles/open-model/detail_forward_482913.html"},
    "get_time": {"timezone": "Asia/Shanghai"},
    "calculator": {"expression": "(237 + 58) * 4 / sqrt(2)"},
    "list_files": {"path": "docs", "pattern": "*.md"},
    "search_files": {"query": "def main", "path": "."},
    "read_file": {"path": "README.md", "start_line": 1, "max_lines": 200},
}
THOUGHT = "The user asks about two cities. I'll call the tool once for each, then compare.\n\n用户想知道哪里更热。"
ANSWER = "北京现在 31 °C，上海 28 °C，因此北京更热。\n\nBeijing is hotter: 31 °C against 28 °C."


def openai_tools(cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    """Cases as tools of a request."""
    return [
        {"type": "function", "function": {"name": c.name.replace(" ", "_"), "parameters": c.parameters}} for c in cases
    ]


def builtin_cases() -> tuple[Case, ...]:
    """A call of each built-in tool."""
    functions = [t.to_openai()["function"] for t in builtin_tools(root=Path.cwd())]
    return tuple(Case(f["name"], f["parameters"], BUILTIN_ARGUMENTS[f["name"]]) for f in functions)


class Gbnf:
    """llama.cpp's grammar sampler over all tokens.

    Args:
        vocabulary: the model's tokens.
        native: the model.
        gbnf: the grammar.
    """

    def __init__(self, vocabulary: Vocabulary, native: NativeModel, gbnf: str) -> None:
        self._sampler = C.llama_sampler_init_grammar(native.vocab, gbnf.encode(), b"root")
        if not self._sampler:
            raise ValueError("a null sampler")
        kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._candidates = np.zeros(vocabulary.n_tokens, dtype=kind)
        self._candidates["id"] = np.arange(vocabulary.n_tokens)

    def apply(self, logits: NDArray[np.float32]) -> float:
        """Mask a copy of the logits; seconds."""
        self._candidates["logit"] = logits
        data = ctypes.cast(self._candidates.ctypes.data, C.llama_token_data_p)
        array = C.llama_token_data_array(data, len(self._candidates), -1, False)
        started = time.perf_counter()
        C.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return time.perf_counter() - started

    def accept(self, token: int) -> bool:
        """Move on; False if its own mask has just forbidden the token."""
        if np.isneginf(self._candidates["logit"][token]):
            return False
        C.llama_sampler_accept(self._sampler, token)
        return True

    def close(self) -> None:
        """Free it."""
        C.llama_sampler_free(self._sampler)


@dataclass(frozen=True)
class Row:
    """One text followed: seconds for each token, (n_tokens,)."""

    name: str
    mask: NDArray[np.float64]
    applied: NDArray[np.float64]  # mask and application
    swept: NDArray[np.float64]  # the same with nothing in the caches
    gbnf: NDArray[np.float64]  # of the tokens that it takes
    remark: str = ""


class Bench:
    """Follows texts through grammars.

    Args:
        native: the loaded model.
        vocabulary: its tokens.
        repeats: how often each text is followed.
    """

    def __init__(self, native: NativeModel, vocabulary: Vocabulary, repeats: int) -> None:
        self.native, self.vocabulary, self.repeats = native, vocabulary, repeats
        rng = np.random.default_rng(0)
        self._logits = rng.standard_normal((8, vocabulary.n_tokens)).astype(np.float32) * 3
        self._weights = np.ones(CACHE_BYTES // 8)

    def follow(self, name: str, grammar: Grammar, text: str, schema: dict[str, Any] | None = None) -> Row:
        """The time of each token of `text`; with a schema, beside GBNF's."""
        tokens = self.vocabulary.tokenize(text)
        gbnf, remark = "", ""
        if schema:
            try:
                gbnf = json_schema_to_gbnf(json.dumps(schema))
            except AssertionError as error:  # how the converter says it
                remark = f"no GBNF: {str(error)[:40]}"
        warm, swept, other = [], [], []
        for _ in range(self.repeats):
            warm.append(self._ours(grammar, tokens, sweep=False))
            swept.append(self._ours(grammar, tokens, sweep=True))
            other.append(self._theirs(gbnf, tokens) if gbnf else [])
        if gbnf and len(other[0]) < len(tokens):
            remark = f"GBNF refuses {self.vocabulary.name_of(tokens[len(other[0])])!r}"
        mask, applied = np.median(warm, axis=0)
        return Row(name, mask, applied, np.median(swept, axis=0)[1], np.median(other, axis=0), remark)

    def _ours(self, grammar: Grammar, tokens: list[int], *, sweep: bool) -> NDArray[np.float64]:
        """(2, n_tokens): mask; mask and application."""
        matcher = Matcher(grammar, self.vocabulary)
        times = np.zeros((2, len(tokens)))
        for i, token in enumerate(tokens):
            logits = self._logits[i % len(self._logits)].copy()
            if sweep:
                self._weights.sum()
            started = time.perf_counter()
            allowed = matcher.allowed()
            between = time.perf_counter()
            apply_bitmask(allowed, logits)
            times[:, i] = between - started, time.perf_counter() - started
            assert np.isfinite(logits[token]), f"{self.vocabulary.name_of(token)!r} is not allowed"
            matcher.consume([token])
        return times

    def _theirs(self, gbnf: str, tokens: list[int]) -> list[float]:
        sampler, times = Gbnf(self.vocabulary, self.native, gbnf), list[float]()
        for i, token in enumerate(tokens):
            seconds = sampler.apply(self._logits[i % len(self._logits)])
            if not sampler.accept(token):
                break
            times.append(seconds)
        sampler.close()
        return times


def masks(bench: Bench, with_gbnf: bool) -> Iterator[Row]:
    """Whole replies through the grammar of ten tools; then arguments alone, beside GBNF."""
    builtin = builtin_cases()
    cases = (*builtin, *HARD)
    tools = openai_tools((*builtin, HARD[4], HARD[7]))
    grammar = tool_grammar(tools, "auto", dialect="qwen3", enable_thinking=True)
    calls = "\n".join(
        "<tool_call>\n" + json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n</tool_call>"
        for n, a in [("get_weather", {"city": "上海"}), ("patterns", HARD[4].arguments), ("deep", HARD[7].arguments)]
    )
    yield bench.follow("reply: calls", grammar, f"<think>\n{THOUGHT}\n</think>\n\n{calls}")
    yield bench.follow("reply: answer", grammar, f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}")
    for case in cases:
        grammar = Grammar.json_schema(enforced(arguments_schema(case.parameters)).schema)
        yield bench.follow(case.name, grammar, case.text, case.parameters if with_gbnf else None)


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def grammars(vocabulary: Vocabulary, repeats: int) -> dict[str, float]:
    """Medians in milliseconds, for ten tools: `grammar_cold` is of tools never seen, all checks included;
    `grammar_warm` of tools of an earlier request; `matcher` the part of both that llguidance compiles."""
    fresh = count()
    times: dict[str, list[float]] = {"grammar_cold": [], "grammar_warm": [], "matcher": []}
    for _ in range(max(repeats, 5) * 2):
        tools = openai_tools((*builtin_cases(), HARD[5], HARD[7]))
        for tool in tools:  # new content
            tool["function"]["parameters"] = {**tool["function"]["parameters"], "$comment": f"{next(fresh)}"}
        for key in ("grammar_cold", "grammar_warm"):
            times[key].append(timed(lambda tools=tools: Matcher(tool_grammar(tools, "auto"), vocabulary)))  # type: ignore[misc]
        grammar = tool_grammar(tools, "auto")
        times["matcher"].append(timed(lambda grammar=grammar: Matcher(grammar, vocabulary)))  # type: ignore[misc]
    return {key: statistics.median(values) for key, values in times.items()}


SETUP = """
import json, sys, time
from laploop.engine.gguf import read_gguf
from laploop.engine.guide import Guide
from laploop.engine.native import NativeModel
from laploop.engine.vocabulary import Vocabulary
path, how = sys.argv[1:]
metadata = read_gguf(path).metadata
started = time.perf_counter()
guide = Guide.of(metadata) if how != "model" else None
if how == "tables":
    guide.tokenizer()
else:
    native = NativeModel(path, 0, True)
    if guide:
        Vocabulary(native, metadata, guide).guide()
print(json.dumps((time.perf_counter() - started) * 1e3))
"""


def setups(path: Path, repeats: int) -> dict[str, float]:
    """Medians in milliseconds of new processes that take turns: llguidance's tables alone, the model alone, both; and
    what the tables add to the model."""
    times: dict[str, list[float]] = {"tables": [], "model": [], "both": []}
    for _ in range(repeats):
        for how, values in times.items():
            command = [sys.executable, "-c", SETUP, str(path), how]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            values.append(json.loads(out.splitlines()[-1]))
    added = [both - model for both, model in zip(times["both"], times["model"], strict=True)]
    return {**{how: statistics.median(values) for how, values in times.items()}, "setup": statistics.median(added)}


def figures(times: NDArray[np.float64]) -> dict[str, float]:
    """Milliseconds."""
    if not len(times):
        return {}
    ms = times * 1e3
    return {"mean": ms.mean(), "p50": np.median(ms), "p99": np.percentile(ms, 99), "max": ms.max()}


def table(rows: list[Row]) -> None:
    """Print the rows."""
    print(f"{'milliseconds':16}{'tokens':>7} |{'mask':>7}{'p50':>7}{'p99':>7}{'max':>7} |{'+apply':>7}{'p99':>7} |"
          f"{'swept':>7}{'p99':>7} |{'GBNF':>8}{'p99':>8}{'ratio':>7}")  # fmt: skip
    for row in rows:
        mask, applied, swept, gbnf = map(figures, (row.mask, row.applied, row.swept, row.gbnf))
        line = f"{row.name:16}{len(row.mask):7} |" + "".join(f"{mask[k]:7.3f}" for k in ("mean", "p50", "p99", "max"))
        line += f" |{applied['mean']:7.3f}{applied['p99']:7.3f} |{swept['mean']:7.3f}{swept['p99']:7.3f} |"
        if gbnf:
            line += f"{gbnf['mean']:8.2f}{gbnf['p99']:8.2f}"
            line += f"{row.gbnf.mean() / row.applied[: len(row.gbnf)].mean():7.0f}"
        print(line, row.remark, flush=True)


def together(name: str, rows: list[Row]) -> Row:
    """All tokens of some rows."""
    mask, applied, swept, gbnf = (
        np.concatenate([getattr(r, kind) for r in rows]) for kind in ("mask", "applied", "swept", "gbnf")
    )
    return Row(name, mask, applied, swept, gbnf)


@contextmanager
def loaded(path: Path) -> Iterator[tuple[NativeModel, Vocabulary]]:
    """The model's vocabulary."""
    native = NativeModel(path, 0, True)
    yield native, Vocabulary(native, read_gguf(path).metadata)
    native.close()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b", help="only its vocabulary is used")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-gbnf", action="store_true", help="leave llama.cpp's sampler out, which takes a minute")
    given = parser.parse_args()
    path = resolve_model(given.model, offline=True).path
    load = [os.getloadavg()[0]]
    setup = setups(path, given.repeats)
    with loaded(path) as (native, vocabulary):
        bench = Bench(native, vocabulary, given.repeats)
        build = grammars(vocabulary, given.repeats)
        rows = list(masks(bench, not given.no_gbnf))
    load.append(os.getloadavg()[0])
    whole = together("all", [dataclasses.replace(r, gbnf=np.empty(0)) for r in rows])
    beside = together("beside GBNF", [r for r in rows if len(r.gbnf) == len(r.mask)] or rows[:1])
    table([*rows, whole, beside])
    rounded = [{key: round(value, 1) for key, value in part.items()} for part in (build, setup)]
    print(f"\nten tools: {rounded[0]}\nset-up: {rounded[1]}\n1-minute load: {load}")
    values = {
        "mask_mean": figures(whole.mask)["mean"], "mask_p99": figures(whole.mask)["p99"],
        "mask_max": figures(whole.mask)["max"], "applied_mean": figures(whole.applied)["mean"],
        "applied_p99": figures(whole.applied)["p99"], **build, **setup,
    }  # fmt: skip
    values |= {f"swept_{k}": figures(whole.swept)[k] for k in ("mean", "p99")}
    values |= {f"gbnf_{k}": v for k, v in figures(beside.gbnf).items() if k in ("mean", "p99")}
    missed = [key for key, bar in BARS.items() if values[key] > bar]
    print("missed:", ", ".join(f"{key} {values[key]:.3f} > {BARS[key]}" for key in missed) or "nothing")
    result = {
        "benchmark": "mask_cost", "model": path.stem, "n_vocab": vocabulary.n_tokens, "repeats": given.repeats,
        "tokens": len(whole.mask), "ms": {k: round(float(v), 4) for k, v in values.items()}, "missed": missed,
        "load": [round(x, 2) for x in load],
    }  # fmt: skip
    print(json.dumps(result))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
