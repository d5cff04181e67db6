"""A template comes with a file that a stranger made: whatever it asks for, it gets little of the machine."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from laploop.models import ChatModel, render_prompt
from laploop.models.errors import TemplateError
from laploop.models.template import builtin_template, check_template
from tiny_model import make_tiny_model

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x" * 1000}]
LOOPS = "{% for i in range(99999) %}" * 3
BIG = "{% set big = 'ab' * 10**6 %}"
DOUBLED = "{% set ns = namespace(v=['a']) %}{% for i in range(60) %}{% set ns.v = V %}{% endfor %}"


def rendered(template: str) -> str:
    return str(render_prompt(template, MESSAGES))


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ 10**10 * [1] }}",
        "{{ 10**8 ** (10**8) }}",
        "{{ 2 ** (10**9) % 7 }}",
        "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        LOOPS + "{% endfor %}" * 3,
        LOOPS + "a" + "{% endfor %}" * 3,
        LOOPS + "{{ messages }}" + "{% endfor %}" * 3,
        "{% set x %}" + LOOPS + "a" * 1000 + "{% endfor %}" * 3 + "{% endset %}",
        "{% macro m(n) %}{% for i in range(99) %}{{ m(n) if n else '' }}{% endfor %}{% endmacro %}{{ m(1) }}",
        "{% for i in range(9999) recursive %}" + "a" * 1000 + "{{ loop(range(99999)) }}{% endfor %}",
        DOUBLED.replace("V", "ns.v + ns.v"),
        DOUBLED.replace("V", "ns.v ~ ns.v"),
        DOUBLED.replace("V", "[ns.v, ns.v]") + "{{ ns.v }}",
        DOUBLED.replace("V", "(ns.v, ns.v)") + "{{ ns.v|tojson }}",
        DOUBLED.replace("V", "{1: ns.v, 2: ns.v}") + "{{ ns.v == ns.v }}",
        DOUBLED.replace("V", "dict(a=ns.v, b=ns.v)") + "{{ ns.v }}",
        DOUBLED.replace("V", "cycler(ns.v, ns.v).items") + "{{ ns.v }}",
        "{% set ns = namespace(v=['a']) %}{% macro m() %}{% set ns.v = varargs %}{% endmacro %}"
        "{% for i in range(60) %}{{ m(ns.v, ns.v) }}{% endfor %}{{ ns.v }}",
        *["{{ 'a'|center(10**10) }}", "{{ 'a'|indent(10**10) }}", "{{ [1]|batch(10**10, 'x')|list }}"],
        *["{{ [1]|slice(10**9)|list }}", "{{ 5|round(-10**9) }}", "{{ 5.5|round(10**9, 'ceil') }}"],
        *["{{ 'a'.center(10**10) }}", "{{ 'a'.ljust(10**10) }}", "{{ 'a'.zfill(10**10) }}"],
        "{{ ('\\t' * 10**5).expandtabs(10**6) }}",
        BIG + "{{ big.replace('a', big) }}",
        BIG + "{{ big|replace('', big) }}",
        BIG + "{{ big.join(range(99999)|list) }}",
        BIG + "{{ range(99999)|join(big) }}",
        BIG + "{{ big.join(range(99999)|map('string')) }}",
        "{{ ('\\t' * 10**5).expandtabs(tabsize=10**6) }}",
        BIG + "{{ ([big] * 10**5)|join }}",
        BIG + "{{ ([big] * 10**5)|tojson }}",
        BIG + "{{ '{0}' * 500 }}{{ ('{0}' * 500).format(big) }}",
        BIG + "{{ ('%s' * 500) % ((big,) * 500) }}",
        BIG + "{{ ('%(a)s' * 500)|format(a=big) }}",
        *["{{ '{:10000000000}'.format(1) }}", "{{ '{:{w}}'.format(1, w=10**10) }}", "{{ '%10000000000d' % 1 }}"],
        *[
            "{{ '%*d' % (10**10, 1) }}",
            "{{ '%.10000000000f'|format(1) }}",
            "{{ '{a:>99999999999}'.format_map({'a': 1}) }}",
        ],
        BIG + "{{ big.rfind('b' * 10**6 ~ 'a') }}",
        BIG + "{{ big.strip('c' * 10**6) }}",
        BIG + "{{ big|trim('c' * 10**6) }}",
        BIG + "{{ big|tojson(indent=10**9) }}",
        "{{ messages|tojson(indent=10**9) }}",
        "{{ [1, 2]|tojson(separators=(',' * 10**6, ':')) }}",
        *["{{ 5 .to_bytes(10**10, 'big') }}", "{{ (5).to_bytes(10**10, 'big') }}", "{{ 'a'.encode().zfill(10**10) }}"],
        "{{ 'a'.translate({97: 'b' * 10**6}) }}",
        "{{ lipsum(n=10**9) }}",
        "{{ strftime_now('%Y' * 10**6) }}",
        "{% set ns = namespace() %}{% set ns.ns = ns %}{{ [ns.ns, dict(a=ns)] * 10**9 }}",
        "a" * 300_000,
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "9" * 5000 + " }}",
        "{{ 1 // 0 }}",
        "{{ 9.9 ** 9999 }}",
        "{% break %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{{ messages.x.y }}",
        "{{ messages|sort }}{{ [1, 'a']|sort }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{{ '{0.__class__}'.format(messages) + 1 }}",
        "{% for k in 5 %}{% endfor %}",
        "{{ 'x'|nofilter }}",
        "{{ range(10**6) }}",
    ],
    ids=lambda template: template[:60],
)
def test_what_asks_for_too_much_is_a_typed_error(template: str) -> None:
    """Regression: such templates took gigabytes or ran for ever, while they were compiled even; others ended in
    Python's own errors: RecursionError, ZeroDivisionError, SyntaxError, OverflowError."""
    with pytest.raises(TemplateError, match="chat template"):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'ab' * 3 }}{{ 2 ** 10 }}{{ [1] * 2 }}{{ 7 % 4 }}{{ 7 // 2 }}{{ 1.5 + 1 }}{{ 'a' + 'b' }}{{ [1] + [2] }}",
        "{{ 'a' ~ 1 ~ none ~ undefined ~ [1, 'b'] ~ true }}",
        "{% for a, b in [(1, 2), (3, 4)] %}{{ loop.length }}{{ loop.index }}{{ loop.last }}{{ a + b }}{% endfor %}",
        "{% for x in 'abc' if x != 'b' %}{{ loop.revindex }}{{ x }}{{ loop.nextitem }}{% else %}none{% endfor %}",
        "{% for x in undefined %}{{ x }}{% else %}none{% endfor %}",
        "{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else loop(x) }};{% endfor %}",
        "{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
        "{{ '%s-%03d' % ('a', 7) }}{{ '%(x)s'|format(x=1) }}{{ '{}{b}'.format(1, b=2) }}{{ '100%' }}",
        "{{ '%s' % {'a': 1} }}{{ '%s%%' % 5 }}{{ '%(a)s' % {'a': 1} }}{{ '{a:>4}'.format_map({'a': 1}) }}",
        "{{ {'a': 1}.items()|list }}{{ dict(a=1).get('a') }}{{ {'a': 1}|dictsort }}{{ {'a': 1}|items|list }}",
        "{{ ' a '|trim }}{{ 'xax'|trim('x') }}{{ 'a-b'.split('-')|join('+') }}{{ 'abab'|replace('a', 'c', 1) }}",
        "{{ [3, 1, 2]|sort|map('string')|join(',') }}{{ [{'a': 1}]|map(attribute='a')|join }}",
        "{{ [{'a': 1}, {'a': 2}]|join('-', attribute='a') }}{{ [{'a': 2}]|sum('a') }}{{ [1, 2]|sum }}",
        "{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent('> ', first=True) }}{{ 'a'|center(3) }}|",
        "{{ 2.567|round(1) }}{{ '7'|int + 1 }}{{ 'x'|int(3) }}{{ '1.5'|float }}{{ 5|string }}{{ -5|abs }}",
        "{{ '<a>'|safe }}{{ '<a>'|e }}{{ [1, 2, 3]|batch(2, 'x')|list }}{{ [1, 2, 3]|slice(2, 'x')|list }}",
        "{% macro m(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}"
        "{{ m(1) }}{{ m(1, c=2) }}{% call m(1, 2, 3) %}c{% endcall %}",
        "{% block a %}b{% endblock %}{{ self.a() }}{% filter upper %}c{% endfilter %}",
        "{% set x %}a{{ 1 }}{% endset %}{{ x }}{% if 'a' in x and x is string and (1, 2) == (1, 2) %}!{% endif %}",
        "{{ messages[0]['content'][:3] }}{{ messages[0].content.startswith('xx') }}{{ messages[::-1]|length }}",
        "{{ 'ÄÖ'.lower() }}{{ 'a'.removeprefix('a') or 'b' }}{{ 'a b'.title() }}{{ 'x'.isdigit() }}{{ 'a'.zfill(3) }}",
        "{% for i in '0123' %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{{ [1, 2, 3]|select('odd')|list }}{{ [{'a': 1}]|selectattr('a', 'equalto', 1)|list }}{{ [1, 1]|unique|list }}",
        "{{ [{'a': 1}]|groupby('a') }}{{ 'abc'|first }}{{ [1]|last }}{{ 'abc'|reverse }}{{ x|default('y') }}",
        "{% set a, b = (1, 2) %}{{ a }}{{ b }}{% with c = 3 %}{{ c }}{% endwith %}{{ cycler('a', 'b').next() }}",
        "  {% if true %}\n  x\n  {% endif %}\n{#- gone -#}\ny {%- raw %}{{ z }}{% endraw %}",
    ],
)
def test_what_templates_do_comes_out_as_in_jinja(template: str) -> None:
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    assert rendered(template) == plain.from_string(template).render(messages=MESSAGES)


