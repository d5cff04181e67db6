"""Several conversations on one context: what they begin with is computed once, nobody is held up, nobody fails.

That each text is the one its prompt gives alone is a law in `test_engine_laws.py`; here it is held where cells are
shared, taken away and computed again. Bit-equal on Q8_0 weights under EXACT.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laploop.engine import Engine, EngineConfig, SamplingParams
from laploop.engine.between_steps import between_steps
from laploop.engine.turns import FEW

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.insert(0, str(BENCHMARKS))

from identity import compare, recorded  # noqa: E402

Runs = Sequence[tuple[int, int, Sequence[int], int]]


def load(path: Path, **changes: Any) -> Engine:
    return Engine.load(path, EngineConfig(**{"n_ctx": 2048, "n_threads": 1, "draft_max": 0, **EXACT, **changes}))


def endless(engine: Engine, **changes: Any) -> SamplingParams:
    never = dict.fromkeys(engine.vocabulary.eog, -1e9)
    return SamplingParams(**{"temperature": 0, "logit_bias": never, **changes})


def text(n: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(500) for _ in range(n)]


def run(engine: Engine, prompt: list[int], sampling: SamplingParams, n: int) -> list[int]:
    return [t for step in engine.generate(prompt, sampling, None, n) for t in step.tokens]


@contextmanager
def watched(engine: Engine) -> Iterator[list[Runs]]:
    """The batches that are decoded within the block."""
    batches: list[Runs] = []
    decode = engine.context.decode

    def watching(runs: Runs) -> bool:
        batches.append([(seq_id, at, list(tokens), n) for seq_id, at, tokens, n in runs])
        return decode(runs)

    engine.context.decode = watching  # type: ignore[method-assign]
    try:
        yield batches
    finally:
        del engine.context.decode


def n_decoded(batches: list[Runs]) -> int:
    return sum(len(tokens) for batch in batches for _, _, tokens, _ in batch)


@pytest.fixture(scope="module")
def single(tiny_path: Path) -> Iterator[Engine]:
    with load(tiny_path) as engine:
        yield engine


def alone(single: Engine, prompt: list[int], sampling: SamplingParams, n: int) -> list[int]:
    """The text on an engine that remembers nothing."""
    single.clear_cache()
    return run(single, prompt, sampling, n)


# -- what several begin with ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_turns", [True, False], ids=["one thread", "threads"])
def test_continuations_of_one_prompt_are_each_as_alone_and_the_prompt_is_computed_once(
    tiny_path: Path, single: Engine, in_turns: bool
) -> None:
    """Eight branches of a prompt of 600 tokens, in a context that could not hold it twice."""
    prompt, n = text(600), 24
    with load(tiny_path, n_seq_max=8, n_ctx=1024) as engine, watched(engine) as batches:
        samplings = [endless(engine, temperature=1.0, seed=i) for i in range(8)]
        sequences = [engine.prepare(prompt, sampling, None, n) for sampling in samplings]
        if in_turns:
            texts: list[list[int]] = [[] for _ in sequences]
            readers = {i: engine.read(sequence) for i, sequence in enumerate(sequences)}
            while readers:
                for i, reader in list(readers.items()):
                    step = next(reader, None)
                    if step is None:
                        del readers[i]
                    else:
                        texts[i] += step.tokens
        else:
            with ThreadPoolExecutor(8) as pool:
                texts = list(pool.map(lambda s: [t for step in engine.read(s) for t in step.tokens], sequences))
        # Each branch decodes the prompt's last token itself, since it needs the logits, and what it writes.
        assert n_decoded(batches) == 600 + 7 + 8 * (n - 1)
        assert sorted(s.timings.n_cached for s in sequences) == [0, *[599] * 7]
    if in_turns:  # which threads come in time for a batch is the machine's affair
        assert len(batches) < 8 + 2 * n, "they were decoded together"
    assert texts == [alone(single, prompt, sampling, n) for sampling in samplings]


def test_a_branch_from_the_middle_of_a_text_under_way(tiny_path: Path, single: Engine) -> None:
    with load(tiny_path, n_seq_max=2, n_ctx=512) as engine:
        reader = engine.generate(text(200), endless(engine), None, 100)
        begun = [t for _ in range(10) for t in next(reader).tokens]
        branch = [*text(200), *begun[:8], 7, 8, 9]
        sequence = engine.prepare(branch, endless(engine), None, 30)
        assert [t for s in engine.read(sequence) for t in s.tokens] == alone(single, branch, endless(engine), 30)
        assert sequence.timings.n_cached == 208
        rest = [t for s in reader for t in s.tokens]
    assert begun + rest == alone(single, text(200), endless(single), 100)


def test_prompts_that_begin_alike_and_come_together_wait_for_the_first(tiny_path: Path) -> None:
    """As a server's conversations with one system prompt do when they all start at once."""
    shared = text(400)
    with load(tiny_path, n_seq_max=6) as engine, watched(engine) as batches, ThreadPoolExecutor(6) as pool:
        jobs = [[*shared, *text(20 + i, seed=i + 1)] for i in range(6)]
        list(pool.map(lambda job: run(engine, job, endless(engine), 5), jobs))
    assert n_decoded(batches) == 400 + sum(20 + i for i in range(6)) + 6 * 4


