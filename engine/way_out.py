"""The nearest place where a grammar lets a generation end, so that one that runs out of tokens is closed in time.

Mostly a greedy walk over single-byte tokens (about 0.2 ms); where that goes in circles, a search for the end of the
value at hand. It knows JSON's punctuation and nothing else of what the text means.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .vocabulary import Vocabulary

# The order in which bytes are tried: closers first, then the shortest values, openers last. Where a comma and a digit
# may follow, a number ends. 1 stands before 0: it is the commoner minimum, and a date of nothing but ones exists.
_CLOSERS = b'}]",1'
_OPENERS = b"{[\\"
_ORDER = _CLOSERS + bytes(c for c in b"\n" + bytes(range(32, 127)) if c not in _CLOSERS + _OPENERS) + _OPENERS
# Only where no byte above may follow: inside a character, or where a text begins with one.
_BEYOND_ASCII = bytes(range(128, 256))
_INSIDE = range(128, 192)  # the bytes of UTF-8 that are never the first of a character
_NUMERIC = frozenset(b"0123456789.-+eE")
_AFTER_NUMBER = frozenset(b",]}")
# Where only these may follow, a value has just ended.
_BETWEEN_VALUES = frozenset(b"}],: \n")
# JSON has this character only inside strings, where the first thing to close is the string.
_ONLY_IN_STRINGS = ord("~")

_MOST_TOKENS = 2048
_CIRCLING = 8  # choices without anything forced between them, from which on a search looks for the value's end
_MOST_TRIES = 4_000  # of a search; about 30 µs each
_MOST_TRIES_IN_NUMBER = 1_500
_MOST_BRANCHES = 16


class Alphabet:
    """The tokens that a way out is made of: one for each byte, and the marks.

    Args:
        vocabulary: the model's tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.of_byte: dict[int, int] = {}
        for token, raw in enumerate(vocabulary.token_bytes):
            if len(raw) == 1:
                self.of_byte.setdefault(raw[0], token)
                if len(self.of_byte) == 256:
                    break
        self.marks = sorted(t for t in vocabulary.special.values() if t not in vocabulary.eog)
        self.in_order = self._tokens_of(_ORDER)
        self._beyond_ascii = self._tokens_of(_BEYOND_ASCII)

    def _tokens_of(self, text: bytes) -> list[tuple[int, list[int]]]:
        return [(b, [self.of_byte[b]]) for b in text if b in self.of_byte]

    def allows(self, matcher: Any, byte: int) -> bool:
        """Whether `byte` may come next."""
        return byte in self.of_byte and bool(matcher.validate_tokens([self.of_byte[byte]]))

    def look(self, matcher: Any) -> _View:
        """What may come next."""
        allowed = matcher.validate_tokens
        found = bytes([b for b, token in self.in_order if allowed(token)])
        found = found or bytes([b for b, token in self._beyond_ascii if allowed(token)])
        return _View(found, tuple([t for t in self.marks if allowed([t])]))

    def first(self, matcher: Any, closers: Sequence[list[int]] = ()) -> list[int] | None:
        """The first token, in the order of trial, that may come next; or what closes a text, if it may."""
        allowed = matcher.validate_tokens
        for step in (*([mark] for mark in self.marks), *closers):
            if allowed(step) == len(step):
                return step
        if self.allows(matcher, _ONLY_IN_STRINGS) and self.allows(matcher, ord('"')):
            return [self.of_byte[ord('"')]]
        return next((t for _, t in [*self.in_order, *self._beyond_ascii] if allowed(t)), None)


class _View(NamedTuple):
    """The bytes, in the order of trial, and the marks that may come next."""

    bytes: bytes
    marks: tuple[int, ...]

    @property
    def between_values(self) -> bool:
        return bool(self.bytes) and _BETWEEN_VALUES.issuperset(self.bytes)

    @property
    def ends_number(self) -> bool:
        """Whether a number may go on here or end."""
        return (_NUMERIC | _AFTER_NUMBER).issuperset(self.bytes)

    @property
    def may_end_number(self) -> bool:
        """Whether a number may end here."""
        return self.ends_number and bool(_AFTER_NUMBER.intersection(self.bytes))

    @property
    def in_number(self) -> bool:
        return bool(self.bytes) and _NUMERIC.issuperset(self.bytes)