def test_half_a_surrogate_pair_in_a_template_is_no_text() -> None:
    assert rendered("{{ '\\ud800' }}") == "\ufffd"


def test_a_long_conversation_is_no_attack() -> None:
    turns = [{"role": role, "content": f"{i} " + "word " * 400} for i in range(500) for role in ("user", "assistant")]
    assert len(str(render_prompt(builtin_template(), turns))) > 2_000_000


WORDS = """{{ }} {% %} for in if endif endfor set ns = namespace( ) ( [ ] , 'a' 1 10**9 * ** + ~ % | . x messages loop
range( join center( tojson sort map( format( {%- -%} not is defined else macro m endmacro {# #} "b" : { } items()"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=25))
def test_any_template_is_rendered_or_a_typed_error(parts: list[str]) -> None:
    try:
        rendered(" ".join(parts))
    except TemplateError as error:
        assert "chat template" in str(error)


@pytest.mark.parametrize("template", ["{{ 1 // 0 }}", "{{ 'a' * 10**10 }}", "{% break %}", "{{ messages[5].content }}"])
def test_a_template_that_always_fails_is_replaced_as_it_is_loaded(tmp_path: Path, template: str) -> None:
    """Regression: only what Jinja could not parse was replaced; these failed at every request."""
    path = make_tiny_model(tmp_path / "broken.gguf", template)
    with pytest.warns(UserWarning, match=r"broken\.gguf: the chat template .*built-in Qwen3 template") as caught:
        model = ChatModel.load(path)
    with model:
        assert len(caught) == 1 and model.template == builtin_template()


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('tools only') }}",
        "{{ messages[1].content.strip() }}",
        "{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[0].content }}",
        "{{ messages[0].content }}{{ unknown }}",
    ],
)
def test_a_template_that_is_choosy_is_kept(template: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_template(template)
