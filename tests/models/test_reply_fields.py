"""What the fields of a request do to a reply, over random weights: whatever is sampled, these hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from exact import EXACT
from laploop.engine import EngineConfig
from laploop.models import ChatModel, accumulate
from laploop.models.errors import RequestError

USER = [{"role": "user", "content": "Is it warm in 北京?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS, "strict": True}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
FORM = {"type": "json_schema", "json_schema": {"name": "w", "schema": PARAMETERS, "strict": True}}
HOT: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0}
PLAIN: dict[str, Any] = {"enable_thinking": False, "max_tokens": 24}
KINDS: dict[str, dict[str, Any]] = {
    "text": PLAIN,
    "stop": {**PLAIN, "stop": ["e", "北"]},
    "auto": {**PLAIN, "tools": TOOLS},
    "required": {**PLAIN, "max_tokens": 60, "tools": TOOLS, "tool_choice": "required"},
    "json": {**PLAIN, "max_tokens": 60, "response_format": FORM},
    "thoughts": {"max_tokens": 60, "thinking_budget": 6, "tools": TOOLS, "tool_choice": NAMED},
}


def settled(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice without its place and the calls' ids."""
    kept = json.loads(json.dumps({k: v for k, v in choice.items() if k != "index"}))
    for call in kept["message"].get("tool_calls", ()):
        del call["id"]
    return kept  # type: ignore[no-any-return]


def settled_all(completion: dict[str, Any]) -> list[dict[str, Any]]:
    return [settled(choice) for choice in completion["choices"]]


def check_call_or_json(message: dict[str, Any], options: dict[str, Any]) -> None:
    """What the grammar promises."""
    if "response_format" in options:
        jsonschema.validate(json.loads(message["content"]), PARAMETERS)
    else:
        assert message["tool_calls"]
        for call in message["tool_calls"]:
            jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS)


