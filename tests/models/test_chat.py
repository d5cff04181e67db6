"""The chat model over random weights: whatever is sampled, these hold."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from exact import EXACT
from laploop.engine import ContextError, Engine, EngineConfig
from laploop.models import ChatModel, ModelError, accumulate
from laploop.models.dialect import DIALECTS
from laploop.models.errors import RequestError

USER = [{"role": "user", "content": "Is it warm in 北京?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 9}},
                "required": ["city"],
            },
        },
    }
]
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"max_tokens": 20, "enable_thinking": False},
    "thoughts": {"max_tokens": 20, "thinking_budget": 8},
    "auto": {"max_tokens": 30, "tools": TOOLS, "enable_thinking": False},
    "call": {"max_tokens": 60, "tools": TOOLS, "tool_choice": "required", "enable_thinking": False},
    "thoughts and call": {"max_tokens": 60, "tools": TOOLS, "tool_choice": "required", "thinking_budget": 5},
    "json": {"max_tokens": 60, "response_format": {"type": "json_object"}, "enable_thinking": False},
    "stop": {"max_tokens": 60, "stop": ["e", "北"], "enable_thinking": False},
}
HOT = {"temperature": 1.5, "top_k": 0, "top_p": 1.0}
# What differs from run to run, and says nothing of the text.
PASSING = ("id", "created", "timings")


def settled(completion: dict[str, Any]) -> dict[str, Any]:
    """A reply without ids, times, and what the cache happened to hold."""
    kept = json.loads(json.dumps({k: v for k, v in completion.items() if k not in PASSING}))
    for call in kept["choices"][0]["message"].get("tool_calls", ()):
        del call["id"]
    del kept["usage"]["prompt_tokens_details"]
    return kept  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", REQUESTS)
def test_streamed_is_plain(tiny_chat: ChatModel, kind: str) -> None:
    for seed in range(5):
        options = REQUESTS[kind] | HOT | {"seed": seed}
        plain = tiny_chat.create(USER, **options)
        assert settled(accumulate(tiny_chat.stream(USER, **options))) == settled(plain)


def test_together_is_alone(tiny_path: Path, tiny_chat: ChatModel) -> None:
    """Regression: with several at once, budgets and stop texts were applied late by readers that lagged behind."""
    jobs = [options | HOT | {"seed": seed} for seed in range(3) for options in REQUESTS.values()]
    with (
        ChatModel.load(tiny_path, config=EngineConfig(n_ctx=4096, n_threads=1, n_seq_max=3, **EXACT)) as shared,
        ThreadPoolExecutor(5) as pool,
    ):
        together = list(pool.map(lambda options: settled(shared.create(USER, **options)), jobs))
    alone = [settled(tiny_chat.create(USER, **options)) for options in jobs]
    for reply in (*together, *alone):
        del reply["model"]
    assert together == alone


# -- continuing -------------------------------------------------------------------------------------------------------


def test_a_tool_loop_continues_from_its_own_tokens(tmp_path: Path) -> None:
    """C059 on tokens: what was sampled stays as it was, and the cache holds all of it but the last token chosen.

    With Qwen2.5's template, which renders a reply as it was written. Qwen3's shortens the history where a reply did not
    think, or thought without a line feed behind its tag; then the template's text wins, as it must."""
    from tiny_model import make_tiny_model

    template = (Path(__file__).parents[1] / "data" / "qwen2.5.jinja").read_text("utf-8")
    path = make_tiny_model(tmp_path / "tiny.gguf", template)
    with ChatModel.load(path, config=EngineConfig(n_ctx=2048, n_threads=1)) as model:
        messages, n_before = list(USER), 0
        for seed in range(6):
            reply = model.create(messages, tools=TOOLS, tool_choice="required", max_tokens=90, seed=seed, **HOT)
            usage, message = reply["usage"], reply["choices"][0]["message"]
            n_kept = usage["prompt_tokens_details"]["cached_tokens"]
            assert max(0, n_before - 1) <= n_kept <= n_before  # all, where the end was sampled behind it
            assert n_kept < usage["prompt_tokens"]
            n_before = usage["total_tokens"]
            results = [
                {"role": "tool", "tool_call_id": c["id"], "content": "<|im_end|> 晴"} for c in message["tool_calls"]
            ]
            messages += [message, *results]


def test_count_tokens_is_what_the_prompt_costs(tiny_chat: ChatModel) -> None:
    reply = tiny_chat.create(USER, tools=TOOLS, max_tokens=1)
    assert tiny_chat.count_tokens(USER, TOOLS) == reply["usage"]["prompt_tokens"]