class _Place(NamedTuple):
    """A matcher, and the tokens that led it there."""

    matcher: Any
    path: list[int]


class Known(dict[_View, list[int]]):
    """What may follow at the start of a value → tokens that ended such a value once, in one grammar.

    Args:
        endings: tokens of texts that may end a value, such as the ends of one that matches a pattern.
        closers: tokens of what ends a text without quotation marks; taken wherever they may stand.
    """

    def __init__(self, endings: Sequence[list[int]] = (), closers: Sequence[list[int]] = ()) -> None:
        super().__init__()
        self.endings = [*closers, *endings]
        self.closers = closers


def find_way_out(
    matcher: Any, alphabet: Alphabet, known: Known | None = None, *, thorough: bool = False
) -> list[int] | None:
    """A short sequence of tokens from a matcher's place to one where the generation may end; None if none is found.

    Short, not always shortest: each value is ended in a short way, one after another.

    Args:
        matcher: an llguidance matcher; it is left where it is.
        alphabet: the vocabulary's.
        known: what helps in this grammar; remembers what searches found, for the next call.
        thorough: where the way forks first (which tool, think or not), follow each branch and take the shortest.
    """
    known = Known() if known is None else known
    here = _Place(matcher.deep_copy(), [])
    if not _finish_character(here, alphabet):
        return None
    if thorough:
        return _shortest(here, alphabet, known)
    start, n_choices, rut = here, 0, None
    while len(here.path) <= _MOST_TOKENS:
        n_before = len(here.path)
        if not _follow(here, alphabet):
            return None
        if here.matcher.is_accepting():
            return here.path
        if len(here.path) > n_before or not n_choices:
            start, n_choices, rut = _Place(here.matcher.deep_copy(), list(here.path)), 0, None
        if n_choices == _CIRCLING and rut is None:
            if end := _end_of_value(start, alphabet, known):
                here, n_choices = end, 0
                continue
            rut = alphabet.look(here.matcher)  # every way leads back here: characters are being counted (minLength)
        elif rut is not None and n_choices > _CIRCLING and alphabet.look(here.matcher) != rut:
            start, n_choices, rut = _Place(here.matcher.deep_copy(), list(here.path)), 0, None
        step = alphabet.first(here.matcher, known.closers)
        if step is None or not here.matcher.consume_tokens(step):
            return None
        here.path.extend(step)
        n_choices += 1
    return None


def _shortest(start: _Place, alphabet: Alphabet, known: Known, n_forks: int = 3) -> list[int] | None:
    """The shortest of the ways that fork at the first fork, and at those behind marks."""
    if not _follow(start, alphabet):
        return None
    if start.matcher.is_accepting():
        return start.path
    ways = []
    for end in islice(_ends_of_value(start, alphabet, known), _MOST_BRANCHES):
        if end.path[-1] in alphabet.marks and n_forks:
            way = _shortest(end, alphabet, known, n_forks - 1)
        else:
            rest = find_way_out(end.matcher, alphabet, known)
            way = None if rest is None else end.path + rest
        if way is not None:
            ways.append(way)
    if (greedy := find_way_out(start.matcher, alphabet, known)) is not None:
        ways.append(start.path + greedy)
    return min(ways, key=len, default=None)


def forced_tokens(matcher: Any, alphabet: Alphabet) -> list[int]:
    """The tokens that must come next, at least one where a text is forced that is tokens by itself.

    llama.cpp's tokenizer makes a user-defined mark, such as <tool_call>, of its text wherever that stands. Where a
    grammar forces the text inside a string, it does not take the mark: the text's first byte comes alone then.
    """
    tokens = list(matcher.compute_ff_tokens())
    if not tokens or (n_good := matcher.validate_tokens(tokens)) == len(tokens):
        return tokens
    return tokens[:n_good] or [alphabet.of_byte[b] for b in matcher.compute_ff_bytes()[:1]]


def _finish_character(place: _Place, alphabet: Alphabet) -> bool:
    """Complete a character whose first bytes have come; False if the matcher fails.

    The places inside it look alike, so that a search would take the second for the first, and stop there.
    """
    matcher, path = place
    while (view := alphabet.look(matcher)).bytes and not view.marks and all(b in _INSIDE for b in view.bytes):
        token = alphabet.of_byte[view.bytes[0]]
        if not matcher.consume_tokens([token]):
            return False
        path.append(token)
    return True


