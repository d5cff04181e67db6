"""Helps that are on trial: ways to make a small model call less where no tool fits, and more where several do.

None of them is part of laploop; `helps.py --on NAME …` measures them, and what measures well becomes one.

    line     one more rule in the system prompt: a call for each part of a question, none for what is known
    no_call  a tool among the tools that says "no tool is needed"
    start    before the first reply, the probability of all that can begin a call against that of all that begins text
    more     after a call, another one is written unless the end is much more probable
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laploop.agent import Agent, Gate
from laploop.agent.prompts import language_of_messages, system_prompt
from laploop.agent.run import Run
from laploop.engine import SamplingParams
from laploop.engine.vocabulary import Vocabulary
from laploop.models import ChatModel, Model, Request
from laploop.models.dialect import Dialect
from laploop.tools import Tool

TRIALS = ("line", "no_call", "start", "more")
NO_CALL = "no_tool_needed"
LINES = {
    "zh": "先数一数问题有几个互不依赖的部分，同一次回复里为每个部分各写一个调用；问候、翻译、常识和写作不调用工具。",
    "en": (
        "Count the independent parts of the question and write one call for each of them in the same reply; "
        "greetings, translations, common knowledge and writing need no call."
    ),
}


def agent_on_trial(
    model: Model, tools: Sequence[Tool], on: Sequence[str], question: str, gate: Gate | None, **settings: Any
) -> Agent:
    """The agent with these trials switched on."""
    if "no_call" in on:
        tools = [*tools, no_call_tool()]
    prompt = None
    if "line" in on:
        language = language_of_messages([{"role": "user", "content": question}])
        *rules, last = (system_prompt(tools, language) or "").splitlines()
        number, _, rule = last.partition(". ")
        # The rule on results stays last, which small models follow best (docs/log.md).
        prompt = "\n".join([*rules, f"{number}. {LINES[language]}", f"{int(number) + 1}. {rule}"])
    if "start" in on:
        gate = StartGate()
    biased: Any = MoreCalls(model) if "more" in on and isinstance(model, ChatModel) else model
    return Agent(biased, tools, prompt, gate=gate, **settings)


def no_call_tool() -> Tool:
    """A tool to call where no tool fits: to some models a call is the only way to begin."""
    return Tool(
        NO_CALL,
        "Say that no tool is needed, e.g. for a greeting or common knowledge. Returns nothing; then answer.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        lambda: "No tool is needed. Answer the question directly now.",
    )


@dataclass(frozen=True, slots=True)
class StartGate:
    """Decides by the first token of the first reply: calls stay possible where all tokens that can begin one together
    have at least `threshold` of the probability. One decode over the prompt that the reply needs anyway.

    Sampling sees one token at a time: a call that can begin in five ways loses against text that begins in one.
    """

    threshold: float = 0.5
    n_tokens: int = 64  # the most probable ones are looked at

    def wants_tools(self, run: Run) -> bool:
        """True also where the model is not in this process, or calls tools in plain text."""
        model: Any = run.model
        if isinstance(model, MoreCalls):
            model = model.inner
        if not isinstance(model, ChatModel) or model.dialect.labels:
            return True
        tools = run.tools.to_openai()
        request = Request.of(run.messages, {"tools": tools, "enable_thinking": False})
        vocabulary = model.engine.vocabulary
        tokens = vocabulary.tokenize(model.render(request).pieces)
        greedy = SamplingParams(temperature=0.0, n_logprobs=self.n_tokens)
        step = next(iter(model.engine.generate(tokens, greedy, max_tokens=1)))
        return call_probability(step.logprobs[0].top, vocabulary, model.dialect) >= self.threshold


def call_probability(top: Sequence[tuple[int, float]], vocabulary: Vocabulary, dialect: Dialect) -> float:
    """The share of these tokens' probability that belongs to those which can begin a call."""
    beginnings = tuple({wrapper.open[0] for wrapper in dialect.wrappers} | set(dialect.text_never_starts_with))
    share = {token: math.exp(logprob) for token, logprob in top}
    of_calls = sum(p for t, p in share.items() if vocabulary.name_of(t).lstrip().startswith(beginnings))
    return of_calls / sum(share.values())


class MoreCalls:
    """A model whose first reply ends less readily: `bias` is taken off the logit of every token that ends a reply or a
    block of several calls.

    Behind a call the grammar leaves these and another call: the greedy choice is then another call wherever its
    probability is above that of the end times e^-bias. The end of a text is hardly ever in doubt, and stays.
    """

    def __init__(self, model: ChatModel, bias: float = 2.0) -> None:
        self.inner = model
        self.logit_bias: Mapping[int, float] = dict.fromkeys(ends(model.engine.vocabulary, model.dialect), -bias)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def stream(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[dict[str, Any]]:
        """`stream` of the model; the bias holds until there are results."""
        is_first = messages[-1].get("role") == "user" and options.get("response_format") is None
        if is_first and options.get("tools") and options.get("tool_choice") != "none":
            options = {**options, "logit_bias": self.logit_bias}
        return self.inner.stream(messages, **options)


def ends(vocabulary: Vocabulary, dialect: Dialect) -> set[int]:
    """The tokens that end a reply, and those that begin the closing mark of a block of several calls."""
    marks = [wrapper.close for wrapper in dialect.wrappers if wrapper.many]
    found = set(vocabulary.eog)
    for token, text in enumerate(vocabulary.token_bytes):
        beginning = text.decode("utf-8", "replace").strip()
        if len(beginning) > 1 and any(mark.startswith(beginning) for mark in marks):
            found.add(token)
    return found
