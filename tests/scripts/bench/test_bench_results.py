"""What follows from samples, and the forms in which it is written: those of llama-bench, column by column."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from typing import Any

import pytest
from laploop.scripts.bench.formats import FORMATS, written
from laploop.scripts.bench.plan import Plan
from laploop.scripts.bench.result import FIELDS, Result

HOSTILE = 'it\'s "quoted", \x1b[2J; DROP TABLE llama_bench;--'
FACTS: dict[str, Any] = {
    "build_commit": "0c1e570", "cpu_info": "A processor", "gpu_info": "", "backends": "CPU", "model_filename": HOSTILE,
    "model_type": "qwen3 1.7B Q8_0", "model_size": 1_830_000_000, "model_n_params": 1_720_574_976, "n_batch": 2048,
    "n_ubatch": 512, "n_threads": 2, "type_k": "f16", "type_v": "f16", "n_gpu_layers": -1, "flash_attn": -1,
    "n_prompt": 512, "n_gen": 0, "n_depth": 0, "test_time": "2026-12-01T12:00:00Z",
}  # fmt: skip
# As llama-bench writes them (tools/llama-bench/README.md and its source), with a CPU back end.
CELLS = [
    [
        "model                         ",
        "      size",
        "    params",
        "backend   ",
        "threads",
        f"{'test':>15}",
        f"{'t/s':>20}",
    ],
    ["-" * 30, "-" * 9 + ":", "-" * 9 + ":", "-" * 10, "-" * 6 + ":", "-" * 14 + ":", "-" * 19 + ":"],
    [
        "qwen3 1.7B Q8_0               ",
        "  1.70 GiB",
        "    1.72 B",
        "CPU       ",
        "      2",
        f"{'pp512':>15}",
        f"{'50.50 ± 0.71':>20}",
    ],
]
HEAD = "".join(f"| {' | '.join(cells)} |\n" for cells in CELLS) + "\nbuild: 0c1e570 (0)\n"


def result(*rates: float, **more: Any) -> Result:
    return Result("pp512", FACTS, [round(512e9 / rate) for rate in rates], **more)


def test_the_table_is_llama_benchs() -> None:
    assert written("md", [result(50, 51)], Plan()).startswith(HEAD)


def test_what_is_listed_gets_a_column() -> None:
    plan = Plan(n_batch=(512, 1024), type_k=("q8_0",), flash_attn=("on",))
    head = written("md", [result(50)], plan).split("\n")[0]
    assert "| threads | n_batch | type_k |  fa |            test |" in head


def test_csv_can_be_imported() -> None:
    rows = list(csv.DictReader(io.StringIO(written("csv", [result(50, 51), result(60)], Plan()))))
    assert [list(row) for row in rows] == [list(FIELDS)] * 2
    assert float(rows[0]["avg_ts"]) == pytest.approx(50.5) and rows[0]["cpu_strict"] == "0"
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE t ({', '.join(FIELDS)})")
    database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(FIELDS))})", [list(row.values()) for row in rows])
    assert database.execute("SELECT avg(CAST(avg_ts AS REAL)) FROM t").fetchone()[0] == pytest.approx(55.25)
    database.close()


def test_sql_can_be_run_twice_and_text_stays_text() -> None:
    database = sqlite3.connect(":memory:")
    for _ in range(2):
        database.executescript(written("sql", [result(50, 51)], Plan()))
    rows = database.execute("SELECT n_prompt, avg_ts, repack, model_filename FROM llama_bench").fetchall()
    assert rows == [(512, pytest.approx(50.5), 1, HOSTILE.replace("\x1b", "\\x1b"))] * 2
    kinds = [kind for _, _, kind, *_ in database.execute("PRAGMA table_info(llama_bench)")]
    assert len(kinds) == len(FIELDS) and set(kinds) == {"TEXT", "INTEGER", "REAL"}
    database.close()


def test_json_and_lines_hold_the_same() -> None:
    results = [result(50, 51), result(60)]
    rows = json.loads(written("json", results, Plan()))
    assert rows == [json.loads(line) for line in written("jsonl", results, Plan()).splitlines()]
    assert list(rows[0]) == [*FIELDS, "samples_ns", "samples_ts", "laploop"]
    assert rows[0]["samples_ts"] == pytest.approx([50, 51]) and rows[0]["model_filename"] == HOSTILE
    for name, kind in FIELDS.items():
        assert type(rows[0][name]) is kind, name


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_that_a_file_is_called_reaches_the_terminal(form: str) -> None:
    assert "\x1b" not in written(form, [result(50)], Plan())


def test_one_disturbed_sample_is_a_spread_and_no_drift() -> None:
    notes = result(50, 50.1, 30, 50.2, 50.1).notes
    assert len(notes) == 1 and notes[0].startswith("spread: 40%")


def test_a_machine_that_grows_warm_is_told() -> None:
    hot = result(50, 49, 48, 47, 46)
    assert hot.drift == pytest.approx(-4 / 48, rel=0.01)
    assert any(note.startswith("drift: -8%") for note in hot.notes)
    assert result(50, 46).notes == []  # two samples tell of no direction


def test_a_busy_machine_is_told() -> None:
    assert result(50, others_cores=0.5).notes == ["busy machine: other processes used 0.5 cores meanwhile"]
    assert result(50, stolen_cores=0.3).notes == ["busy host: the hypervisor took 0.3 cores away meanwhile"]
    assert result(50, others_cores=None, stolen_cores=0.01).notes == []
