"""What never changes a text: the cache, the batch, the neighbours, the reader's pace. Bit-equal on Q8_0 weights.

Under the settings of tests/support/exact.py. Under the default ones 2 of 12 greedy texts parted after 11 and 22 tokens
between a warm cache and a cold one.
C113 (a text that collapses into a loop) belongs to another issue.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laploop.engine import Engine, EngineConfig, Grammar, SamplingParams
from laploop.engine.drafting import Payoff

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
CALL = Grammar.json_schema(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "n": {"type": "integer"},
        },
        "required": ["city", "unit", "n"],
        "additionalProperties": False,
    }
)


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(**{"n_ctx": 1024, "n_threads": 1, **EXACT, **changes})


def run(
    engine: Engine, prompt: list[int], sampling: SamplingParams = GREEDY, grammar: Grammar | None = None, n: int = 24
) -> list[int]:
    return [t for step in engine.generate(prompt, sampling, grammar, n) for t in step.tokens]


def endless(engine: Engine, **changes: Any) -> SamplingParams:
    """Greedy, and the end is never chosen: the budget alone decides how long a text gets."""
    never = dict.fromkeys(engine.vocabulary.eog, -1e9)
    return SamplingParams(**{"temperature": 0, "logit_bias": never, **changes})


def prompts(engine: Engine, n: int, seed: int = 0) -> list[list[int]]:
    """Random prompts, some of which share a long beginning."""
    rng = random.Random(seed)
    shared = [rng.randrange(engine.vocabulary.n_tokens - 16) for _ in range(60)]
    return [
        shared[: rng.choice([0, 1, 30, 60])]
        + [rng.randrange(engine.vocabulary.n_tokens - 16) for _ in range(rng.randint(1, 40))]
        for _ in range(n)
    ]


@pytest.fixture(scope="module")
def alone(tiny_path: Path) -> Iterator[Callable[..., list[int]]]:
    """A run on an engine that remembers nothing. Nor does it draft, so that every law here is also one of drafts."""
    with Engine.load(tiny_path, config(draft_max=0)) as engine:

        def fresh(prompt: list[int], *args: Any, **kwargs: Any) -> list[int]:
            engine.clear_cache()
            return run(engine, prompt, *args, **kwargs)

        yield fresh


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("grammar", [None, CALL], ids=["free", "constrained"])
def test_a_warm_cache_changes_nothing(
    tiny_engine: Engine, alone: Callable[..., list[int]], sampling: SamplingParams, grammar: Grammar | None
) -> None:
    n_reused = 0
    for prompt in prompts(tiny_engine, 12):
        sequence = tiny_engine.prepare(prompt, sampling, grammar, 24)
        tokens = [t for step in tiny_engine.read(sequence) for t in step.tokens]
        assert tokens == alone(prompt, sampling, grammar)
        n_reused += sequence.timings.n_cached
    assert n_reused > 100


def test_going_on_where_a_generation_ended_reuses_all_of_it(
    tiny_engine: Engine, alone: Callable[..., list[int]]
) -> None:
    prompt = prompts(tiny_engine, 1, seed=3)[0]
    first = run(tiny_engine, prompt, SEEDED)
    sequence = tiny_engine.prepare([*prompt, *first, 65, 66], GREEDY, None, 8)
    following = [t for step in tiny_engine.read(sequence) for t in step.tokens]
    assert sequence.timings.n_cached == len(prompt) + len(first) - 1  # the last token chosen was never decoded
    assert following == alone([*prompt, *first, 65, 66], n=8)


@pytest.mark.parametrize(
    "changes", [{"n_batch": 16}, {"n_batch": 16, "n_ubatch": 4}, {"n_ubatch": 1}, {"n_seq_max": 4}]
)
def test_prompts_in_small_batches_change_nothing(
    tiny_path: Path, alone: Callable[..., list[int]], changes: dict[str, int]
) -> None:
    with Engine.load(tiny_path, config(**changes)) as engine:
        for prompt in prompts(engine, 6, seed=1):
            assert run(engine, prompt, SEEDED) == alone(prompt, SEEDED)


def test_batched_is_single(tiny_path: Path, alone: Callable[..., list[int]]) -> None:
    """Four threads on four slots, more prompts than slots: each text is that of its prompt alone."""
    with Engine.load(tiny_path, config(n_seq_max=4, n_ctx=2048)) as engine:
        jobs = [
            (p, SEEDED if i % 2 else GREEDY, CALL if i % 3 == 0 else None) for i, p in enumerate(prompts(engine, 16))
        ]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda job: run(engine, *job), jobs))
    assert together == [alone(*job) for job in jobs]


def test_more_callers_than_slots_wait_and_finish(tiny_path: Path, alone: Callable[..., list[int]]) -> None:
    with Engine.load(tiny_path, config(n_ctx=256)) as engine, ThreadPoolExecutor(8) as pool:
        asked = prompts(engine, 16, seed=2)
        assert list(pool.map(lambda p: run(engine, p), asked)) == [alone(p) for p in asked]


def test_prompts_that_fill_the_cache_wait_for_room(tiny_path: Path) -> None:
    """Two that fit only one after the other, on four slots."""
    with Engine.load(tiny_path, config(n_ctx=256, n_seq_max=4)) as engine, ThreadPoolExecutor(4) as pool:
        asked = [[i + 1] * 180 for i in range(6)]
        assert [len(t) for t in pool.map(lambda p: run(engine, p, endless(engine), n=60), asked)] == [60] * 6


# -- jump-forward ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step_by_step(tiny_path: Path) -> Iterator[Engine]:
    with Engine.load(tiny_path, config(jump_forward=False, draft_max=0)) as engine:
        yield engine


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_jump_forward_gives_texts_of_the_same_language(tiny_engine: Engine, step_by_step: Engine, seed: int) -> None:
    """Forced text may be split into other tokens than a model would have sampled, and what follows may then differ.
    Whatever is chosen, both texts are whole matches; and it takes fewer steps."""
    prompt, sampling = prompts(tiny_engine, 1, seed)[0], SamplingParams(temperature=1.5, seed=seed)
    texts, steps = [], []
    for engine in (tiny_engine, step_by_step):
        sequence = engine.prepare(prompt, sampling, CALL, 100)
        texts.append(b"".join(step.text for step in engine.read(sequence)).decode("utf-8"))
        steps.append(sequence.timings.n_steps / sequence.n_generated)
    assert all(CALL.accepts(text) for text in texts)
    assert steps[0] < steps[1] == 1


def test_jump_forward_changes_no_text_that_is_forced_throughout(tiny_engine: Engine, step_by_step: Engine) -> None:
    """The law of "jump-forward on = off": where the grammar leaves one choice, it is the text that sampling gives."""
    forced = Grammar.json_schema({"const": {"city": "東京", "list": [1, 2.5, None], "text": 'a \\ " b'}})
    texts = {engine.detokenize(run(engine, [65], GREEDY, forced, 200)) for engine in (tiny_engine, step_by_step)}
    assert len(texts) == 1 and forced.accepts(texts.pop())


def test_jump_forward_agrees_greedily_where_forced_text_splits_as_the_model_splits_it(
    tiny_engine: Engine, step_by_step: Engine
) -> None:
    """Choices of one byte, with a closing brace of one byte behind: there is one way to split each forced run."""
    bits = Grammar('start: "(" BIT "," BIT "," BIT ")"\nBIT: /[01]/\n')
    for prompt in prompts(tiny_engine, 10, seed=4):
        assert run(tiny_engine, prompt, GREEDY, bits) == run(step_by_step, prompt, GREEDY, bits)


# -- drafts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, SamplingParams(temperature=0.7, top_k=5, seed=3)])
@pytest.mark.parametrize("grammar", [None, CALL], ids=["free", "constrained"])
@pytest.mark.parametrize("most", [1, 3, 8, 40])
def test_drafts_change_nothing(
    tiny_path: Path, alone: Callable[..., list[int]], sampling: SamplingParams, grammar: Grammar | None, most: int
) -> None:
    """Each drafted token counts only if it is the one that is chosen; with a seed that holds for chance too, since a
    wrong draft costs no draw. A random model repeats itself soon when it is greedy: there the drafts come true."""
    n_drafted = n_accepted = 0
    with Engine.load(tiny_path, config(draft_max=most)) as engine:
        for prompt in prompts(engine, 8, seed=5):
            repeating = prompt * 3
            sequence = engine.prepare(repeating, sampling, grammar, 60)
            tokens = [t for step in engine.read(sequence) for t in step.tokens]
            assert tokens == alone(repeating, sampling, grammar, 60)
            n_drafted += sequence.timings.n_drafted
            n_accepted += sequence.timings.n_accepted
            assert sequence.timings.n_steps + sequence.timings.n_accepted <= sequence.n_generated + 1
    assert n_accepted <= n_drafted
    if sampling is GREEDY and not grammar:
        assert n_accepted


def test_a_draft_that_came_true_saves_decodes(tiny_path: Path) -> None:
    """Greedy and without an end, the tiny model soon writes what it wrote before."""
    with Engine.load(tiny_path, config(draft_max=8)) as engine:
        sequence = engine.prepare([65, 66, 67], endless(engine), None, 200)
        tokens = [t for step in engine.read(sequence) for t in step.tokens]
    assert len(tokens) == 200 and sequence.timings.n_accepted > 10
    assert sequence.timings.n_steps == 200 - sequence.timings.n_accepted


def test_drafts_end_with_a_reply_in_the_middle_of_them(tiny_path: Path, alone: Callable[..., list[int]]) -> None:
    """The end of the budget, and a watch that stops, inside a draft; what follows finds a right cache."""
    with Engine.load(tiny_path, config(draft_max=8)) as engine:
        for n in range(40, 60):
            assert run(engine, [65, 66, 67], endless(engine), n=n) == alone([65, 66, 67], endless(engine), n=n)
            sequence = engine.prepare([65, 66, 67], endless(engine), None, 100)
            seen: list[int] = []

            def watch(step: Any, sequence: Any = sequence, seen: list[int] = seen, n: int = n) -> list[int]:
                seen.extend(step.tokens)
                if len(seen) >= n:
                    sequence.stop()
                return []

            sequence.watch = watch
            tokens = [t for step in engine.read(sequence) for t in step.tokens]
            assert tokens == seen == alone([65, 66, 67], endless(engine), n=n)
            after = [65, 66, 67, *tokens, 90, 91]
            assert run(engine, after, SEEDED) == alone(after, SEEDED)


def test_drafts_that_do_not_pay_end() -> None:
    """A machine on which a batch costs what its tokens cost one by one."""
    payoff = Payoff()
    for _ in range(30):
        payoff.begin(1.0, drafted=False)
        payoff.end(1)
        payoff.begin(5.0, drafted=True)
        payoff.end(3)
    assert not payoff.pays
    cheap = Payoff()
    for _ in range(30):
        cheap.begin(1.0, drafted=False)
        cheap.end(1)
        cheap.begin(2.0, drafted=True)
        cheap.end(3)
    assert cheap.pays


# -- probabilities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", [None, CALL], ids=["free", "constrained"])
def test_logprobs_are_those_of_the_models_own_distribution(tiny_path: Path, grammar: Grammar | None) -> None:
    """Summing over all tokens gives 1; the best token of a greedy free text is the one that is chosen; asking for them
    changes no token where nothing is forced into other tokens."""
    with Engine.load(tiny_path, config(jump_forward=False)) as engine:
        n_vocab = engine.vocabulary.n_tokens
        for sampling in (GREEDY, SEEDED):
            asked = dataclasses.replace(sampling, n_logprobs=n_vocab)
            steps = list(engine.generate([65, 66], asked, grammar, 30))
            assert [t for s in steps for t in s.tokens] == run(engine, [65, 66], sampling, grammar, 30)
            for step in steps:
                assert [p.token for p in step.logprobs] == list(step.tokens)
                for p in step.logprobs:
                    if p.top:
                        assert abs(sum(math.exp(v) for _, v in p.top) - 1) < 1e-4
                        assert dict(p.top)[p.token] == pytest.approx(p.logprob, abs=1e-5)
                        assert [v for _, v in p.top] == sorted((v for _, v in p.top), reverse=True)
                        if sampling is GREEDY and not grammar:
                            assert p.top[0][0] == p.token


def test_without_asking_there_are_no_logprobs(tiny_engine: Engine) -> None:
    assert all(step.logprobs == () for step in tiny_engine.generate([65, 66], GREEDY, None, 5))
    steps = list(tiny_engine.generate([65, 66], SamplingParams(temperature=0, n_logprobs=0), None, 5))
    assert all(p.top == () and p.logprob < 0 for step in steps for p in step.logprobs)


# -- readers ----------------------------------------------------------------------------------------------------------


def test_an_abandoned_generator_frees_its_slot(tiny_engine: Engine) -> None:
    for close in (lambda g: g.close(), lambda g: None):
        generator = tiny_engine.generate([65, 66], endless(tiny_engine), None, 500)
        next(generator)
        close(generator)
        del generator
        assert len(run(tiny_engine, [67], endless(tiny_engine), n=5)) == 5
    assert not tiny_engine._scheduler.active


def test_a_generator_that_was_never_started_holds_nothing(tiny_engine: Engine) -> None:
    """Regression: it was queued at the call, given a slot by the next caller's step, and held it for ever."""
    kept = [tiny_engine.generate([65, i], GREEDY, None, 500) for i in range(3)]
    assert len(run(tiny_engine, [67], endless(tiny_engine), n=40)) == 40
    assert len(kept) == 3 and not tiny_engine._scheduler.waiting


