"""Results as llama-bench prints them: md, csv, json, jsonl, sql. Column by column the same, so that tables of both
programs can be laid one above the other, and loaded into one table. Knows text only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..visible import clean, json_text
from .plan import Plan
from .result import FIELDS, Result

FORMATS = ("md", "csv", "json", "jsonl", "sql", "none")
# Column → its width in llama-bench's table (negative: to the left) and its head; `get_field_width` and
# `get_field_display_name`. Others are as wide as their name, ten at least.
_WIDTHS = {
    "model": -30, "size": 10, "params": 10, "n_gpu_layers": 3, "n_threads": 7, "n_batch": 7, "n_ubatch": 8,
    "type_k": 6, "type_v": 6, "flash_attn": 3, "test": 15, "t/s": 20, "backend": -10,
}  # fmt: skip
_HEADS = {"n_gpu_layers": "ngl", "n_threads": "threads", "flash_attn": "fa"}
_SQL_TYPES = {str: "TEXT", bool: "INTEGER", int: "INTEGER", float: "REAL"}
_MIB, _GIB = 2**20, 2**30


def written(form: str, results: Sequence[Result], plan: Plan) -> str:
    """All results in one of `FORMATS`, with a newline at the end."""
    writers = {"md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl, "sql": _sql}
    return writers[form](results, plan) if form != "none" and results else ""


def _csv(results: Sequence[Result], _: Plan) -> str:
    rows = [",".join(FIELDS)]
    rows += [",".join('"' + text.replace('"', '""') + '"' for text in _texts(result)) for result in results]
    return "\n".join(rows) + "\n"


def _json(results: Sequence[Result], _: Plan) -> str:
    return json_text([result.as_json() for result in results]) + "\n"


def _jsonl(results: Sequence[Result], _: Plan) -> str:
    return "".join(json_text(result.as_json(), indent=None) + "\n" for result in results)


def _sql(results: Sequence[Result], _: Plan) -> str:
    columns = ",\n".join(f"  {name} {_SQL_TYPES[kind]}" for name, kind in FIELDS.items())
    rows = [f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n"]
    for result in results:
        values = ", ".join("'" + text.replace("'", "''") + "'" for text in _texts(result))
        rows.append(f"INSERT INTO llama_bench ({', '.join(FIELDS)}) VALUES ({values});")  # noqa: S608 - a file, not a query
    return "\n".join(rows) + "\n"


def _texts(result: Result) -> list[str]:
    return [_text(value) for value in result.values().values()]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    return clean(str(int(value) if isinstance(value, bool) else value))


def _markdown(results: Sequence[Result], plan: Plan) -> str:
    columns = _columns(results, plan)
    rows = [[_HEADS.get(name, name) for name in columns]]
    rows += [[_cell(result, name) for name in columns] for result in results]
    widths = [_WIDTHS.get(name) or max(len(name), 10) for name in columns]
    lines = [
        _row([f"{text:<{-w}}" if w < 0 else f"{text:>{w}}" for text, w in zip(row, widths, strict=True)])
        for row in rows
    ]
    lines.insert(1, _row(["-" * (abs(w) - 1) + ("-" if w < 0 else ":") for w in widths]))
    facts = results[0].values()
    lines += ["", f"build: {facts['build_commit']} ({facts['build_number']})", ""]
    lines += [_summary(result) for result in results]
    environment = results[0].environment
    lines += ["", *(f"{clean(name)}: {clean(_shown(value))}" for name, value in environment.items())]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _columns(results: Sequence[Result], plan: Plan) -> list[str]:
    """llama-bench's choice: what is always told, and what is listed or not its default."""
    columns = ["model", "size", "params", "backend"]
    on_cpu = any(name in results[0].facts["backends"] for name in ("CPU", "BLAS", "ZenDNN"))
    if not on_cpu:
        columns.append("n_gpu_layers")
    if on_cpu or plan.n_threads:
        columns.append("n_threads")
    usual = Plan()
    optional = ("n_batch", "n_ubatch", "type_k", "type_v", "flash_attn")
    columns += [name for name in optional if getattr(plan, name) != getattr(usual, name)]
    return [*columns, "test", "t/s"]


def _cell(result: Result, column: str) -> str:
    facts = result.values()
    if column == "model":
        return clean(facts["model_type"])
    if column == "size":
        size = facts["model_size"]
        return f"{size / _MIB:.2f} MiB" if size < _GIB else f"{size / _GIB:.2f} GiB"
    if column == "params":
        n_params = facts["model_n_params"]
        return f"{n_params / 1e6:.2f} M" if n_params < 1e9 else f"{n_params / 1e9:.2f} B"
    if column == "backend":
        return clean(facts["backends"])
    if column == "test":
        return result.name
    if column == "t/s":
        return f"{facts['avg_ts']:.2f} ± {facts['stddev_ts']:.2f}"
    return _text(facts[column])


def _summary(result: Result) -> str:
    rates = result.samples_ts
    told = f"{clean(result.facts['model_type'])}, {result.name}: median {result.median_ts:.2f} t/s"
    told += f" ({min(rates):.2f} to {max(rates):.2f}, {len(rates)} repetitions)"
    return "; ".join([told, *result.notes])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or "not set"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "not known"
    return "not known" if value in (None, "") else str(value)