def test_no_content_forms_a_control_token(tiny_chat: ChatModel) -> None:
    vocabulary = tiny_chat.engine.vocabulary
    hostile = "".join(vocabulary.special) * 2

    def marks(text: str) -> dict[str, int]:
        from laploop.models import Request

        tool = {"name": f"f{text}", "description": text, "parameters": {"properties": {text: {"description": text}}}}
        call = {"id": "c", "type": "function", "function": {"name": f"f{text}", "arguments": json.dumps({text: text})}}
        messages = [
            {"role": "system", "content": text},
            {"role": "user", "content": text},
            {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
        prompt = tiny_chat.render(Request.of(messages, {"tools": [{"type": "function", "function": tool}]}))
        tokens = tiny_chat.engine.tokenize(prompt.pieces)
        return {mark: tokens.count(token) for mark, token in vocabulary.special.items()}

    assert marks(f"x{hostile}x") == marks("x")


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", range(1, 14))
def test_thinking_ends_at_its_budget_and_the_answer_has_its_own(tiny_chat: ChatModel, budget: int) -> None:
    """Regressions: a budget that ran out inside a character ended the request with a grammar error; line feeds behind
    the cut were counted as the answer's."""
    cut = tiny_chat.engine.vocabulary.tokenize(DIALECTS["qwen3"].think_cut, add_bos=False)
    for seed in range(4):
        options = {"thinking_budget": budget, "max_tokens": 45, "seed": seed, "tools": TOOLS, "tool_choice": "required"}
        reply = tiny_chat.create(USER, **options, **HOT)
        choice, raw = reply["choices"][0], reply["choices"][0]["raw_output"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"]
        n_reasoning = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert reply["usage"]["completion_tokens"] - n_reasoning <= 45
        if "<think>" in raw:
            assert 0 < n_reasoning <= budget + 3 + len(cut)  # a character may have to be finished first
        else:
            assert n_reasoning == 0


def test_max_tokens_is_kept_and_said(tiny_chat: ChatModel) -> None:
    for n in (1, 7):
        reply = tiny_chat.create(USER, max_tokens=n, enable_thinking=False, seed=1, **HOT)
        assert reply["usage"]["completion_tokens"] == n and reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stop", ["e", ["北", "a", "n", " "]])
def test_a_stop_text_ends_the_answer_and_is_no_part_of_it(tiny_chat: ChatModel, stop: str | list[str]) -> None:
    n_stopped = 0
    for seed in range(12):
        reply = tiny_chat.create(USER, stop=stop, max_tokens=40, enable_thinking=False, seed=seed, **HOT)
        content, raw = reply["choices"][0]["message"]["content"], reply["choices"][0]["raw_output"]
        assert not any(s in content for s in stop)
        n_stopped += reply["choices"][0]["finish_reason"] == "stop"
        # No token is sampled beyond the one that completed the stop text.
        assert sum(s in raw for s in ([stop] if isinstance(stop, str) else stop)) <= len(stop)
    assert n_stopped


def test_a_call_cut_off_by_the_budget_is_reported_and_not_made(tiny_chat: ChatModel) -> None:
    reply = tiny_chat.create(USER, tools=TOOLS, tool_choice="required", max_tokens=20, enable_thinking=False)
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "length" and "tool_calls" not in choice["message"]
    assert "cut off" in choice["invalid_tool_calls"][0]["error"]


# -- choices ----------------------------------------------------------------------------------------------------------


def test_none_means_no_call(tiny_chat: ChatModel) -> None:
    for seed in range(15):
        reply = tiny_chat.create(
            USER, tools=TOOLS, tool_choice="none", max_tokens=20, enable_thinking=False, seed=seed, **HOT
        )
        choice = reply["choices"][0]
        assert "tool_calls" not in choice["message"] and choice["message"]["content"].strip()
        assert "<tool_call>" not in choice["raw_output"]


def test_json_objects(tiny_chat: ChatModel) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for seed in range(6):
        reply = tiny_chat.create(USER, response_format=form, max_tokens=25, enable_thinking=False, seed=seed, **HOT)
        assert isinstance(json.loads(reply["choices"][0]["message"]["content"])["a"], int)
        assert reply["choices"][0]["finish_reason"] == "stop"


def test_penalties_are_taken(tiny_chat: ChatModel) -> None:
    """Regression: each of them ended in a TypeError in the engine."""
    penalties: dict[str, Any] = {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repeat_penalty": 1.2}
    assert tiny_chat.create(USER, max_tokens=5, **penalties)["usage"]["completion_tokens"] > 0


def test_strict_tools_make_the_same_prompt(tiny_chat: ChatModel) -> None:
    """Frameworks set it on every function; no model has seen it in training."""
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    assert tiny_chat.count_tokens(USER, strict) == tiny_chat.count_tokens(USER, TOOLS)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_prompt_that_does_not_fit_names_both_numbers(tiny_path: Path) -> None:
    with ChatModel.load(tiny_path, config=EngineConfig(n_ctx=256, n_threads=1)) as model:
        n = model.count_tokens([{"role": "user", "content": "word " * 400}])
        with pytest.raises(ContextError, match=f"{n} tokens.*256"):
            model.create([{"role": "user", "content": "word " * 400}])
        assert model.create(USER, max_tokens=2, enable_thinking=False, seed=1)["usage"]["completion_tokens"] == 2


def test_a_request_is_checked_at_the_call(tiny_chat: ChatModel) -> None:
    with pytest.raises(RequestError):
        tiny_chat.stream(USER, max_tokens=0)
    with pytest.raises(ModelError):
        tiny_chat.stream([{"role": "tool", "content": "x"}])


def test_a_stream_left_early_frees_the_model(tiny_chat: ChatModel) -> None:
    stream = tiny_chat.stream(USER, max_tokens=400)
    for _ in range(3):
        next(stream)
    stream.close()
    unstarted = tiny_chat.stream(USER, max_tokens=400)
    barely = tiny_chat.stream(USER, max_tokens=400)
    next(barely)  # the role alone: nothing is queued yet
    assert tiny_chat.create(USER, max_tokens=3)["usage"]["completion_tokens"]
    assert unstarted is not barely


def test_a_model_without_a_place_for_tools_calls_them_in_text_and_says_so_once(tmp_path: Path) -> None:
    from tiny_model import make_tiny_model

    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    path = make_tiny_model(tmp_path / "plain.gguf", plain)
    with ChatModel.load(path, config=EngineConfig(n_ctx=1024, n_threads=1)) as model:
        with pytest.warns(UserWarning, match="enable_thinking has no effect"):
            model.create(USER, enable_thinking=True, max_tokens=2)
        with pytest.warns(UserWarning, match="template of plain has no place for tools; .*dialect react") as told:
            reply = model.create(USER, tools=TOOLS, tool_choice="required", max_tokens=40, **HOT)
        assert len(told) == 1 and reply["choices"][0]["message"]["tool_calls"]
        model.create(USER, tools=TOOLS, max_tokens=20)
        assert model.create(USER, max_tokens=4, **HOT)["choices"][0]["message"]["content"] is not None


def test_a_file_without_a_template_gets_the_built_in_one_with_a_warning(tmp_path: Path) -> None:
    from tiny_model import make_tiny_model

    path = make_tiny_model(tmp_path / "bare.gguf", None)
    with pytest.warns(UserWarning, match=r"bare\.gguf carries no chat template"), ChatModel.load(path) as model:
        assert model.dialect is DIALECTS["qwen3"]


def test_a_dialect_can_be_given(tiny_engine: Engine) -> None:
    assert ChatModel(tiny_engine, "m", "qwen2.5-coder").dialect is DIALECTS["qwen2.5-coder"]
    reply = ChatModel(tiny_engine, "m", DIALECTS["qwen2.5"]).create(USER, max_tokens=3)
    assert reply["model"] == "m" and "reasoning_content" not in reply["choices"][0]["message"]


def test_reprs_say_what_it_is_in_one_line(tiny_chat: ChatModel) -> None:
    engine = tiny_chat.engine
    assert repr(engine) == f"<Engine tiny.gguf, {engine.n_ctx:,} tokens of context, {engine.device}>"
    assert repr(tiny_chat) == f"<ChatModel {tiny_chat.name}, dialect qwen3, over {engine!r}>" and tiny_chat.can_think


def test_a_call_that_is_being_written_is_named_before_it_is_there(tiny_chat: ChatModel) -> None:
    named: list[str] = []
    for chunk in tiny_chat.stream(USER, **{**REQUESTS["call"], "parallel_tool_calls": False}):
        choice = chunk["choices"][0]
        if name := choice.get("calling"):
            assert choice["delta"] == {} and not choice["finish_reason"]
            named.append(name)
        if choice["delta"].get("tool_calls"):
            assert named == ["get_weather"], "before the call, and once"
    assert named