# -- several choices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_choice_i_is_what_the_seed_plus_i_gives(tiny_chat: ChatModel, kind: str) -> None:
    options = KINDS[kind] | HOT
    reply = tiny_chat.create(USER, n=3, seed=5, **options)
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2]
    alone = [tiny_chat.create(USER, seed=5 + i, **options) for i in range(3)]
    assert settled_all(reply) == [settled(a["choices"][0]) for a in alone]
    for detail in ("completion_tokens", "reasoning_tokens"):
        usage, single = reply["usage"], [a["usage"] for a in alone]
        if detail == "reasoning_tokens":
            usage, single = usage["completion_tokens_details"], [u["completion_tokens_details"] for u in single]
        assert usage[detail] == sum(u[detail] for u in single)
    assert reply["usage"]["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_is_plain_for_all_choices(tiny_chat: ChatModel, kind: str) -> None:
    options: dict[str, Any] = KINDS[kind] | HOT | {"seed": 3, "n": 2, "logprobs": True, "top_logprobs": 2}
    plain = tiny_chat.create(USER, **options)
    for form in (None, {"include_usage": True}):
        streamed = accumulate(tiny_chat.stream(USER, stream_options=form, **options))
        assert settled_all(streamed) == settled_all(plain)
        assert streamed["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
        assert streamed["timings"].keys() == plain["timings"].keys()


def test_the_prompt_is_evaluated_once(tiny_chat: ChatModel) -> None:
    reply = tiny_chat.create([{"role": "user", "content": "A question nobody asked before."}], n=4, **PLAIN, **HOT)
    usage, timings = reply["usage"], reply["timings"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == timings["cache_n"] < usage["prompt_tokens"]
    # Of the prompt, each further choice decodes the last token again: its logits are not kept.
    assert timings["prompt_n"] == usage["prompt_tokens"] - timings["cache_n"] + 3
    assert timings["predicted_n"] == usage["completion_tokens"]
    assert len({c["raw_output"] for c in reply["choices"]}) > 1, "without a seed, each has its own"


def test_a_seed_repeats_a_reply_and_no_seed_does_not(tiny_chat: ChatModel) -> None:
    options: dict[str, Any] = PLAIN | HOT
    seeded = [settled_all(tiny_chat.create(USER, seed=11, **options)) for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert len({tiny_chat.create(USER, **options)["choices"][0]["raw_output"] for _ in range(3)}) > 1


def test_choices_left_early_free_the_model(tiny_chat: ChatModel) -> None:
    stream = tiny_chat.stream(USER, n=3, enable_thinking=False, max_tokens=200, **HOT)
    while next(stream)["choices"][0]["index"] == 0:
        pass
    stream.close()  # type: ignore[attr-defined]
    assert tiny_chat.create(USER, **PLAIN)["usage"]["completion_tokens"]


# -- log-probabilities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "stop", "json", "thoughts"])
def test_probabilities_are_those_of_the_content(tiny_chat: ChatModel, kind: str) -> None:
    n_tokens = 0
    for seed in range(6):
        reply = tiny_chat.create(USER, seed=seed, logprobs=True, top_logprobs=3, **KINDS[kind], **HOT)
        (choice,) = reply["choices"]
        content = choice["message"]["content"] or ""
        tokens = (choice["logprobs"] or {"content": []})["content"]
        spelled = b"".join(bytes(t["bytes"]) for t in tokens).decode("utf-8", "replace")
        assert content in spelled and len(spelled) - len(content) < max((len(t["bytes"]) for t in tokens), default=1)
        for token in tokens:
            assert -9999 <= token["logprob"] <= 0 and bytes(token["bytes"]).decode("utf-8", "replace") == token["token"]
            ranked = [t["logprob"] for t in token["top_logprobs"]]
            assert ranked == sorted(ranked, reverse=True) and len(ranked) in (0, 3)
            assert not ranked or token["logprob"] <= ranked[0]
        n_tokens += len(tokens)
    assert n_tokens > 0 or kind == "thoughts"


def test_the_greedy_token_is_the_most_probable_one(tiny_chat: ChatModel) -> None:
    asked: dict[str, Any] = {"temperature": 0, "logprobs": True, "top_logprobs": 1, **PLAIN}
    tokens = tiny_chat.create(USER, **asked)["choices"][0]["logprobs"]["content"]
    assert tokens
    for token in tokens:
        assert token["top_logprobs"] == [{k: token[k] for k in ("token", "logprob", "bytes")}]
    without = tiny_chat.create(USER, **asked | {"top_logprobs": None})["choices"][0]["logprobs"]["content"]
    assert without == [{**t, "top_logprobs": []} for t in tokens]


def test_asking_for_probabilities_changes_no_text(tiny_chat: ChatModel) -> None:
    for seed in range(4):
        options = KINDS["text"] | HOT | {"seed": seed}
        asked, plain = (tiny_chat.create(USER, logprobs=asked, **options)["choices"][0] for asked in (True, False))
        assert plain.pop("logprobs") is None and asked.pop("logprobs")
        assert asked == plain


# -- biases and penalties ---------------------------------------------------------------------------------------------


def test_a_bias_forces_and_bans(tiny_chat: ChatModel) -> None:
    (token,) = tiny_chat.engine.tokenize("a")
    for seed in range(3):
        forced = tiny_chat.create(USER, logit_bias={str(token): 100}, seed=seed, **PLAIN, **HOT)["choices"][0]
        assert forced["message"]["content"] == "a" * PLAIN["max_tokens"]
    greedy: dict[str, Any] = {"temperature": 0, "logprobs": True, **PLAIN}
    said = {bytes(t["bytes"]) for t in tiny_chat.create(USER, **greedy)["choices"][0]["logprobs"]["content"]}
    banned = {i: -100 for i, text in enumerate(tiny_chat.engine.vocabulary.token_bytes) if text in said}
    other = tiny_chat.create(USER, logit_bias=banned, **greedy)["choices"][0]["logprobs"]["content"]
    assert other and not {bytes(t["bytes"]) for t in other} & said


def test_a_bias_never_beats_the_grammar(tiny_chat: ChatModel) -> None:
    """Also where everything that the grammar allows is as good as banned."""
    vocabulary = tiny_chat.engine.vocabulary
    everything = range(vocabulary.n_tokens)
    marks = [t for text in ("{", '"', "}", "<tool_call>", '{"', '":') for t in tiny_chat.engine.tokenize(text)]
    biases: list[dict[int, float]] = [
        dict.fromkeys(vocabulary.eog, 100.0),
        {vocabulary.special["</tool_call>"]: 100.0},
        dict.fromkeys(marks, -100.0),
        dict.fromkeys(everything, -100.0),
        {t: 100.0 if t % 2 else -100.0 for t in everything},
    ]
    for bias in biases:
        for kind in ("required", "json", "thoughts"):
            options = KINDS[kind] | HOT
            message = tiny_chat.create(USER, logit_bias=bias, seed=1, **options)["choices"][0]["message"]
            check_call_or_json(message, options)


def test_a_bias_for_a_token_that_is_none_is_an_error_at_the_call(tiny_chat: ChatModel) -> None:
    n = tiny_chat.engine.vocabulary.n_tokens
    with pytest.raises(RequestError, match=rf"logit_bias.*{n}.*0 to {n - 1}"):
        tiny_chat.stream(USER, logit_bias={n: 1})


def test_a_penalty_keeps_tokens_from_coming_again(tiny_chat: ChatModel) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "logprobs": True, **PLAIN, "logit_bias": {7: 5}}
    for penalty in ("presence_penalty", "frequency_penalty"):
        reply = tiny_chat.create(USER, **{penalty: 100}, **greedy)
        tokens = [bytes(t["bytes"]) for t in reply["choices"][0]["logprobs"]["content"]]
        assert len(tokens) > 10 and len(set(tokens)) == len(tokens)


# -- stop texts -------------------------------------------------------------------------------------------------------


def test_a_stop_text_may_begin_and_end_anywhere_in_tokens(tiny_chat: ChatModel) -> None:
    for seed in range(4):
        options: dict[str, Any] = PLAIN | HOT | {"seed": seed}
        whole = tiny_chat.create(USER, **options)["choices"][0]["message"]["content"]
        for at in range(0, len(whole) - 3, 4):
            stop = whole[at : at + 3]
            if not stop.strip() or "\ufffd" in whole:
                continue
            (choice,) = tiny_chat.create(USER, stop=stop, **options)["choices"]
            assert choice["message"]["content"] == whole[: whole.find(stop)] and choice["finish_reason"] == "stop"


# -- thinking ---------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, dict[str, Any]] = {
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "named": {"tools": TOOLS, "tool_choice": NAMED},
    "json": {"response_format": FORM},
    "json or call": {"response_format": FORM, "tools": TOOLS, "tool_choice": NAMED, "stop": "never said"},
}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatModel]:
    """A model whose template opens the thinking block itself, whatever is asked for, as those of pure reasoners do."""
    from laploop.models.template import builtin_template
    from tiny_model import make_tiny_model

    template = builtin_template() + "{%- if add_generation_prompt %}{{- '<think>\\n' }}{%- endif %}"
    path = make_tiny_model(tmp_path_factory.mktemp("model") / "thinker.gguf", template)
    with ChatModel.load(path, config=EngineConfig(n_ctx=2048, n_threads=1, **EXACT)) as model:
        yield model


@pytest.mark.parametrize("budget", [0, 1, 5, 50])
@pytest.mark.parametrize("kind", ANSWERS)
def test_thoughts_keep_to_their_budget_and_the_answer_comes_whole(thinker: ChatModel, kind: str, budget: int) -> None:
    cut = thinker.engine.vocabulary.tokenize(thinker.dialect.think_cut, add_bos=False)  # type: ignore[union-attr]
    options: dict[str, Any] = {"thinking_budget": budget, "max_tokens": 60, "n": 2, "seed": 2, **ANSWERS[kind], **HOT}
    reply = thinker.create(USER, **options)
    usage = reply["usage"]
    n_reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    # A character may have to be finished before the cut, and one token has come before anything can be cut.
    assert n_reasoning <= 2 * (max(budget, 1) + 3 + len(cut)) and usage["completion_tokens"] - n_reasoning <= 2 * 60
    for choice in reply["choices"]:
        check_call_or_json(choice["message"], {} if "tools" in options else options)
        thought, rest = choice["raw_output"].split("</think>", 1)
        assert choice["message"].get("reasoning_content", "") == thought.removeprefix("<think>").strip("\n")
        assert (choice["message"]["content"] or "") in rest and "think>" not in (choice["message"]["content"] or "")
        assert choice["finish_reason"] == ("tool_calls" if "tools" in options else "stop")
    assert settled_all(accumulate(thinker.stream(USER, **options))) == settled_all(reply)


@pytest.mark.parametrize("options", [{"thinking_budget": 0}, {"reasoning_effort": "none"}, {"enable_thinking": False}])
def test_thinking_that_is_off_costs_nothing(tiny_chat: ChatModel, options: dict[str, Any]) -> None:
    for seed in range(5):
        reply = tiny_chat.create(USER, max_tokens=9, seed=seed, **options, **HOT)
        assert "reasoning_content" not in reply["choices"][0]["message"]
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
        assert reply["usage"]["completion_tokens"] <= 9


def test_effort_is_a_budget(tiny_chat: ChatModel) -> None:
    options: dict[str, Any] = {"max_tokens": 9, "seed": 4, **HOT}
    by_effort = tiny_chat.create(USER, reasoning_effort="minimal", **options)
    assert settled_all(by_effort) == settled_all(
        tiny_chat.create(USER, enable_thinking=True, thinking_budget=128, **options)
    )


def test_thoughts_without_a_budget_leave_the_answer_a_part_of_the_context(tmp_path: Path, thinker: ChatModel) -> None:
    """Regression: where no budget was given, a model that went on thinking filled the context and never answered."""
    with ChatModel.load(thinker.engine.path, config=EngineConfig(n_ctx=640, n_threads=1)) as model:
        for seed in range(3):
            reply = model.create(USER, response_format=FORM, logit_bias={"7": 30}, seed=seed, **HOT)
            (choice,) = reply["choices"]
            assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] > 200
            check_call_or_json(choice["message"], {"response_format": FORM})
            assert choice["finish_reason"] == "stop"


