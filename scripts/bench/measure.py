"""Runs the tests of a plan on a model: loaded once, warmed up, and timed in turns.

In turns: all tests once, then all tests again. What changes on the machine meanwhile (heat, other programs) then
touches all tests alike, instead of the last one alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .busy import BusyMeter
from .environment import environment
from .plan import Plan
from .result import Result

if TYPE_CHECKING:
    from laploop.engine import EngineConfig, GGUFFile
    from laploop.engine.bare import BareRun, BareTest
    from laploop.engine.native import NativeModel

Say = Callable[[str], None]
_FLASH = {"auto": -1, "off": 0, "on": 1}  # llama.h: enum llama_flash_attn_type


@dataclass(frozen=True, slots=True)
class Method:
    """How often, and what between.

    Args:
        repetitions: samples of each test.
        delay_s: rest before each sample.
        warm_up: run each test once untimed.
        interleave: the tests take turns; else each has all its repetitions at once, as in llama-bench.
    """

    repetitions: int = 5
    delay_s: float = 0.0
    warm_up: bool = True
    interleave: bool = True


@dataclass(slots=True)
class _Timed:
    config: EngineConfig
    test: BareTest
    samples_ns: list[int] = field(default_factory=list)
    meter: BusyMeter = field(default_factory=BusyMeter)
    begun: str = ""


def measure(path: Path, name: str, plan: Plan, method: Method, say: Say) -> list[Result]:
    """Measure all tests of the plan on one model.

    Args:
        path: the GGUF.
        name: what to call it in the results.
        say: told what goes on, a line at a time.

    Raises:
        EngineError: the file is no model, does not fit in memory, or llama.cpp refuses a setting.
    """
    from laploop.engine import read_gguf
    from laploop.engine.native import NativeModel, build_and_devices

    header = read_gguf(path)
    around, surroundings = {**build_and_devices(), "model_filename": name}, environment()
    results: list[Result] = []
    for n_gpu_layers in plan.n_gpu_layers:
        tests = [_Timed(config, test) for config, test in plan.of_a_load(n_gpu_layers)]
        together = _fits_together(header, tests) and method.interleave and len(tests) > 1
        if method.interleave and len(tests) > 1 and not together:
            say("the contexts of all tests do not fit in memory together: the tests run one after the other")
        say(f"loading {name}")
        model = NativeModel(path, n_gpu_layers, use_mmap=True)
        try:
            _time_all(model, tests, method, together, say)
            results += [_result(timed, model, around, surroundings, together) for timed in tests]
        finally:
            model.close()
    return results


def _fits_together(header: GGUFFile, tests: Sequence[_Timed]) -> bool:
    """Whether one context for each test fits. Raises EngineError where not even the largest does."""
    from laploop.engine import native
    from laploop.engine.memory import available_bytes, check_memory, estimate, kv_cache_bytes

    if tests[0].config.n_gpu_layers and native.supports_gpu():
        return True  # llama.cpp will say
    free_bytes = available_bytes()
    for timed in tests:
        check_memory(header, timed.config, free_bytes)
    needed = [estimate(header, timed.config) for timed in tests]
    largest = max(need.needed_bytes for need in needed)
    rest = sum(kv_cache_bytes(header, timed.config) for timed in tests) + sum(need.compute_bytes for need in needed)
    return free_bytes is None or largest + rest <= free_bytes


def _time_all(model: NativeModel, tests: Sequence[_Timed], method: Method, together: bool, say: Say) -> None:
    depths: dict[Any, bytearray] = {}
    for group in [tests] if together else [[timed] for timed in tests]:
        with contextlib.ExitStack() as stack:
            runs = [stack.enter_context(contextlib.closing(_opened(model, timed))) for timed in group]
            for timed, run in zip(group, runs, strict=True):
                if method.warm_up:
                    say(f"{timed.test}: warm-up")
                    run.warm_up()
            for i in range(method.repetitions):
                for timed, run in zip(group, runs, strict=True):
                    say(f"{timed.test}: {i + 1} of {method.repetitions}")
                    time.sleep(method.delay_s)
                    timed.begun = timed.begun or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    with timed.meter:
                        timed.samples_ns.append(run.sample(depths))


def _opened(model: NativeModel, timed: _Timed) -> BareRun:
    from laploop.engine.bare import BareRun

    return BareRun(model, timed.test, timed.config)


def _result(
    timed: _Timed, model: NativeModel, around: dict[str, str], surroundings: dict[str, Any], together: bool
) -> Result:
    config, test = timed.config, timed.test
    facts = {
        **around,
        "model_type": model.description,
        "model_size": model.size_bytes,
        "model_n_params": model.n_params,
        "n_batch": config.n_batch,
        "n_ubatch": config.n_ubatch,
        "n_threads": config.n_threads,
        "type_k": config.type_k,
        "type_v": config.type_v,
        "n_gpu_layers": config.n_gpu_layers,
        "flash_attn": _FLASH[config.flash_attn],
        "n_prompt": test.n_prompt,
        "n_gen": test.n_gen,
        "n_depth": test.n_depth,
        "test_time": timed.begun,
    }
    meter = timed.meter
    return Result(str(test), facts, timed.samples_ns, meter.others_cores, meter.stolen_cores, together, surroundings)