def test_a_second_generation_inside_the_first_one(tiny_engine: Engine, alone: Callable[..., list[int]]) -> None:
    """Regression: with one slot, who generated while reading another generation waited for ever."""
    outer, inner = [], []
    for step in tiny_engine.generate([65, 66, 67], GREEDY, None, 60):
        outer += step.tokens
        if len(inner) < 3:
            inner.append(run(tiny_engine, [70 + len(inner)], n=30))
    assert outer == alone([65, 66, 67], n=60)
    assert inner == [alone([70 + i], n=30) for i in range(3)]


def test_a_reader_who_rests_holds_nobody_up(tiny_path: Path) -> None:
    with Engine.load(tiny_path, config(n_seq_max=2)) as engine:
        slow = engine.generate([65], endless(engine), None, 300)
        first = next(slow).tokens
        assert len(run(engine, [66], endless(engine), n=300)) == 300
        assert len([*first, *(t for step in slow for t in step.tokens)]) == 300


def test_collecting_a_generator_inside_anothers_step_does_not_deadlock(tiny_path: Path) -> None:
    """A generator in a reference cycle is closed by the garbage collector, which may run in any thread at any time."""
    with Engine.load(tiny_path, config(n_seq_max=2)) as engine:

        class Holder:
            def __init__(self) -> None:
                self.generator = engine.generate([65, 66], endless(engine), None, 400)
                self.me = self
                next(self.generator)

        done = threading.Event()

        def collect_all_the_time() -> None:
            while not done.is_set():
                gc.collect(0)

        gc_was = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        collector = threading.Thread(target=collect_all_the_time)
        collector.start()
        try:
            for i in range(8):
                Holder()
                assert len(run(engine, [67 + i], endless(engine), n=10)) == 10
        finally:
            done.set()
            collector.join()
            gc.set_threshold(*gc_was)


