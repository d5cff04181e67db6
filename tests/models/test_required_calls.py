"""Whatever the model wants, a required call parses, validates and ends within its budget (issue 4, "Must show" 2)."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from laploop.engine import EngineConfig
from laploop.models import ChatModel, schema_report
from laploop.models.errors import RequestError

FOLDER = Path(__file__).parents[2] / "scripts" / "benchmarks"


@pytest.fixture(scope="module")
def required_calls() -> ModuleType:
    """scripts/benchmarks holds programs, not a package."""
    return _program("required_calls")


@pytest.fixture(scope="module")
def generated_schemas() -> ModuleType:
    return _program("generated_schemas")


@pytest.fixture(scope="module")
def roomy_chat(tiny_path: Path) -> Iterator[ChatModel]:
    """Some of the drawn schemas fill 2,000 tokens."""
    with ChatModel.load(tiny_path, config=EngineConfig(n_ctx=4096, n_threads=1)) as model:
        yield model


def _program(name: str) -> ModuleType:
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


def depth(schema: object) -> int:
    if isinstance(schema, dict):
        return int("properties" in schema) + max(map(depth, schema.values()), default=0)
    return max(map(depth, schema), default=0) if isinstance(schema, list) else 0


def test_the_schemas_are_many_and_deep(required_calls: ModuleType) -> None:
    assert len(required_calls.SCHEMAS) >= 20
    assert sum(depth(schema) > 3 for schema in required_calls.SCHEMAS.values()) >= 2


def test_the_generator_is_repeatable_and_uses_all_that_can_be_enforced(generated_schemas: ModuleType) -> None:
    schemas = generated_schemas.generated(60, seed=1)
    assert schemas == generated_schemas.generated(60, seed=1)
    used = {finding.keyword for schema in schemas.values() for finding in schema_report(schema)}
    assert used >= {
        "type", "enum", "const", "$ref", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
        "multipleOf", "items", "prefixItems", "minItems", "properties", "required", "additionalProperties",
        "patternProperties", "anyOf", "allOf", "oneOf",
    }  # fmt: skip
    assert max(map(depth, schemas.values())) >= 4


def test_five_hundred_required_calls_parse_and_validate(
    required_calls: ModuleType, generated_schemas: ModuleType, roomy_chat: ChatModel
) -> None:
    """A sample of scripts/benchmarks/generated_schemas.py. Found on the way: a matcher's greedy way out went in
    circles in e-mail addresses, URIs, thoughts, patterns and bounded numbers; a thinking budget that ran out inside a
    character ended the request; line feeds behind thoughts ate the answer's tokens; a call that filled its budget to
    the last token was called cut off; llguidance took 1 for an exclusive minimum of 1, and letters for \\W."""
    chosen, drawn = required_calls.SCHEMAS, generated_schemas.generated(100)
    outcomes = [
        *required_calls.run(roomy_chat, chosen, required_calls.plan(chosen, 150, seed=0)),
        *required_calls.run(roomy_chat, drawn, required_calls.plan(drawn, 350, seed=0)),
    ]
    assert [f"{o.schemas}: {o.fault}: {o.options}: {o.raw!r}" for o in outcomes if o.fault] == []
    made = [o for o in outcomes if o.finish_reason == "tool_calls"]
    assert sum(o.n_calls for o in made) >= 450
    assert {o.schemas[0] for o in made} >= {*chosen, *drawn}
    assert any(o.options["max_tokens"] == o.n_least for o in made)


@pytest.mark.parametrize("n_more", [-1, 0, 1])
def test_around_the_smallest_call_a_reply_is_valid_or_cut_and_says_so(
    required_calls: ModuleType, roomy_chat: ChatModel, n_more: int
) -> None:
    """The budget of exactly the smallest call is enough, with one token less the reply ends with "length"; never is
    something else called finished."""
    for i, name in enumerate(required_calls.SCHEMAS):
        tools = required_calls.tools_of(required_calls.SCHEMAS, (name,))
        most = required_calls.n_least(roomy_chat, tools, "required") + n_more
        options = {"tool_choice": "required", "parallel_tool_calls": False, "enable_thinking": False}
        planned = required_calls.Planned((name,), options, 0.0 if n_more >= 0 else -1.0)
        completion = roomy_chat.create(
            planned.messages, tools=tools, max_tokens=most, temperature=1.5, seed=i, **options
        )
        assert required_calls.check(completion, required_calls.SCHEMAS, planned) == "", (name, completion)
        assert completion["usage"]["completion_tokens"] <= most


def test_a_run_goes_on_where_it_stopped(generated_schemas: ModuleType, roomy_chat: ChatModel, tmp_path: Path) -> None:
    """Each request depends on the seed and its number alone."""
    schemas, state = generated_schemas.generated(5), tmp_path / "state.jsonl"
    first = list(generated_schemas.outcomes(roomy_chat, schemas, 3, 1.5, 0, state))
    both = list(generated_schemas.outcomes(roomy_chat, schemas, 6, 1.5, 0, state))
    assert len(first) == 3 and len(both) == 6
    whole = list(generated_schemas.outcomes(roomy_chat, schemas, 6, 1.5, 0))
    assert [(list(o.schemas), o.options) for o in both] == [(list(o.schemas), o.options) for o in whole]


@pytest.mark.parametrize("dialect", ["llama3", "mistral-v3", "mistral-v11", "qwen3-coder"])
def test_required_calls_of_other_families_parse_and_validate(
    required_calls: ModuleType, roomy_chat: ChatModel, dialect: str
) -> None:
    """The same in other spellings. Found on the way: where texts have no quotation marks, the way out did not find
    their end."""
    chosen = required_calls.SCHEMAS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some think, some do not
        model = ChatModel(roomy_chat.engine, "tiny", dialect)
        outcomes = list(required_calls.run(model, chosen, required_calls.plan(chosen, 30, seed=1)))
    assert [f"{o.schemas}: {o.fault}: {o.options}: {o.raw!r}" for o in outcomes if o.fault] == []


def test_required_calls_with_marked_texts_parse_and_validate(required_calls: ModuleType, tmp_path: Path) -> None:
    """Gemma's marks around texts are tokens of its vocabulary; without them no grammar could tell where a text ends."""
    from tiny_model import make_tiny_model

    template = (Path(__file__).parents[1] / "data" / "templates" / "google-gemma-4-31B-it.jinja").read_text("utf-8")
    marks = ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_response>", "<turn|>"]
    path = make_tiny_model(tmp_path / "tiny-gemma.gguf", template, more_marks=marks)
    chosen = required_calls.SCHEMAS
    with ChatModel.load(path, config=EngineConfig(n_ctx=4096, n_threads=1)) as model:
        assert model.dialect.name == "gemma4"
        outcomes = list(required_calls.run(model, chosen, required_calls.plan(chosen, 30, seed=1)))
    assert [f"{o.schemas}: {o.fault}: {o.options}: {o.raw!r}" for o in outcomes if o.fault] == []


def test_a_family_whose_marks_the_vocabulary_lacks_is_refused(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match=r'gemma4 needs a vocabulary with the token <\|"\|>'):
        ChatModel.load(tiny_path, dialect="gemma4")