def _follow(place: _Place, alphabet: Alphabet) -> bool:
    """Take what is forced; False if the matcher fails."""
    matcher, path = place
    while not matcher.is_accepting() and len(path) <= _MOST_TOKENS:
        # No tokens are forced where a longer one could begin with the forced text; then its bytes are.
        forced = forced_tokens(matcher, alphabet) or [alphabet.of_byte[b] for b in matcher.compute_ff_bytes()]
        if not forced:
            break
        if not matcher.consume_tokens(forced):
            return False
        path += forced
    return not matcher.is_error()


def _end_of_value(start: _Place, alphabet: Alphabet, known: Known) -> _Place | None:
    """The nearest end of the value at `start`, or one that ended a like value before."""
    view = alphabet.look(start.matcher)
    if steps := known.get(view):
        place = _Place(start.matcher.deep_copy(), [*start.path, *steps])
        if place.matcher.try_consume_tokens(steps) == len(steps) and (
            place.matcher.is_accepting() or alphabet.look(place.matcher).between_values
        ):
            return place
    end = next(_ends_of_value(start, alphabet, known), None)
    if end:
        known[view] = end.path[len(start.path) :]
    return end


def _ends_of_value(start: _Place, alphabet: Alphabet, known: Known) -> Iterator[_Place]:
    """Places right behind the value (or text, or mark) that `start` stands in, nearest first.

    Places where the same bytes may follow count as one. That is wrong in texts that have to match a pattern, for which
    the known endings are tried, and for numbers whose digits have to add up to something; they are searched once more
    without it.
    """
    view, found = alphabet.look(start.matcher), False
    for end in _search(start, view, alphabet, _MOST_TRIES, known.endings):
        found = True
        yield end
    if not found and view.in_number:
        yield from _search(start, view, alphabet, _MOST_TRIES_IN_NUMBER, merge=False)


def _search(
    start: _Place,
    view: _View,
    alphabet: Alphabet,
    n_most: int,
    endings: Sequence[list[int]] = (),
    *,
    merge: bool = True,
) -> Iterator[_Place]:
    number, n_tries, quote = count(), 0, alphabet.of_byte[ord('"')]
    after_number = {alphabet.of_byte.get(b) for b in _AFTER_NUMBER}
    # (tokens so far, whether it goes on, tie breaker, the place, what may follow there; None: it is an end)
    heap: list[tuple[int, bool, int, _Place, _View | None]] = [(0, True, next(number), start, view)]
    seen = {view}
    while heap and n_tries < n_most:
        *_, place, here = heapq.heappop(heap)
        if here is None:
            yield place
            continue
        steps = [[token] for token in (*here.marks, *(alphabet.of_byte[b] for b in here.bytes))]
        steps += [ending for ending in endings if place.matcher.validate_tokens(ending) == len(ending) > 1]
        for step in steps:
            n_tries += 1
            child = _Place(place.matcher.deep_copy(), [*place.path, *step])
            if not child.matcher.consume_tokens(step):
                continue
            there = alphabet.look(child.matcher)
            is_end = step[-1] in here.marks or (here.ends_number and len(step) == 1 and step[0] in after_number)
            is_end = is_end or child.matcher.is_accepting() or there.between_values or there.may_end_number
            if is_end and place is start:
                yield child  # nothing can be nearer
                continue
            if not is_end and child.matcher.compute_ff_bytes()[:1] == b'"':  # a text that can only be closed ends here
                child.matcher.consume_tokens([quote])
                child.path.append(quote)
                there = alphabet.look(child.matcher)
                is_end = child.matcher.is_accepting() or there.between_values
            if not is_end:
                if merge and there in seen:
                    continue
                if not _follow(child, alphabet):
                    continue
                seen.add(there)
                if len(child.path) > len(place.path) + len(step):  # by what is forced
                    there = alphabet.look(child.matcher)
                    is_end = child.matcher.is_accepting() or there.between_values
            heapq.heappush(heap, (len(child.path), not is_end, next(number), child, None if is_end else there))
