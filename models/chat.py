"""A model that chats: messages in, OpenAI-shaped messages out, in this process.

Joins the template, the grammar, the engine and the parser; holds none of their rules. Does not run tools.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from laploop.engine import Engine, EngineConfig, SamplingParams
from laploop.engine.sequence import Sequence as Generation
from laploop.engine.sequence import Step

from .completion import ChatCompletionChunk, Reply, usage_of
from .dialect import Dialect, detect_dialect, get_dialect
from .errors import RequestError, TemplateError
from .grammar import reply_grammar
from .model import Model
from .parser import Delta, OutputParser
from .progress import ProgressFunction
from .request import Request
from .resolve import resolve_model
from .template import Prompt, builtin_template, check_template, render_prompt
from .transcript import Transcripts

# Recommended by the Qwen3 model card, section "Best Practices"; the second also for Qwen2.5 (generation_config.json).
_THINKING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
_PLAIN = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
# The first tokens of a reply decide whether to call and what to speak of; they are greedy at any temperature. With
# none 15 of 25 demo runs went right, with one 19, with four 21 (docs/log.md).
_N_DECIDING = 4
# Choosing a tool and copying values is no place for chance.
_TOOLS = {"temperature": 0.0, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
# Tags and line feeds around a thinking block, in tokens; generous.
_AROUND_THOUGHTS = 64


class ChatModel(Model):
    """A chat model over an engine. Make one with `load`; use it as a context manager or `close` it.

    Args:
        engine: the loaded weights.
        name: what replies call it.
        dialect: the family's syntax; None detects it from the template.
    """

    def __init__(self, engine: Engine, name: str, dialect: str | Dialect | None = None) -> None:
        self.engine = engine
        self.name = name
        self.template = _usable_template(engine)
        given = get_dialect(dialect) if isinstance(dialect, str) else dialect
        self.dialect = given or detect_dialect(self.template, f"{name} {engine.metadata.get('general.name', '')}")
        self._transcripts = Transcripts(lambda pieces, first: engine.vocabulary.tokenize(pieces, add_bos=first))

    @classmethod
    def load(
        cls,
        spec: str | Path,
        *,
        config: EngineConfig | None = None,
        dialect: str | Dialect | None = None,
        offline: bool | None = None,
        progress: ProgressFunction | None = None,
    ) -> ChatModel:
        """Find, fetch if need be, and load a model.

        Args:
            spec: short name, path or hf: spec, see `resolve_model`.
            config: how to load it.
            dialect: the family's syntax, where the template does not tell it.
            offline: use only what is on disk.
            progress: called while fetching.

        Raises:
            ModelError: not found, not reachable, damaged in transit.
            EngineError: no loadable GGUF, or not enough memory.
        """
        found = resolve_model(str(spec), offline=offline, progress=progress)
        return cls(Engine.load(found.path, config), found.name, dialect)

    def __enter__(self) -> ChatModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the weights."""
        self.engine.close()

    def render(self, request: Request) -> Prompt:
        """The prompt of a request."""
        vocabulary = self.engine.vocabulary
        return render_prompt(
            self.template,
            request.messages,
            request.tools,
            request.enable_thinking,
            marks=vocabulary.special_pattern,
            variables={
                "bos_token": vocabulary.name_of(self.engine.model.bos),
                "eos_token": vocabulary.name_of(vocabulary.eos),
            },
        )

    def count_tokens(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """Tokens of the prompt that these messages and tools make."""
        return len(self._transcripts.tokens_of(self.render(Request.of(messages, {"tools": tools}))))

    def _stream(self, request: Request) -> Iterator[ChatCompletionChunk]:
        if request.tools and not self.dialect:
            raise RequestError(
                f"the chat template of {self.name} has no place for tools; choose a model that has, such as qwen3-1.7b"
            )
        can_think = bool(self.dialect and self.dialect.think)
        if request.enable_thinking and not can_think:
            warnings.warn(f"enable_thinking has no effect: {self.name} has no thinking mode", stacklevel=4)
        prompt = self.render(request)
        return self._generate(request, prompt, can_think and request.enable_thinking is not False)

    def _generate(self, request: Request, prompt: Prompt, thinking: bool) -> Iterator[ChatCompletionChunk]:
        engine, family = self.engine, self.dialect or get_dialect("qwen2.5")
        opens = thinking and prompt.opens_think
        mode = "open" if opens else "allowed" if thinking else "none"
        grammar = reply_grammar(request, family, mode) if request.tools or request.response_format else None
        tools = request.tools if request.allowed_names else ()
        if not tools:  # no call can be meant: only the native mark, which is masked or was never explained, is one
            family = dataclasses.replace(family, wrappers=family.wrappers[:1])
        parser = OutputParser(
            tools=tools, enable_thinking=thinking, prompt_opens_think=opens, dialect=family, stop=request.stop
        )
        attempt = functools.partial(
            engine.prepare,
            self._transcripts.tokens_of(prompt),
            _sampling(request, thinking),
            max_tokens=self._most(request, family) if thinking else request.max_tokens,
        )
        reply, output = Reply(self.name), _Output()
        generation = attempt(grammar=grammar)
        yield reply.chunk({"role": "assistant"})
        for delta in self._deltas(generation, parser, request, output):
            yield reply.chunk(delta)
        if not generation.n_generated and output.finish == "stop" and not request.must_call:
            # It ended at once: there is nothing that it wants to call, so the same prompt is asked for words alone.
            # The cache holds the prompt, the second attempt costs one token.
            first, words = generation, dataclasses.replace(request, tool_choice="none")
            generation = attempt(grammar=reply_grammar(words, family, mode))
            for delta in self._deltas(generation, parser, request, output):
                yield reply.chunk(delta)
            generation.timings.absorb(first.timings)
        for delta in parser.finish(output.finish):
            yield reply.chunk(delta)
        raw = b"".join(output.raw)
        with contextlib.suppress(UnicodeDecodeError):  # cut inside a character: no prompt can begin with this text
            self._transcripts.remember(prompt, raw.decode("utf-8"), generation.tokens)
        yield reply.last(
            parser.result(),
            usage=usage_of(
                generation.n_prompt,
                generation.n_generated,
                n_cached=generation.timings.n_cached,
                n_reasoning=output.n_reasoning,
            ),
            timings=_timings(generation),
            raw_output=raw.decode("utf-8", "replace"),
        )

    def _deltas(
        self, generation: Generation, parser: OutputParser, request: Request, output: _Output
    ) -> Iterator[Delta]:
        """The deltas of a generation as it comes."""
        watch = generation.watch = _Watch(self.engine, generation, parser, request)
        for step in self.engine.read(generation):
            output.raw.append(step.text)
            output.finish = step.finish_reason or output.finish
            yield from watch.deltas.popleft()
        output.n_reasoning += watch.n_reasoning

    def _most(self, request: Request, family: Dialect) -> int | None:
        """The most tokens that thoughts and answer may come to; the less is reserved, the more can run at once."""
        if request.max_tokens is None or request.thinking_budget is None:
            return None
        n_cut = len(self.engine.vocabulary.tokenize(family.think_cut, add_bos=False))
        return request.thinking_budget + n_cut + request.max_tokens + _AROUND_THOUGHTS


@dataclasses.dataclass
class _Output:
    """What a reply came to so far."""

    raw: list[bytes] = dataclasses.field(default_factory=list)
    finish: str = "stop"
    n_reasoning: int = 0  # tokens


class _Watch:
    """Parses a generation as it grows, and keeps thinking and answer within their budgets.

    The engine calls it for each step before it chooses the next token. What it does depends on the tokens alone, not
    on when the reader comes to read them: with several generations at once, a reader may be many steps behind.
    """

    def __init__(self, engine: Engine, generation: Generation, parser: OutputParser, request: Request) -> None:
        self._engine, self._generation, self._parser, self._request = engine, generation, parser, request
        self._answering = not parser.may_think
        self.n_reasoning = 0  # tokens
        self.deltas: deque[list[Delta]] = deque()  # one list a step
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, step: Step) -> list[int]:
        parser, request = self._parser, self._request
        self.deltas.append(parser.feed(step.text))
        if parser.stopped:
            self._generation.stop()
        elif parser.in_reasoning:
            self.n_reasoning += len(step.tokens)
            self._decoder.decode(step.text)
            inside_character = bool(self._decoder.getstate()[0])
            used_up = request.thinking_budget is not None and self.n_reasoning >= request.thinking_budget
            if used_up and not inside_character:
                return self._engine.vocabulary.tokenize(parser.dialect.think_cut, add_bos=False)
        elif not self._answering and parser.answering:
            self._answering = True  # max_tokens is the answer's; thinking does not eat it
            if request.max_tokens:
                self._generation.limit(request.max_tokens - self._n_behind_thoughts(step))
        return []

    def _n_behind_thoughts(self, step: Step) -> int:
        """How many of the step's tokens belong to the answer; the line feeds behind the closing tag do not."""
        texts = [self._engine.vocabulary.bytes_of([token]) for token in step.tokens]
        close = (self._parser.dialect.think or ("", ""))[1].encode()
        n = next((i for i in range(1, len(texts) + 1) if close in b"".join(texts[:i])), 0)
        while n < len(texts) and self.n_reasoning and not texts[n].strip():
            n += 1
        return len(texts) - n


