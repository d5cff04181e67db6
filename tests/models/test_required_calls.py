"""Whatever the model wants, a required call parses, validates and ends within its budget (issue 2, "Must show" 4)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from laploop.models import ChatModel


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """scripts/benchmarks holds programs, not a package: loaded by its path."""
    path = Path(__file__).parents[2] / "scripts" / "benchmarks" / "required_calls.py"
    spec = importlib.util.spec_from_file_location("required_calls", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["required_calls"] = module
    spec.loader.exec_module(module)
    return module


def depth(schema: object) -> int:
    if isinstance(schema, dict):
        return int("properties" in schema) + max(map(depth, schema.values()), default=0)
    return max(map(depth, schema), default=0) if isinstance(schema, list) else 0


def test_the_schemas_are_many_and_deep(benchmark: ModuleType) -> None:
    assert len(benchmark.SCHEMAS) >= 20
    assert sum(depth(schema) > 3 for schema in benchmark.SCHEMAS.values()) >= 2


def test_five_hundred_required_calls_parse_and_validate(benchmark: ModuleType, tiny_chat: ChatModel) -> None:
    """Found on the way: a matcher's greedy way out went in circles in e-mail addresses, URIs and thoughts; a thinking
    budget that ran out inside a character ended the request; line feeds behind thoughts ate the answer's tokens."""
    outcomes = list(benchmark.run(tiny_chat, 500, temperature=1.5))
    assert [f"{o.schemas}: {o.fault}: {o.options}: {o.raw!r}" for o in outcomes if o.fault] == []
    made = [o for o in outcomes if o.finish_reason == "tool_calls"]
    assert sum(o.n_calls for o in made) >= 500
    assert {o.schemas[0] for o in made} == set(benchmark.SCHEMAS)
    assert any(o.options["max_tokens"] == o.n_least for o in made)
