"""`laploop bench` on the tiny model: the tests that were asked for, in llama-bench's order, measured in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from laploop.engine import EngineConfig, EngineError
from laploop.engine.bare import BareRun, BareTest
from laploop.engine.native import NativeModel
from laploop.scripts.bench.busy import BusyMeter
from laploop.scripts.bench.environment import environment
from laploop.scripts.bench.measure import Method, measure
from laploop.scripts.bench.plan import Plan
from laploop.scripts.bench_command import bench


def rows_of(*args: str, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    result = CliRunner().invoke(bench, ["-t", "1", "-o", "json", *args], env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_every_combination_is_a_test_in_llama_benchs_order(tiny_path: Path) -> None:
    lists = ("-p", "8,16", "-n", "4", "-pg", "8,4", "-d", "0,8", "-ub", "16-32*2", "-r", "2")
    rows = rows_of("-m", str(tiny_path), *lists)
    names = [row["laploop"]["test"] for row in rows]
    one = ["pp8", "pp16", "tg4", "pp8+tg4"]
    assert names == 2 * [*one, *(f"{name} @ d8" for name in one)]
    assert [row["n_ubatch"] for row in rows] == [16] * 8 + [32] * 8
    assert all(len(row["samples_ns"]) == 2 and row["avg_ts"] > 0 for row in rows)
    assert {row["model_filename"] for row in rows} == {str(tiny_path)} and rows[0]["n_batch"] == 2048


def test_flags_may_stand_several_times_and_have_variables(tiny_path: Path) -> None:
    env = {"LAPLOOP_N_GEN": "2,3", "LAPLOOP_MODEL": str(tiny_path), "LAPLOOP_REPETITIONS": "1"}
    rows = rows_of("-p", "4", "-p", "5", "-fa", "1,0", env=env)
    assert [row["laploop"]["test"] for row in rows] == 2 * ["pp4", "pp5", "tg2", "tg3"]
    assert [row["flash_attn"] for row in rows] == [1] * 4 + [0] * 4


def test_the_tests_take_turns(tiny_path: Path) -> None:
    told: list[str] = []
    plan = Plan(n_prompt=(4,), n_gen=(2,), n_threads=(1,))
    measure(tiny_path, "tiny", plan, Method(repetitions=2), told.append)
    assert told[1:] == ["pp4: warm-up", "tg2: warm-up", *(f"{t}: {i} of 2" for i in (1, 2) for t in ("pp4", "tg2"))]
    told.clear()
    results = measure(tiny_path, "tiny", plan, Method(2, warm_up=False, interleave=False), told.append)
    assert told[1:] == ["pp4: 1 of 2", "pp4: 2 of 2", "tg2: 1 of 2", "tg2: 2 of 2"]
    assert not any(result.interleaved for result in results)


def test_contexts_that_do_not_fit_together_are_made_one_after_the_other(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laploop.engine import memory, read_gguf

    plan = Plan(n_prompt=(512, 1024), n_gen=(), n_threads=(1,))
    needs = [memory.estimate(read_gguf(tiny_path), config).needed_bytes for config, _ in plan.of_a_load(-1)]
    monkeypatch.setattr(memory, "available_bytes", lambda: max(needs) + 1)
    told: list[str] = []
    results = measure(tiny_path, "tiny", plan, Method(1), told.append)
    assert "one after the other" in told[0] and len(results) == 2 and not results[0].interleaved
    monkeypatch.setattr(memory, "available_bytes", lambda: min(needs) - 1)
    with pytest.raises(EngineError, match="of memory"):
        measure(tiny_path, "tiny", plan, Method(1), told.append)


def test_a_depth_is_computed_once_and_restored(tiny_path: Path) -> None:
    """A restored depth holds what a computed one holds: the next logits are the same."""
    model, depths = NativeModel(tiny_path, 0, use_mmap=True), {}
    config = EngineConfig(n_batch=64, n_ubatch=64, n_threads=1, flash_attn="on")
    runs = [BareRun(model, BareTest(4, 2, 32), config, seed=seed) for seed in (1, 2)]
    for run in (*runs, *runs):
        assert run.sample(depths) > 0
    assert len(depths) == 1
    states = []
    for run in runs:
        run._context.clear()
        assert run._context.restore(next(iter(depths.values())))
        states.append(bytes(run._context.state()))
        run._context.decode(np.array([5], np.int32))
        run.close()
    assert states[0] == states[1]
    model.close()


@pytest.mark.parametrize("form", ["md", "csv", "jsonl", "sql"])
def test_both_outputs_have_the_form_that_was_asked_for(tiny_path: Path, form: str) -> None:
    args = ["-m", str(tiny_path), "-t", "1", "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "-o", "none", "-oe", form]
    result = CliRunner().invoke(bench, args, catch_exceptions=False)
    assert result.exit_code == 0 and result.stdout == "" and "qwen3" in result.stderr


def test_a_synthetic_model_is_measured_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laploop.models.files import synthetic

    shape = synthetic.Shape("qwen3", 2, 256, 512, 4, 2, 64, 1024, 512, 1e6, True)
    monkeypatch.setattr(synthetic, "shapes", lambda: {"small": shape})
    monkeypatch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path))
    (row,) = rows_of("--synthetic", "small:Q4_K_M", "-p", "8", "-n", "0", "-r", "1")
    assert row["model_filename"] == "synthetic small:q4_k_m" and "Q4_K - Medium" in row["model_type"]
    assert list((tmp_path / "bench").iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-p", "0", "-n", "0"], "no test is left"),
        (["-p", "4-2"], "has no end or nothing in it"),
        (["-pg", "4"], "two numbers"),
        (["-fa", "maybe"], "on, off, auto"),
        (["-ctk", "q9"], "is not one of f32"),
        (["-t", "0"], "not between 1"),
        (["-r", "0"], "1<=x"),
        (["-r", "2", "compare", "a", "b"], "no meaning for bench compare"),
    ],
)
def test_wrong_flags_are_told_before_a_model_is_looked_for(args: list[str], message: str) -> None:
    result = CliRunner().invoke(bench, args)
    assert result.exit_code == 2 and message in result.output


def test_settings_that_exclude_each_other_are_named(tiny_path: Path) -> None:
    args = ["-m", str(tiny_path), "-t", "1", "-ctv", "q8_0", "-fa", "off"]
    with pytest.raises(EngineError, match="needs flash attention"):
        CliRunner().invoke(bench, args, catch_exceptions=False)


def test_two_files_are_compared(tiny_path: Path, tmp_path: Path) -> None:
    rows = rows_of("-m", str(tiny_path), "-p", "8", "-n", "2", "-r", "3")
    twice = [{**row, "samples_ts": [2 * rate for rate in row["samples_ts"]]} for row in rows]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in twice))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.jsonl")]
    result = CliRunner().invoke(bench, ["compare", *files, "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert [row["test"] for row in found["rows"]] == ["pp8", "tg2"]
    assert all(row["low"] <= 2 <= row["high"] for row in found["rows"]) and found["differences"] == {}
    table = CliRunner().invoke(bench, ["compare", *files], catch_exceptions=False).stdout
    assert table.startswith("| test") and "(90%)" in table
    (tmp_path / "c.json").write_text(json.dumps([{**rows[0], "n_prompt": 99}]))
    result = CliRunner().invoke(bench, ["compare", files[0], str(tmp_path / "c.json")])
    assert result.exit_code == 1 and "no test is in both files" in result.output and "pp99" in result.output


def test_every_flag_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text("utf-8")
    for option in (option for option in bench.params if isinstance(option, click.Option)):
        assert all(f"`{name}`" in page for name in option.opts if name != "n_pg"), option.opts
        assert isinstance(option.envvar, str) and option.envvar.startswith("LAPLOOP_")


def test_the_environment_names_the_machine_not_its_owner() -> None:
    found = environment()
    assert found["threads"] >= 1 and found["llama_cpp_python"] and isinstance(found["governors"], list)
    assert os.uname().nodename not in json.dumps(found) if hasattr(os, "uname") else True


def test_the_environment_is_read_from_the_system(tmp_path: Path) -> None:
    for cpu in (0, 1):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("powersave\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: fpu sse hypervisor\n")
    found = environment(tmp_path)
    assert found["governors"] == ["powersave"] and found["virtual_machine"] is True


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "300000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_threads_wait_as_in_llama_bench_unless_a_variable_says_how(
    tiny_path: Path, given: dict[str, str], expected: str | None
) -> None:
    """laploop's own way, good beside other programs, made the 1.7B four percent slower than llama-bench."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, "-m", "laploop.scripts.cli", "bench", "-m", str(tiny_path), "-t", "1", "-p", "4"]
    done = subprocess.run(
        [*command, "-n", "0", "-r", "1", "-o", "jsonl"],
        env={**clean, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["laploop"]["environment"]["openmp"].get("GOMP_SPINCOUNT") == expected


def test_what_others_do_meanwhile_is_seen(tmp_path: Path) -> None:
    """Two counters of the kernel, before and after: 300 ticks of others and 50 stolen ones."""
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  100 0 0 900 0 0 0 0 0 0\n")
    meter = BusyMeter(tmp_path)
    with meter:
        threading.Event().wait(0.3)
        stat.write_text("cpu  400 0 0 900 0 0 0 50 0 0\n")
    assert meter.others_cores is not None and meter.stolen_cores is not None
    assert meter.others_cores == pytest.approx(6 * meter.stolen_cores, rel=0.05)
    missing = BusyMeter(tmp_path / "nowhere")
    with missing:
        pass
    assert missing.others_cores is None