def test_a_new_conversation_leaves_another_one_its_cache(tiny_path: Path) -> None:
    """Regression: it took the slot whose beginning it shared, and threw the rest of that conversation away."""
    with load(tiny_path, n_seq_max=3) as engine:
        first = [*text(100), *text(300, seed=1)]
        first += run(engine, first, endless(engine), 10)
        other = engine.prepare([*text(100), 5, 6], endless(engine), None, 10)
        list(engine.read(other))
        again = engine.prepare([*first, 7], endless(engine), None, 1)
        list(engine.read(again))
    assert (other.timings.n_cached, again.timings.n_cached) == (100, len(first) - 1)


def test_conversations_that_go_on_another_way_are_each_as_alone(tiny_path: Path, single: Engine) -> None:
    """Regression: each left the cells of its old reply free, and in the next round went on in another's, in front of
    its own beginning; the sums of attention then came in another order."""
    with load(tiny_path, n_seq_max=3) as engine, ThreadPoolExecutor(3) as pool:
        jobs = [(text(30, seed=i), endless(engine, temperature=1.0, seed=i), 40) for i in range(3)]
        expected = [alone(single, *job) for job in jobs]
        for _ in range(4):
            assert list(pool.map(lambda job: run(engine, *job), jobs)) == expected


# -- fairness ---------------------------------------------------------------------------------------------------------


def test_a_long_prompt_stands_beside_others_in_bounded_pieces(tiny_path: Path) -> None:
    """Every batch of its computing also holds a token of each of the others."""
    with load(tiny_path, n_seq_max=4, n_batch=64, n_ubatch=64, n_ctx=4096) as engine:
        others = [engine.generate([i + 1], endless(engine), None, 400) for i in range(3)]
        for other in others:
            next(other)
        prompt, done = text(1500), threading.Event()

        def talk(other: Any) -> int:
            n = 0
            while not done.is_set() and next(other, None):
                n += 1
            return n

        with watched(engine) as batches, ThreadPoolExecutor(3) as pool:
            told = [pool.submit(talk, other) for other in others]
            assert len(run(engine, prompt, endless(engine), 2)) == 2
            done.set()
            assert all(n.result() > 10 for n in told)
    prefill = [batch for batch in batches if any(len(tokens) > FEW for _, _, tokens, _ in batch)]
    assert len(prefill) >= 1500 // 64
    for batch in prefill:
        lengths = sorted(len(tokens) for _, _, tokens, _ in batch)
        assert lengths[-1] <= 64 - 3
        # A reader in a thread may lag behind by its sixteen steps; whoever is not behind takes part.
    assert sum(len(batch) == 4 for batch in prefill) > len(prefill) / 2


def test_more_than_fit_are_served_in_order_of_arrival(tiny_path: Path) -> None:
    with load(tiny_path, n_seq_max=2) as engine:
        first: list[int] = []
        sequences = [engine.prepare([i + 1], endless(engine), None, 20) for i in range(12)]

        def watch(i: int) -> Any:
            def note(step: Any) -> list[int]:
                if i not in first:
                    first.append(i)
                return []

            return note

        for i, sequence in enumerate(sequences):
            sequence.watch = watch(i)
        with ThreadPoolExecutor(12) as pool:
            texts = list(pool.map(lambda s: [t for step in engine.read(s) for t in step.tokens], sequences))
        assert [len(t) for t in texts] == [20] * 12
        arrived = sorted(range(12), key=lambda i: sequences[i].arrival)
    assert first == arrived


# -- room -------------------------------------------------------------------------------------------------------------


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), n_ctx=st.sampled_from([256, 512, 768]), n_seq_max=st.sampled_from([2, 3, 8]))
def test_whatever_does_not_fit_waits_and_is_as_alone(
    tiny_path: Path, single: Engine, seed: int, n_ctx: int, n_seq_max: int
) -> None:
    """Generations that together outgrow the context: the last to come make room, and are computed again.

    Regression: they went on in whatever holes others had left, in front of their own beginnings, and attention summed
    in another order; in 8 of 60 some logit parted in its last bits.
    """
    rng = random.Random(seed)
    jobs: list[Any] = []
    for i in range(10):
        prompt = [*text(rng.choice([0, 60])), *text(rng.randint(1, 100), seed=seed + i)]
        n = rng.randint(1, min(250, n_ctx - len(prompt)))
        jobs.append((prompt, endless(single, temperature=1.0, seed=i), None, n))
    with (
        load(tiny_path, n_ctx=n_ctx, n_seq_max=n_seq_max) as engine,
        ThreadPoolExecutor(10) as pool,
        recorded(engine) as crowd,
    ):
        sequences = [engine.prepare(*job) for job in jobs]
        texts = list(pool.map(lambda s: [t for step in engine.read(s) for t in step.tokens], sequences))
        assert not engine._scheduler.active and not engine._scheduler.waiting
    for job, tokens, recorder in zip(jobs, texts, crowd, strict=True):
        assert len(tokens) == job[3]
        single.clear_cache()
        with recorded(single, iter([tokens])) as own:
            list(single.read(single.prepare(*job)))
        assert compare([c.logits for c in recorder.choices], [c.logits for c in own[0].choices]).difference == 0


