"""What is set for between the steps is called there, and ends the generation that it raises in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from laploop.engine import Engine, SamplingParams
from laploop.engine.between_steps import between_steps, wait_for

GREEDY = SamplingParams(temperature=0)


class Enough(Exception):
    pass


def after(n: int) -> tuple[list[int], Callable[[], None]]:
    """A list of its calls, and a check that raises at the n-th."""
    calls: list[int] = []

    def check() -> None:
        calls.append(len(calls))
        if len(calls) == n:
            raise Enough

    return calls, check


def given() -> SimpleQueue[None]:
    """The sign of a step that is over."""
    sign: SimpleQueue[None] = SimpleQueue()
    sign.put(None)
    return sign


def test_a_long_prompt_is_given_up_between_its_batches(tiny_engine: Engine) -> None:
    """Before the first token there is nothing to read, and a reader could not notice that he is late."""
    prompt = [7 * i % 200 for i in range(tiny_engine.context.n_batch + 100)]
    calls, check = after(1)
    generation = tiny_engine.prepare(prompt, GREEDY, max_tokens=4)
    with between_steps(check), pytest.raises(Enough):
        next(iter(tiny_engine.read(generation)))
    assert (calls, generation.n_generated, generation.abandoned) == ([0], 0, True)
    assert len(list(tiny_engine.generate([1, 2, 3], GREEDY, max_tokens=4))) > 0, "its place is free again"


def test_it_is_called_once_a_step_and_changes_nothing(tiny_engine: Engine) -> None:
    plain = [s.tokens for s in tiny_engine.generate([1, 2, 3], GREEDY, max_tokens=12)]
    calls, check = after(0)
    with between_steps(check):
        watched = [s.tokens for s in tiny_engine.generate([1, 2, 3], GREEDY, max_tokens=12)]
    assert watched == plain
    assert len(calls) >= len(plain)  # once more for each tenth of a second that a step takes
    n_calls = len(calls)
    wait_for(given())
    assert len(calls) == n_calls, "it holds inside the block only"


def test_it_is_each_threads_own() -> None:
    calls, check = after(0)
    with between_steps(check):
        thread = threading.Thread(target=wait_for, args=(given(),))
        thread.start()
        thread.join()
        assert calls == []
        wait_for(given())
    assert calls == [0]


def test_it_is_called_while_a_step_goes_on() -> None:
    """A step over a long prompt takes many seconds; who wants to leave does not wait for its end."""
    calls, check = after(2)
    with between_steps(check), pytest.raises(Enough):
        wait_for(SimpleQueue())  # nobody ever gives this sign
    assert calls == [0, 1]
