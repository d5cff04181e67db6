"""A tool's result within a budget of tokens: head and tail kept, JSON kept valid where it can be, the cut marked with
the original size. It knows texts, not tools or messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .tokens import TokenCounter

_MAX_JSON_CHARS = 5_000_000  # what is longer is not parsed: it would take a multiple of its size
_MIN_CHARS = 8  # of a string inside JSON
_HEAD = 2 / 3  # of what is kept


def share_budget(sizes: Sequence[int], per_item: int, total: int) -> list[int]:
    """A budget for each size: at most `per_item`, together at most `total`; the small leave the rest to the large."""
    budgets = [0] * len(sizes)
    left = total
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for n_done, i in enumerate(order):
        budgets[i] = min(sizes[i], per_item, left // (len(order) - n_done))
        left -= budgets[i]
    return budgets


def fit_results(texts: Sequence[str], counter: TokenCounter, per_result: int, per_round: int) -> list[str]:
    """The results of one round, each within its budget; those that fit are returned as they are."""
    if sum(4 * len(text) for text in texts) <= min(per_result, per_round):  # no token is shorter than a byte
        return list(texts)
    sizes = [per_result + 1 if counter.is_longer(t, per_result) else counter.of_text(t) for t in texts]
    budgets = share_budget(sizes, per_result, per_round)
    return [
        text if size <= budget else fit_text(text, budget, counter)
        for text, size, budget in zip(texts, sizes, budgets, strict=True)
    ]


def fit_text(text: str, budget: int, counter: TokenCounter) -> str:
    """The text if it takes at most `budget` tokens, else as much of it as does, marked."""
    if not counter.is_longer(text, budget):
        return text
    return _fit_json(text, budget, counter) or _fit_plain(text, budget, counter)


def _fit_plain(text: str, budget: int, counter: TokenCounter) -> str:
    low, high = 0, min(len(text) - 1, 16 * budget)
    while low < high:  # the most characters that fit
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if counter.is_longer(_cut(text, middle), budget) else (middle, high)
    return _cut(text, low)


def _cut(text: str, n_kept: int) -> str:
    n_head = int(n_kept * _HEAD)
    tail = text[len(text) - (n_kept - n_head) :]
    return f"{text[:n_head]}\n[… cut: {n_kept:,} of {len(text):,} characters shown …]\n{tail}"


def _fit_json(text: str, budget: int, counter: TokenCounter) -> str | None:
    """The value with long lists and strings cut inside, the mildest cut that fits; None if none does."""
    if not text[:1] or text[0] not in "[{" or len(text) > _MAX_JSON_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    n_chars = 8 * budget
    while n_chars >= _MIN_CHARS:
        shown = json.dumps(_shrunk(value, n_chars, max(1, n_chars // 16)), ensure_ascii=False)
        if not counter.is_longer(shown, budget):
            return shown
        n_chars = n_chars * 3 // 4
    return None


def _shrunk(value: Any, n_chars: int, n_items: int) -> Any:
    """The value with strings of at most about `n_chars` characters, lists and objects of at most `n_items` items."""
    if isinstance(value, str):
        if len(value) <= n_chars:
            return value
        n_head = int(n_chars * _HEAD)
        tail = value[len(value) - (n_chars - n_head) :]
        return f"{value[:n_head]}[… cut: {n_chars:,} of {len(value):,} characters …]{tail}"
    if isinstance(value, list):
        if len(value) <= n_items:
            return [_shrunk(item, n_chars, n_items) for item in value]
        n_head = max(1, int(n_items * _HEAD))
        n_tail = n_items - n_head
        mark = f"[… cut: {n_items:,} of {len(value):,} items shown …]"
        head = [_shrunk(item, n_chars, n_items) for item in value[:n_head]]
        return [*head, mark, *(_shrunk(item, n_chars, n_items) for item in value[len(value) - n_tail :])]
    if isinstance(value, dict):
        kept = list(value.items())[: max(n_items, 4)]
        cut = {key: _shrunk(item, n_chars, n_items) for key, item in kept}
        if len(kept) < len(value):
            cut["[… cut …]"] = f"{len(kept):,} of {len(value):,} keys shown"
        return cut
    return value
