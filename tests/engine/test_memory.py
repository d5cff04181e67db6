"""What a load takes and what there is: the figures of llama.cpp's own log, fake limits, and the refusal's ways out."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import BackendError, Engine, EngineConfig, read_gguf
from laploop.engine.memory import available_bytes, check_memory, context_length, estimate

MIB = 2**20
LIMIT_V1 = "9223372036854771712"  # "none"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 16000 kB\nMemAvailable:    8000 kB\nSwapFree: 2000 kB\nHugePages_Total:  0\n"}


@pytest.mark.parametrize(
    "files, kilobytes",
    [
        ({}, None),
        (MEMINFO, 10_000),
        ({"proc/meminfo": "MemAvailable: 8000 kB\n"}, 8_000),
        # version 2: the tightest group on the way up counts; pages of files can be dropped
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/user/app\n",
                "sys/fs/cgroup/user/memory.max": "5120000",
                "sys/fs/cgroup/user/memory.current": "2048000",
                "sys/fs/cgroup/user/memory.stat": "anon 1024000\ninactive_file 512000\nactive_file 512000\n",
                "sys/fs/cgroup/user/app/memory.max": "max",
                "sys/fs/cgroup/user/app/memory.current": "1024000",
            },
            4_000,
        ),
        # a container that sees its own group as the root
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/../elsewhere\n",
                "sys/fs/cgroup/memory.max": "3072000",
                "sys/fs/cgroup/memory.current": "1024000",
            },
            2_000,
        ),
        # version 1
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": LIMIT_V1,
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "99999999",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "4096000",
                "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": "3072000",
                "sys/fs/cgroup/memory/docker/abc/memory.stat": "total_inactive_file 1024000\ninactive_file 1\n",
            },
            2_000,
        ),
        ({**MEMINFO, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max"}, 10_000),
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "1024",
                "sys/fs/cgroup/memory.current": "2048",
            },
            0,
        ),
    ],
)
def test_the_tightest_limit_counts(tmp_path: Path, files: dict[str, str], kilobytes: int | None) -> None:
    assert available_bytes(write(tmp_path, files)) == (None if kilobytes is None else kilobytes * 1024)


def test_this_machine_has_memory() -> None:
    free = available_bytes()
    if sys.platform == "linux":
        assert free is not None and free > 50 * MIB


def of_log(text: str, name: str) -> float:
    return sum(float(found) for found in re.findall(rf"{name} buffer size\s*=\s*([\d.]+) MiB", text))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"flash_attn": "off"},
        {"n_ctx": 1000, "n_ubatch": 512, "type_k": "q8_0", "type_v": "q4_0"},
        {"n_seq_max": 8, "n_ubatch": 64, "draft_max": 200},
    ],
    ids=str,
)
def test_estimates_are_llama_cpp_s_own_figures(tiny_path: Path, changes: dict[str, Any]) -> None:
    code = (
        f"from laploop.engine import Engine, EngineConfig\nEngine.load({str(tiny_path)!r}, EngineConfig(**{changes!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.environ['LAPLOOP_LLAMA_LOG'] = '1'\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    need = estimate(read_gguf(tiny_path), EngineConfig(**changes))
    assert need.kv_bytes / MIB == pytest.approx(of_log(done.stderr, "KV"), abs=0.02)
    assert need.weights_bytes / MIB == pytest.approx(of_log(done.stderr, "model"), abs=0.02)
    compute = of_log(done.stderr, "compute")
    assert compute * 0.97 <= need.compute_bytes / MIB <= compute * 1.25 + 1


def test_the_context_is_never_more_than_the_model_s(tiny_path: Path) -> None:
    header = read_gguf(tiny_path)
    lengths = [context_length(header, EngineConfig(n_ctx=n)) for n in (0, 100, 4096, 10**6)]
    assert lengths == [4096, 100, 4096, 4096]


def test_less_is_estimated_for_less(tiny_path: Path) -> None:
    header = read_gguf(tiny_path)

    def total(**changes: Any) -> int:
        return estimate(header, EngineConfig(**changes)).total_bytes

    assert total(n_ctx=512) < total(n_ctx=1024) < total(n_ctx=4096) == total(n_ctx=0)
    assert total(type_k="q4_0") < total(type_k="q8_0") < total() < total(type_k="f32")
    assert total(n_ubatch=32) < total()
    assert total() < total(flash_attn="off")


def test_a_model_that_cannot_fit_is_refused_before_it_is_loaded(tiny_path: Path) -> None:
    header, config = read_gguf(tiny_path), EngineConfig(flash_attn="off", n_ubatch=64, n_ctx=4096)
    need = estimate(header, config).needed_bytes
    check_memory(header, config, need)
    check_memory(header, config, None)
    with pytest.raises(BackendError) as refusal:
        Engine.load(tiny_path, config, memory_bytes=need - 1)
    message = str(refusal.value)
    assert "tiny.gguf needs about" in message and f"{(need - 1) / 1e6:,.0f} MB are free" in message
    context = re.search(r"A smaller context \(-c (\d+)\) fits; so may a smaller quantisation\.$", message)
    assert context is not None
    with Engine.load(
        tiny_path, EngineConfig(flash_attn="off", n_ubatch=64, n_ctx=int(context[1])), memory_bytes=need - 1
    ) as engine:
        assert engine.n_ctx == int(context[1])


def test_the_ways_out_are_those_that_help(tiny_path: Path) -> None:
    header = read_gguf(tiny_path)
    quantised = estimate(header, EngineConfig(type_k="q8_0", type_v="q8_0")).needed_bytes
    with pytest.raises(BackendError, match=r"-c 2048.* or a smaller KV type \(-ctk q8_0 -ctv q8_0\) fits"):
        check_memory(header, EngineConfig(), quantised)
    with pytest.raises(BackendError, match="Choose a smaller quantisation or model"):
        check_memory(header, EngineConfig(), 1000)


@pytest.mark.parametrize("n_fits", [4096, 2048])
def test_where_no_length_was_asked_for_the_context_is_what_fits(tmp_path: Path, n_fits: int) -> None:
    """8192 tokens, else a half or a quarter of it with a warning; what was asked for is refused instead."""
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path / "long.gguf", None, n_ctx=32768)
    header = read_gguf(path)
    assert context_length(header, EngineConfig()) == 8192
    memory = estimate(header, EngineConfig(n_ctx=n_fits)).needed_bytes
    with (
        pytest.warns(UserWarning, match=rf"holds {n_fits} tokens: no more fit in the .* MB of free memory \(-c"),
        Engine.load(path, memory_bytes=memory) as engine,
    ):
        assert engine.n_ctx == n_fits
    with pytest.raises(BackendError, match="for 8192 tokens of context"):
        Engine.load(path, EngineConfig(n_ctx=8192), memory_bytes=memory)
    with pytest.raises(BackendError, match="for 8192 tokens of context"):
        Engine.load(path, memory_bytes=10_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Engine.load(path, memory_bytes=2**33) as engine:
            assert engine.n_ctx == 8192
