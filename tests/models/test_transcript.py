"""A conversation's tokens are continued as they were sampled, and only as far as the text says the same."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from laploop.models import Prompt
from laploop.models.transcript import Transcripts

BOS = -1


def characters(pieces: Sequence[str], first: bool) -> list[int]:
    """A tokenizer that is easy to read: a token a character, a mark in front of a beginning, 0 for a whole "<m>"."""
    tokens = [BOS] if first else []
    for piece in pieces:
        head, *rest = piece.split("<m>")
        tokens += map(ord, head)
        for part in rest:
            tokens += [0, *map(ord, part)]
    return tokens


def test_sampled_tokens_are_kept() -> None:
    transcripts = Transcripts(characters)
    first = transcripts.tokens_of(Prompt(("ask",)))
    assert first == [BOS, *map(ord, "ask")]
    transcripts.remember(Prompt(("ask",)), "reply", [*first, 1000, 1001])
    assert transcripts.tokens_of(Prompt(("askreply, then",))) == [*first, 1000, 1001, *map(ord, ", then")]


def test_the_text_decides() -> None:
    """A template that renders a reply differently wins over the memory of what was sampled."""
    transcripts = Transcripts(characters)
    transcripts.remember(Prompt(("ask",)), "reply", [1, 2, 3])
    assert transcripts.tokens_of(Prompt(("askReply",))) == characters(["askReply"], True)


def test_a_mark_that_was_sampled_is_not_taken_for_text_that_looks_like_it() -> None:
    """The output held a real mark; the next rendering holds its text, cut. They are not the same."""
    transcripts = Transcripts(characters)
    transcripts.remember(Prompt(("ask",)), "<m>", [*characters(["ask"], True), 0])
    assert 0 not in transcripts.tokens_of(Prompt(("ask<", "m> and on")))
    assert transcripts.tokens_of(Prompt(("ask<m> and on",))).count(0) == 1


def test_the_longest_memory_wins() -> None:
    transcripts = Transcripts(characters)
    transcripts.remember(Prompt(("a",)), "b", [1])
    transcripts.remember(Prompt(("ab",)), "c", [1, 2])
    assert transcripts.tokens_of(Prompt(("abcd",))) == [1, 2, ord("d")]


def test_old_memories_are_dropped_and_those_seen_again_are_not() -> None:
    """Regression: a conversation that was remembered again kept its place in the queue, and was dropped as the oldest
    one."""
    transcripts = Transcripts(characters)
    transcripts.remember(Prompt(("first",)), "!", [1])
    for i in range(100):
        transcripts.remember(Prompt((f"{i}-",)), "!", [i])
        transcripts.remember(Prompt(("first",)), "!", [1])
    assert transcripts.tokens_of(Prompt(("first!",))) == [1]
    assert transcripts.tokens_of(Prompt(("0-!",))) == characters(["0-!"], True)
    assert len(transcripts._known) <= 64


@given(
    st.lists(st.sampled_from(["a", "b", "<m>", "<", "m>"]), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_tokens_say_what_the_prompt_says_however_it_was_cut(parts: list[str], i: int, j: int) -> None:
    """With memories of any two beginnings, the tokens are those of the prompt's pieces."""
    text = "".join(parts)
    transcripts = Transcripts(characters)
    for n in (n for n in {i, j} if n <= len(text)):
        if all(text[k : k + 3] != "<m>" for k in (n - 2, n - 1) if k >= 0):  # a reply does not end inside a mark
            transcripts.remember(Prompt((text[: n // 2],)), text[n // 2 : n], characters([text[:n]], True))
    assert transcripts.tokens_of(Prompt((text,))) == characters([text], True)
