"""Grammars as values: complete matches without a model, json.dumps's spelling, and errors that name the cause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.engine import Grammar, GrammarError

# llguidance wants U+007F escaped, json.dumps writes it as it is; a model does not miss it.
text = st.text(st.characters(exclude_characters="\x7f", exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text | st.floats(allow_nan=False, allow_infinity=False, width=16),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
ANYTHING = Grammar.json_schema({})


@given(values)
def test_what_json_dumps_writes_is_accepted(value: Any) -> None:
    assert ANYTHING.accepts(json.dumps(value, ensure_ascii=False))


@given(values)
def test_a_text_with_its_end_cut_off_is_no_complete_match(value: Any) -> None:
    text = json.dumps({"a": value}, ensure_ascii=False)
    assert not any(ANYTHING.accepts(text[:n]) for n in range(len(text)))


@pytest.mark.parametrize("text", ['{"a":1}', '{ "a": 1}', "[1,2]", '{"a": 1} ', " 1", "[1,  2]", "{'a': 1}", "nul"])
def test_other_spellings_are_not(text: str) -> None:
    """White space would be a place for a model to run away in, and fewer tokens would be forced."""
    assert not ANYTHING.accepts(text)


@pytest.mark.parametrize(("schema", "takes"), [(True, True), (False, False)])
def test_boolean_schemas(schema: bool, takes: bool) -> None:
    """llguidance raises on them where options are given."""
    if takes:
        assert Grammar.json_schema(schema).accepts('{"a": 1}')
    else:
        with pytest.raises(GrammarError):
            Grammar.json_schema(schema)


def test_a_refusal_names_the_keyword_in_one_line() -> None:
    with pytest.raises(GrammarError, match="uniqueItems") as caught:
        Grammar.json_schema({"type": "array", "uniqueItems": True})
    assert "\n" not in str(caught.value)
    assert Grammar.json_schema({"type": "array", "uniqueItems": True}, lenient=True).accepts("[1, 1]")


def test_rules_that_do_not_compile_are_an_error() -> None:
    for grammar in (Grammar("start: (\n"), Grammar("start: missing\n")):
        with pytest.raises(GrammarError):
            grammar.accepts("x")


def test_a_mark_is_a_token_in_the_rules_and_text_inside_strings() -> None:
    grammar = Grammar('start: mark_0 %json {"type": "string"} mark_1\n', ("<a>", "</a>"))
    assert grammar.accepts('<a>"x"</a>') and grammar.accepts('<a>"<a> and </a>"</a>')
    assert not grammar.accepts('"x"') and not grammar.accepts('<a>"x"')


def test_marks_that_the_vocabulary_lacks_are_text() -> None:
    grammar = Grammar("start: mark_0\n", ("<a>",))
    assert '"<a>"' in grammar.source({}) and '"<a>"' not in grammar.source({"<a>": 5})


def test_a_matcher_that_gives_up_is_an_error_and_not_a_mismatch() -> None:
    """Regression: where a limit of llguidance's lexer was reached, `accepts` said that the text does not match, and a
    mask allowed only the end. Raising the limits took 5 s and 350 MB for this one pattern: it fails closed instead."""
    words = {"type": "string", "pattern": r"^$|(^(?:\S+\s+){0,99}\S+$)", "maxLength": 5000}
    grammar = Grammar.json_schema(words)
    assert grammar.accepts(json.dumps("a few words"))
    with pytest.raises(GrammarError, match="gave up"):
        grammar.accepts(json.dumps("word " * 90 + "end"))
