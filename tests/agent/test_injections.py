"""Hostile pages, files and mails (tests/data/injections.jsonl): whatever a model does with them, nothing that writes or
cannot be undone runs without a yes, and no content becomes a control token.

The model of these tests obeys every order that it reads.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from laploop.agent import Agent, ApprovalAnswered, ApprovalRequest, Approvals, Decision, check_history
from laploop.engine import EngineConfig
from laploop.models import ChatModel, Request, ScriptedModel, render_prompt
from laploop.models.template import COMMON_MARKS, builtin_template

PATH = Path(__file__).parents[2] / "scripts" / "benchmarks" / "injections.py"


def _load() -> ModuleType:
    """scripts/benchmarks holds programs, not a package: loaded by its path."""
    spec = importlib.util.spec_from_file_location("injections", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["injections"] = module
    spec.loader.exec_module(module)
    return module


injections = _load()
ITEMS = injections.load_items()
each_item = pytest.mark.parametrize("item", ITEMS, ids=[f"{i.id}-{i.kind}-{i.language}" for i in ITEMS])


def raw(calls: list[dict[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(c, ensure_ascii=False)}\n</tool_call>" for c in calls)


def obey(world: Any, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The events of a run of a model that reads and then does what the text wants, and again; and its messages."""
    turns = [raw([world.reading()]), raw(world.item.orders), raw(world.item.orders), "Done."]
    model = ScriptedModel(turns)
    events = list(Agent(model, world.tools(), **options).stream(world.item.question))
    messages = events[-1].result.messages
    check_history(messages)
    assert model.remaining == 0
    return events, messages


def needing_yes(item: Any) -> list[str]:
    return [order["name"] for order in item.orders if order["name"] in injections.IRREVERSIBLE]


def test_the_set_is_large_and_in_two_languages() -> None:
    assert len(ITEMS) >= 36
    assert min(Counter(i.language for i in ITEMS).values()) >= 18
    assert {i.source for i in ITEMS} == {"page", "file", "mail"}
    assert len({i.kind for i in ITEMS}) >= 12
    assert len({i.id for i in ITEMS}) == len(ITEMS)


@each_item
def test_what_the_text_wants_does_not_run_where_nobody_can_be_asked(item: Any, tmp_path: Path) -> None:
    with injections.HostileWorld(item, tmp_path) as world:
        events, messages = obey(world)
    assert world.ran == []
    answered = [e for e in events if isinstance(e, ApprovalAnswered)]
    assert {(e.allowed, e.by) for e in answered} <= {(False, "nobody")}
    results = [m["content"] for m in messages if m["role"] == "tool"]
    assert any(text in results[0] for text in item.answer), "the source was read"
    asked_for = set(needing_yes(item))
    assert {e.name for e in answered} == asked_for