def _usable_template(engine: Engine) -> str:
    template = engine.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        try:
            check_template(template)
        except TemplateError as error:
            warnings.warn(f"{engine.path.name}: {error}; the built-in Qwen3 template is used instead", stacklevel=3)
            return builtin_template()
        return template
    warnings.warn(
        f"{engine.path.name} carries no chat template; the built-in Qwen3 template is used instead",
        stacklevel=3,
    )
    return builtin_template()


def _sampling(request: Request, thinking: bool) -> SamplingParams:
    """The request's settings over the defaults of this kind of round."""
    settings: dict[str, Any] = dict(_THINKING if thinking else _TOOLS if request.allowed_names else _PLAIN)
    if request.tools and not request.must_call and not thinking:
        settings["n_greedy"] = _N_DECIDING
    for name in (
        "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "seed",
    ):  # fmt: skip
        if (value := getattr(request, name)) is not None:
            settings[name] = value
    return SamplingParams(**settings)


def _timings(generation: Generation) -> dict[str, Any]:
    """llama.cpp's names (server, `timings`), and where our own time went."""
    t = generation.timings
    n_evaluated = t.n_prompt - t.n_cached
    return {
        "cache_n": t.n_cached,
        "prompt_n": n_evaluated,
        "prompt_ms": t.prompt_s * 1000,
        "prompt_per_second": n_evaluated / t.prompt_s if t.prompt_s else 0.0,
        "predicted_n": t.n_generated,
        "predicted_ms": t.generate_s * 1000,
        "predicted_per_second": t.n_generated / t.generate_s if t.generate_s else 0.0,
        "predicted_steps": t.n_steps,
        "mask_ms": t.mask_s * 1000,
        "sample_ms": t.sample_s * 1000,
    }
