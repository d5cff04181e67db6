"""Long results within a budget: never longer, marked, JSON still JSON, the ends kept."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from laploop.agent.observation import fit_results, fit_text, share_budget
from laploop.agent.tokens import TokenCounter

ESTIMATE = TokenCounter(object())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=8), inner, max_size=12),
    max_leaves=60,
)


@given(st.text(max_size=4000), st.integers(20, 500))
def test_no_text_is_longer_than_its_budget_and_short_ones_stay(text: str, budget: int) -> None:
    shown = fit_text(text, budget, ESTIMATE)
    if ESTIMATE.of_text(text) <= budget:
        assert shown == text
    else:
        assert ESTIMATE.of_text(shown) <= budget
        assert f"of {len(text):,} characters" in shown


@given(st.text(alphabet="abcdefgh ", min_size=2000, max_size=4000), st.integers(100, 300))
def test_head_and_tail_are_kept(text: str, budget: int) -> None:
    shown = fit_text(text, budget, ESTIMATE)
    head, tail = shown.split("\n[… cut:")[0], shown.rsplit("…]\n", 1)[1]
    assert text.startswith(head) and text.endswith(tail)
    assert len(head) > len(tail) > 0
    assert len(shown) > 3 * budget, "most of the budget is used"


@given(JSON.filter(lambda v: isinstance(v, (list, dict))), st.integers(120, 400))
def test_json_stays_json_where_it_can(value: Any, budget: int) -> None:
    text = json.dumps(value, ensure_ascii=False)
    shown = fit_text(text, budget, ESTIMATE)
    assert ESTIMATE.of_text(shown) <= budget
    if shown == text or "characters shown …]\n" in shown:
        return
    assert isinstance(json.loads(shown), type(value))
    assert "cut" in shown


def test_long_lists_keep_their_ends_and_tell_their_length() -> None:
    text = json.dumps({"total": 1000, "rows": [{"id": n, "name": f"row {n}"} for n in range(1000)]})
    shown = json.loads(fit_text(text, 200, ESTIMATE))
    rows = shown["rows"]
    assert shown["total"] == 1000
    assert (rows[0]["id"], rows[-1]["id"]) == (0, 999)
    assert [r for r in rows if isinstance(r, str)] == [f"[… cut: {len(rows) - 1} of 1,000 items shown …]"]


def test_a_long_string_in_an_object_leaves_the_other_fields_whole() -> None:
    shown = json.loads(fit_text(json.dumps({"title": "A", "text": "word " * 5000, "url": "u"}), 200, ESTIMATE))
    assert (shown["title"], shown["url"]) == ("A", "u")
    assert "of 25,000 characters" in shown["text"]


@given(st.lists(st.integers(0, 1000), max_size=10), st.integers(1, 500), st.integers(1, 1500))
def test_budgets_are_shared_fairly(sizes: list[int], per_item: int, total: int) -> None:
    budgets = share_budget(sizes, per_item, total)
    assert sum(budgets) <= total
    assert all(b <= min(s, per_item) for b, s in zip(budgets, sizes, strict=True))
    if sum(min(s, per_item) for s in sizes) <= total:
        assert budgets == [min(s, per_item) for s in sizes]
    cut = [b for b, s in zip(budgets, sizes, strict=True) if b < min(s, per_item)]
    assert not cut or max(budgets) <= max(cut) + len(sizes), "who is cut has as much as anybody"


def test_the_results_of_a_round_share_its_budget() -> None:
    texts = ["short", "x" * 10_000, "y" * 10_000]
    shown = fit_results(texts, ESTIMATE, per_result=2000, per_round=1000)
    assert shown[0] == "short"
    assert sum(ESTIMATE.of_text(t) for t in shown) <= 1000
    assert all(ESTIMATE.of_text(t) > 400 for t in shown[1:])


def test_counts_of_the_model_are_used_where_it_has_them() -> None:
    class Words:
        """Counts words, and seven around each message."""

        n_ctx = 99

        def count_tokens(self, messages: list[dict[str, str]], tools: object = None) -> int:
            return sum(7 + len(m["content"].split()) for m in messages)

    counter = TokenCounter(Words())
    assert (counter.is_estimate, counter.n_ctx) == (False, 99)
    assert counter.of_text("three small words") == 3
    assert ESTIMATE.is_estimate and ESTIMATE.of_text("abcde") == 2
