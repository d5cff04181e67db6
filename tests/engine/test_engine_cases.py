"""The lines of engine.jsonl, and how a generation begins and ends.

C107 (bytes of the KV cache) stands in test_gguf.py; C113 (a text that collapses into a loop) is another issue's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from laploop.engine import (
    ContextError,
    Engine,
    EngineConfig,
    EngineError,
    Grammar,
    SamplingParams,
    native,
)

CASES = {
    c["id"]: c
    for c in map(json.loads, (Path(__file__).parents[1] / "data" / "engine.jsonl").read_text("utf-8").splitlines())
}
GREEDY = SamplingParams(temperature=0)


def never_ending(engine: Engine) -> SamplingParams:
    return SamplingParams(temperature=0, logit_bias=dict.fromkeys(engine.vocabulary.eog, -1e9))


def test_c103_a_prompt_longer_than_the_context(tiny_path: Path) -> None:
    given, expected = CASES["C103"]["input"], CASES["C103"]["expected"]
    with Engine.load(tiny_path, EngineConfig(n_ctx=given["n_ctx"], n_threads=1)) as engine:
        prompt = [65] * given["prompt_tokens"]
        with pytest.raises(ContextError) as caught:  # at the call, before anything is read
            engine.generate(prompt, GREEDY, None, given["max_tokens"])
        assert [word for word in expected["error_mentions"] if word not in str(caught.value)] == []
        assert isinstance(caught.value, EngineError)
        assert not any(slot.cached for slot in engine._slots)  # nothing was decoded
        assert len([*engine.generate([65], never_ending(engine), None, 3)]) == 3


def test_c104_a_prompt_that_leaves_too_little_room(tiny_path: Path) -> None:
    given, expected = CASES["C104"]["input"], CASES["C104"]["expected"]
    with Engine.load(tiny_path, EngineConfig(n_ctx=given["n_ctx"], n_threads=1)) as engine:
        steps = list(engine.generate([65] * given["prompt_tokens"], never_ending(engine), None, given["max_tokens"]))
        n_generated = sum(len(step.tokens) for step in steps)
        assert n_generated == expected["effective_max_tokens_at_most"]
        assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + [
            expected["finish_reason_if_filled"]
        ]
        with pytest.raises(ContextError):
            engine.generate([65] * given["n_ctx"])


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_c109_a_context_that_cannot_be_allocated(tmp_path: Path) -> None:
    """llama.cpp returns a null pointer and nothing else. A limit on the process's memory brings that about."""
    from tiny_model import make_tiny_model

    given, expected = CASES["C109"]["input"], CASES["C109"]["expected"]
    path = make_tiny_model(tmp_path / "long.gguf", None, n_ctx=given["n_ctx"], n_layers=12)
    code = (
        "import resource, sys\n"
        "from laploop.engine import BackendError, Engine, EngineConfig\n"
        "Engine.load(sys.argv[1], EngineConfig(n_ctx=256, n_threads=1)).close()\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + 100 * 2**20\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: Engine.load(sys.argv[1], EngineConfig(n_ctx=int(sys.argv[2]), n_threads=1))\n"
        "except BackendError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(given["n_ctx"])]
    message = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [word for word in expected["error_mentions"] if word not in message] == []
    assert "memory" in message and "-ctk" in message


@pytest.mark.skipif(native.supports_gpu(), reason="this build has a GPU back end")
@pytest.mark.parametrize("n_gpu_layers", [CASES["C110"]["input"]["n_gpu_layers"], 5])
def test_c110_a_gpu_is_asked_for_and_the_build_has_none(tiny_path: Path, n_gpu_layers: int) -> None:
    with (
        pytest.warns(UserWarning, match=f"n_gpu_layers = {n_gpu_layers} has no effect"),
        Engine.load(tiny_path, EngineConfig(n_ctx=256, n_gpu_layers=n_gpu_layers)) as engine,
    ):
        assert engine.device == CASES["C110"]["expected"]["reported_device"]


def test_c111_two_threads_use_one_model(tiny_engine: Engine) -> None:
    """Steps run in one thread only, so that native calls cannot overlap; an abandoned stream holds nothing."""
    n = CASES["C111"]["input"]["threads"]
    names: set[str] = set()

    def complete(i: int) -> int:
        import threading

        sequence = tiny_engine.prepare([65 + i] * 20, never_ending(tiny_engine), None, 30)
        sequence.watch = lambda step: names.add(threading.current_thread().name) or ()  # type: ignore[func-returns-value]
        return sum(len(step.tokens) for step in tiny_engine.read(sequence))

    abandoned = tiny_engine.generate([1], never_ending(tiny_engine), None, 100)
    next(abandoned)
    abandoned.close()
    with ThreadPoolExecutor(n) as pool:
        assert list(pool.map(complete, range(n))) == [30] * n
    assert len(names) == 1


def test_c116_a_path_with_letters_beyond_ascii(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / Path(CASES["C116"]["input"]["path"]).relative_to("/tmp")
    path.parent.mkdir()
    shutil.copy(tiny_path, path)
    with Engine.load(str(path), EngineConfig(n_ctx=256, n_threads=1)) as engine:
        assert engine.path == path and len(list(engine.generate([65], never_ending(engine), None, 2))) == 2


# -- beginnings and ends --------------------------------------------------------------------------------------------


def test_an_empty_prompt_and_a_closed_engine_are_errors(tiny_path: Path) -> None:
    engine = Engine.load(tiny_path, EngineConfig(n_ctx=256, n_threads=1))
    with pytest.raises(ContextError, match="empty"):
        engine.generate([])
    generator = engine.generate([65])
    engine.close()
    engine.close()
    for use in (lambda: engine.generate([65]), lambda: list(generator), lambda: engine.tokenize("x")):
        with pytest.raises(EngineError, match="closed"):
            use()


def test_the_end_of_a_text_is_no_token_of_it(tiny_engine: Engine) -> None:
    (eos, *_) = sorted(tiny_engine.vocabulary.eog)
    only_the_end = SamplingParams(temperature=0, logit_bias={eos: 1e9})
    (step,) = tiny_engine.generate([65], only_the_end, None, 5)
    assert (step.tokens, step.text, step.finish_reason) == ((), b"", "stop")


def test_a_finished_value_ends_without_an_end_token(tiny_engine: Engine) -> None:
    grammar = Grammar.json_schema({"enum": ["a", "b"]})
    steps = list(tiny_engine.generate([65], GREEDY, grammar, 50))
    assert steps[-1].finish_reason == "stop" and b"".join(s.text for s in steps) in (b'"a"', b'"b"')


@pytest.mark.parametrize("n", range(1, 12))
def test_a_budget_below_the_smallest_value_ends_with_length(tiny_engine: Engine, n: int) -> None:
    grammar = Grammar.json_schema({"const": {"key": "0123456789"}})
    way = len(tiny_engine.prepare([65], GREEDY, grammar, 100).way_out or ())
    steps = list(tiny_engine.generate([65], GREEDY, grammar, n))
    assert sum(len(s.tokens) for s in steps) <= n
    assert steps[-1].finish_reason == ("stop" if n >= way else "length")


def test_closing_costs_free_text_nothing(tiny_engine: Engine) -> None:
    """A grammar that asks for nothing is cut where the budget ends, and says so."""
    grammar = Grammar("start: TEXT?\nTEXT: /(.|\\n)+/\n")
    steps = list(tiny_engine.generate([65], never_ending(tiny_engine), grammar, 20))
    assert sum(len(s.tokens) for s in steps) == 20 and steps[-1].finish_reason == "length"


def test_penalties_and_biases_reach_the_sampler(tiny_engine: Engine) -> None:
    def text(**changes: Any) -> list[int]:
        params = SamplingParams(temperature=0, **changes)
        return [t for step in tiny_engine.generate([65], params, None, 40) for t in step.tokens]

    assert set(text(logit_bias={66: 1e9})) == {66}
    penalised = text(logit_bias={66: 50.0, 67: 50.0, 68: 50.0}, presence_penalty=1000.0)
    assert sorted(penalised[:3]) == [66, 67, 68]


def test_seeds(tiny_engine: Engine) -> None:
    def text(seed: int | None) -> tuple[int, ...]:
        params = SamplingParams(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        return tuple(t for step in tiny_engine.generate([65], params, None, 12) for t in step.tokens)

    assert text(1) == text(1) != text(2)
    assert len({text(None) for _ in range(4)}) > 1


def test_timings_count_what_was_done(tiny_engine: Engine) -> None:
    tiny_engine.clear_cache()
    sequence = tiny_engine.prepare([65] * 30, never_ending(tiny_engine), None, 10)
    n_steps = len(list(tiny_engine.read(sequence)))
    t = sequence.timings
    assert (t.n_prompt, t.n_cached, t.n_generated, t.n_steps + t.n_accepted) == (30, 0, 10, n_steps)
    assert t.prompt_s > 0 and t.generate_s > 0