def test_short_replies_with_a_large_limit_run_together(tiny_path: Path) -> None:
    """Regression: each reserved all that its limit allowed, so that one ran at a time."""
    with load(tiny_path, n_ctx=2048, n_seq_max=4) as engine, watched(engine) as batches:
        readers = [engine.generate([i + 1], endless(engine), None, 2000) for i in range(4)]
        for _ in range(5):
            for reader in readers:
                next(reader)
        assert max(len(batch) for batch in batches) == 4


def test_memory_of_what_has_ended_gives_way_from_the_oldest(tiny_path: Path) -> None:
    with load(tiny_path, n_ctx=512, n_seq_max=4) as engine:
        talks = [text(100, seed=i) for i in range(4)]
        for talk in talks:
            run(engine, talk, endless(engine), 10)
        assert len(run(engine, text(150, seed=9), endless(engine), 10)) == 10
        kept = [len(talk) == max(slot.shared_with(talk) for slot in engine._slots) for talk in talks]
    assert kept == [False, True, True, True]


# -- who does not read any more ---------------------------------------------------------------------------------------


def test_a_place_is_free_again_however_its_reader_went(tiny_path: Path) -> None:
    """Closed, forgotten, died in its thread with the traceback kept, never read on."""
    with load(tiny_path, n_seq_max=2) as engine:
        keep: list[Any] = []

        def die() -> None:
            for step in engine.generate([9], endless(engine), None, 1900):
                raise LookupError(step)

        for i in range(6):
            closed = engine.generate([i], endless(engine), None, 1900)
            next(closed)
            closed.close()  # type: ignore[attr-defined]
            resting = engine.generate([i + 10], endless(engine), None, 1900)
            next(resting)
            keep.append(resting)
            with ThreadPoolExecutor(1) as pool:
                keep.append(pool.submit(die).exception())  # its traceback holds the generator
            assert len(run(engine, [i + 20], endless(engine), 100)) == 100


def test_who_leaves_in_the_middle_of_a_long_prompt_is_gone_at_once(tmp_path: Path) -> None:
    """The batch would take seconds; it ends within a layer, and what it left in the cache is forgotten."""
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path / "deep.gguf", None, n_layers=48, n_ctx=8192)

    class Enough(Exception):
        pass

    with load(path, n_ctx=8192, n_batch=8192, n_ubatch=512) as engine:
        engine._scheduler._pace.note(10**9, 1.0)  # the whole prompt in one batch
        before = run(engine, text(40), endless(engine), 5)
        began = threading.Event()
        decode = engine.context.decode
        outcomes: list[bool] = []

        def watching(runs: Runs) -> bool:
            began.set()
            outcomes.append(decode(runs))
            return outcomes[-1]

        engine.context.decode = watching  # type: ignore[method-assign]

        def check() -> None:
            if began.is_set():
                raise Enough

        with between_steps(check), pytest.raises(Enough):
            list(engine.generate(text(8000), endless(engine), None, 5))
        while not outcomes:
            time.sleep(0.01)
        assert outcomes == [False], "it was stopped"
        assert run(engine, text(40), endless(engine), 5) == before


def test_a_thousand_generations_leave_nothing_behind(tiny_path: Path) -> None:
    """Read to the end, closed early, or failing; from threads."""
    with load(tiny_path, n_seq_max=4, n_ctx=512) as engine:
        alive: weakref.WeakSet[Any] = weakref.WeakSet()

        def one(i: int) -> None:
            sequence = engine.prepare([i % 250 + 1, i % 13], endless(engine), None, 6)
            alive.add(sequence)
            if i % 7 == 0:
                sequence.watch = lambda step: 1 // 0
            try:
                for n, _ in enumerate(engine.read(sequence)):
                    if n == i % 5:
                        break
            except ZeroDivisionError:
                pass

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(1000)))
        run(engine, [1], endless(engine), 1)  # who has gone is noticed in the next step
        gc.collect()
        assert not alive
        assert not engine._scheduler.active and not engine._scheduler.waiting and not engine._signs
        assert sum(slot.busy for slot in engine._slots) <= 1