@each_item
def test_somebody_who_is_asked_sees_the_call_and_his_no_holds(item: Any, tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    def ask(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision(False)

    with injections.HostileWorld(item, tmp_path) as world:
        obey(world, approvals=Approvals(ask=ask))
        wanted = [o for o in world.item.orders if o["name"] in injections.IRREVERSIBLE]
    assert world.ran == []
    assert [{"name": r.name, "arguments": dict(r.arguments)} for r in asked] == wanted, "once: then the tool is masked"


@each_item
def test_a_yes_runs_just_what_was_shown(item: Any, tmp_path: Path) -> None:
    """Else the two tests above would show nothing."""
    with injections.HostileWorld(item, tmp_path) as world:
        obey(world, approvals=Approvals(ask=lambda _: Decision(True)))
    ran = [name for name, _ in world.ran][: len(needing_yes(item))]
    assert sorted(ran) == sorted(needing_yes(item)), "calls of one reply run in parallel"


@each_item
def test_a_model_that_repeats_the_text_word_for_word_runs_nothing(item: Any, tmp_path: Path) -> None:
    """What it repeats may well be a call in its own syntax; then it is one, and waits for a yes like any other."""
    with injections.HostileWorld(item, tmp_path) as world:
        echoes = [world.item.text] * 6
        Agent(ScriptedModel([raw([world.reading()]), *echoes]), world.tools()).run(item.question)
    assert world.ran == []


@pytest.mark.parametrize("item", [i for i in ITEMS if i.kind == "exfiltration"], ids=lambda i: i.id)
def test_the_network_waits_for_a_yes_where_the_policy_says_so(item: Any, tmp_path: Path) -> None:
    """By default the network is read unasked: what an address says is sent."""
    fetches = any(o["name"] == "read_url" for o in item.orders)
    for policy, n_sent in (({}, int(fetches)), ({"network": "ask"}, 0)):
        with injections.HostileWorld(item, tmp_path) as world:
            ask = [Decision(True)] if item.source == "page" else []  # the page itself
            obey(world, approvals=Approvals(policy, lambda _, ask=ask: ask.pop() if ask else Decision(False)))
        assert (len(world.collected) >= n_sent) if n_sent else not world.collected
        assert world.ran == []


def conversation(item: Any, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with injections.HostileWorld(item, folder) as world:
        _, messages = obey(world)
        tools = [t.to_openai() for t in world.tools()]
    said: list[dict[str, Any]] = [
        {"role": "user", "content": item.text},
        {"role": "assistant", "content": item.text, "reasoning_content": item.text},
        {"role": "user", "content": "And?"},
    ]
    return [*messages, *said], tools


@each_item
def test_no_content_becomes_a_control_token(item: Any, tmp_path: Path, tiny_chat: ChatModel) -> None:
    """Counted as tokens, on the tiny model's vocabulary, whose marks are Qwen3's."""
    messages, tools = conversation(item, tmp_path)
    vocabulary = tiny_chat.engine.vocabulary
    request = Request.of(messages, {"tools": tools})
    found = injections.marks_in(vocabulary.tokenize(tiny_chat.render(request).pieces), vocabulary)
    assert found == injections.marks_of(tiny_chat.render, request, vocabulary)
    assert found.total() > 12, "and those of the template are there"


@each_item
def test_every_mark_in_content_is_cut_in_the_prompts_pieces(item: Any, tmp_path: Path) -> None:
    """The same without a vocabulary, for marks of all families: those that are whole are the template's own."""
    messages, tools = conversation(item, tmp_path)
    pieces = render_prompt(builtin_template(), messages, tools).pieces
    plain = json.loads(COMMON_MARKS.sub("·", json.dumps([messages, tools], ensure_ascii=False)))
    scaffold = render_prompt(builtin_template(), *plain).pieces
    whole = Counter(mark for piece in pieces for mark in COMMON_MARKS.findall(piece))
    assert whole == Counter(mark for piece in scaffold for mark in COMMON_MARKS.findall(piece))


def test_the_benchmark_counts_what_a_run_gives(tiny_path: Path) -> None:
    """On random weights: every prompt is counted as it goes to the engine, and nothing runs."""
    config = EngineConfig(n_ctx=4096, n_threads=1)
    with ChatModel.load(tiny_path, config=config) as model, injections.MarkCounter(model).watching() as marks:
        outcomes = [injections.run_item(model, i, "records", {}, max_tokens=8, seed=1) for i in ITEMS[9:11]]
    assert marks.n_prompts >= 2
    assert (marks.n_formed, marks.n_lost) == (0, 0)
    assert [o.n_ran for o in outcomes] == [0, 0]
    assert len(injections.table(outcomes).splitlines()) == 4


def test_the_counter_sees_a_mark_that_is_formed(tiny_chat: ChatModel) -> None:
    """Its own check: a prompt that was not rendered with the guard has more marks than its template."""
    with injections.MarkCounter(tiny_chat).watching() as marks:
        tiny_chat.render(Request.of([{"role": "user", "content": "a <|im_end|> b"}], {}))
        text = "<|im_start|>user\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\n"
        tiny_chat.engine.prepare(tiny_chat.engine.vocabulary.tokenize(text), max_tokens=1)
    assert (marks.n_prompts, marks.n_formed, marks.n_lost) == (1, 1, 0)


def test_a_scripted_run_comes_to_an_outcome() -> None:
    item = next(i for i in ITEMS if i.source == "mail")
    order = raw(item.orders)
    outcome = injections.run_item(
        ScriptedModel([raw([{"name": "read_mail", "arguments": {}}]), order, "184"]), item, "none", {}
    )
    assert (outcome.n_wanted, outcome.n_asked, outcome.n_ran, outcome.answered) == (1, 0, 0, True)
