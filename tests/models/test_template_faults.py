"""Templates that lose something, or cannot be used, are named by rendering a conversation with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from laploop.models.template import builtin_template
from laploop.models.template_faults import template_faults

QWEN25 = (Path(__file__).parents[1] / "data" / "qwen2.5.jinja").read_text("utf-8")
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CALLS = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
CALLS += "{% endfor %}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"


@pytest.mark.parametrize(
    "template", [builtin_template(), QWEN25, PLAIN, CALLS], ids=["qwen3", "qwen2.5", "plain", "calls"]
)
def test_templates_that_can_be_relied_on(template: str) -> None:
    assert template_faults(template) == []


NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
FAULTS = {
    "a family without a system message": (NO_SYSTEM, None),
    "does not compile": ("{% if %}", "cannot be used"),
    "refuses everything": ("{{ raise_exception('never') }}", "cannot be used"),
    "undefined": ("{{ functions.x }}", "cannot be used"),
    "no system": ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", "loses the system"),
    "no question": ("{{ messages[0].content }}", "loses the question"),
    "no results": (CALLS.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"), "loses the results"),
    "no calls": (CALLS.replace("m.tool_calls or []", "[]"), "loses the calls"),
    "no arguments": (CALLS.replace("c.function | tojson", "c.function.name"), "loses the calls' arguments"),
    "no tools": (CALLS.replace("{{ tool | tojson }}", ""), "loses the tools"),
    "twice": (
        CALLS.replace("c.function |", "{'n': c.function.name, 'a': c.function.arguments | tojson} |"),
        "escaped twice",
    ),
    "refuses calls": ("{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + PLAIN, "conversation with calls"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str) -> None:
    template, says = FAULTS[name]
    faults = template_faults(template)
    assert any(says in fault for fault in faults) if says else faults == []