# -- the bill ---------------------------------------------------------------------------------------------------------


def test_a_second_attempt_is_one_reply(tiny_chat: ChatModel) -> None:
    """A reply that ends at once is asked for again, in words; the bill is that of one."""
    bias = dict.fromkeys(tiny_chat.engine.vocabulary.eog, 100)
    messages = [{"role": "user", "content": "Nothing to say to this one?"}]
    n_prompt = tiny_chat.create(messages, tools=TOOLS, **PLAIN)["usage"]["prompt_tokens"]
    for logprobs in (False, True):
        reply = tiny_chat.create(messages, tools=TOOLS, logit_bias=bias, logprobs=logprobs, n=2, **PLAIN)
        usage = reply["usage"]
        assert usage["prompt_tokens"] == n_prompt and usage["completion_tokens"] == 2
        assert usage["prompt_tokens_details"]["cached_tokens"] < n_prompt
        for choice in reply["choices"]:
            assert choice["message"]["content"] and choice["finish_reason"] == "stop"
            assert not logprobs or len(choice["logprobs"]["content"]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_bill_adds_up(tiny_chat: ChatModel, kind: str) -> None:
    for seed in range(3):
        reply = tiny_chat.create(USER, n=2, seed=seed, **KINDS[kind], **HOT)
        usage, timings = reply["usage"], reply["timings"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        assert 0 <= usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]
        assert timings["predicted_n"] == usage["completion_tokens"]
        thought = any("reasoning_content" in c["message"] for c in reply["choices"])
        assert thought <= bool(usage["completion_tokens_details"]["reasoning_tokens"])


def test_length_wins(tiny_chat: ChatModel) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "enable_thinking": False, "n": 2}
    for choice in tiny_chat.create(USER, max_tokens=4, seed=1, **options, **HOT)["choices"]:
        assert choice["finish_reason"] == "length" and "tool_calls" not in choice["message"]
        assert choice["invalid_tool_calls"]