def test_the_last_step_is_never_lost_between_threads(tiny_path: Path) -> None:
    """Regression: the reason of the end was set before the last step was handed over; a reader in between missed it."""
    with Engine.load(tiny_path, config(n_seq_max=4)) as engine, ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            lengths = pool.map(lambda i: len(run(engine, [i + 1], endless(engine), n=i + 1)), range(8))
            assert list(lengths) == list(range(1, 9))


# -- watches ----------------------------------------------------------------------------------------------------------


def test_a_watch_decides_before_the_next_token_whoever_decodes(tiny_path: Path) -> None:
    """Regression: budgets were kept by readers, who may be 16 steps behind when others decode for them."""
    with Engine.load(tiny_path, config(n_seq_max=3)) as engine:
        cut = engine.tokenize(" cut ")

        def watched(i: int) -> list[int]:
            sequence = engine.prepare([i + 1], endless(engine, temperature=1.0, seed=7), None, 200)
            seen: list[int] = []

            def watch(step: Any) -> list[int]:
                seen.extend(step.tokens)
                if len(seen) == 9:
                    return cut
                if len(seen) == 9 + len(cut) + 3:
                    sequence.limit(2)  # 2 more
                return []

            sequence.watch = watch
            tokens = [t for step in engine.read(sequence) for t in step.tokens]
            assert sequence.finish_reason == "length" and tokens == seen == sequence.tokens[1:]
            return tokens

        single = [watched(i) for i in range(6)]
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(watched, range(6))) == single
    assert all(t[9 : 9 + len(cut)] == cut and len(t) == 9 + len(cut) + 5 for t in single)


def test_a_watch_that_fails_fails_its_own_reader_only(tiny_path: Path) -> None:
    with Engine.load(tiny_path, config(n_seq_max=2)) as engine:
        sequence = engine.prepare([65], GREEDY, None, 50)

        def watch(step: Any) -> list[int]:
            raise LookupError("no")

        sequence.watch = watch
        other = engine.generate([66], endless(engine), None, 30)
        first = next(other)
        with pytest.raises(LookupError):
            list(engine.read(sequence))
        assert len([*first.tokens, *(t for step in other for t in step.tokens)]) == 30
