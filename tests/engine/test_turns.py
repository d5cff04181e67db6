"""Whose tokens go into the next batch: nobody starves, nobody who needs one token waits for a long prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from laploop.engine.turns import FEW, Pace, share_out

PENDING = st.lists(st.integers(1, 5000), min_size=1, max_size=30)


def pace(tokens_per_s: float = 100) -> Pace:
    pace = Pace()
    pace.note(1000, 1000 / tokens_per_s)
    return pace


@given(pending=PENDING, n_most=st.integers(1, 600), speed=st.floats(1, 1e6))
def test_a_batch_is_neither_too_large_nor_empty(pending: list[int], n_most: int, speed: float) -> None:
    taken = share_out(pending, n_most, pace(speed))
    assert 1 <= sum(taken) <= n_most
    assert all(0 <= n <= most for n, most in zip(taken, pending, strict=True))


@given(pending=PENDING, speed=st.floats(1, 1e6))
def test_who_needs_few_tokens_is_in_every_batch(pending: list[int], speed: float) -> None:
    taken = share_out(pending, 2000, pace(speed))
    assert all(n == most for n, most in zip(taken, pending, strict=True) if most <= FEW)


@given(pending=PENDING, speed=st.floats(1, 1e6))
def test_beside_others_prompts_take_half_a_second_at_most(pending: list[int], speed: float) -> None:
    taken = share_out([1, *pending], 10_000, pace(speed))
    prompts = sum(n for n, most in zip(taken[1:], pending, strict=True) if most > FEW)
    assert prompts <= max(FEW, speed / 2)


@given(pending=st.lists(st.integers(FEW + 1, 5000), min_size=2, max_size=30), speed=st.floats(1, 1e6))
def test_the_prompt_that_waits_longest_gets_half(pending: list[int], speed: float) -> None:
    taken = share_out(pending, 512, pace(speed))
    assert taken[0] >= min(pending[0], sum(taken) / 2)


def test_a_short_question_does_not_wait_for_a_long_text() -> None:
    assert share_out([5000, 300, 40], 512, pace(100)) == [100, 60, 40]
    assert share_out([1, 5000, 300, 40], 512, pace(100)) == [1, 25, 0, 25]


def test_everybody_comes_to_the_end() -> None:
    """Also where short prompts come again and again."""
    pending, n_steps = [3000, 200, 200, 1], 0
    while pending[0]:
        taken = share_out([n for n in pending if n], 512, pace())
        shares = iter(taken)
        pending = [n - next(shares) if n else 0 for n in pending]
        pending[1:] = [n or fresh for n, fresh in zip(pending[1:], (200, 200, 1), strict=True)]
        n_steps += 1
    assert n_steps <= 3000 / 25


def test_the_first_batches_are_small_until_the_machine_is_known() -> None:
    assert share_out([5000], 512, Pace()) == [4 * FEW]
    assert share_out([5000, 1], 512, Pace()) == [FEW, 1]
    assert share_out([5000], 512, pace(10_000)) == [512]
