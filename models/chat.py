"""A model that chats: messages in, OpenAI-shaped messages out, in this process.

Joins the template, the grammar, the engine and the parser; holds none of their rules. Does not run tools.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from laploop.engine import Engine, EngineConfig, Grammar, SamplingParams
from laploop.engine.engine import MOST_STATE_BYTES
from laploop.engine.sequence import Sequence as Generation
from laploop.engine.values import shown
from typing_extensions import Unpack

from .beginning import Beginnings
from .budgets import Budgets, Watch, n_cut
from .completion import ChatCompletionChunk, Cost, Outcome, Stamp, reply_chunks
from .content_logprobs import ContentLogprobs
from .context_use import ContextUse, context_use
from .conversation_file import load_conversation, save_conversation
from .detection import detect_dialect
from .dialect import Dialect, get_dialect
from .errors import RequestError, TemplateError
from .files.progress import ProgressFunction
from .files.resolve import resolve_model
from .grammar import reply_grammar
from .history import fitting
from .model import Model
from .opening import N_FOR_OPENING, answering, end_bias, is_open, weigh
from .parsing.parser import OutputParser
from .requests.request import Request, RequestOptions
from .retelling import retold
from .sampling import sampling_of
from .schemas.violations import violations
from .template import Prompt, builtin_template, check_template, render_prompt
from .text_protocol import protocol_messages, said_before, speaks_protocol, wants_thought
from .transcript import Transcripts


class ChatModel(Model):
    """A chat model over an engine. Make one with `load`; use it as a context manager or `close` it.

    Args:
        engine: the loaded weights.
        name: what replies call it.
        dialect: the family's syntax; None detects it from the template. With "react" any model calls tools in the text
            protocol; so does one whose template has no place for tools, and says so in a warning.
    """

    def __init__(self, engine: Engine, name: str, dialect: str | Dialect | None = None) -> None:
        self.engine = engine
        self.name = name
        self.template = _usable_template(engine)
        given = None if dialect is None else get_dialect(dialect)
        found = detect_dialect(self.template, f"{name} {engine.metadata.get('general.name', '')}")
        if missing := _missing_mark(given or found, engine):
            if given:
                raise RequestError(f"dialect {given.name} needs a vocabulary with the token {missing}, {name} has none")
            found = get_dialect("react")
        self.dialect = given or found
        # Without tools there is no protocol to speak: such replies are plain text.
        self._plain = get_dialect("qwen2.5") if found.labels else found
        self._must_tell = not given and bool(found.labels)
        self._transcripts = Transcripts(lambda pieces, first: engine.vocabulary.tokenize(pieces, add_bos=first))
        ends = [engine.vocabulary.name_of(token) for token in engine.vocabulary.eog]
        self._turn_ends = re.compile("|".join(map(re.escape, ends)) or r"(?!)")
        self._beginnings = Beginnings(self.render, engine.vocabulary.tokenize)

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

    def __repr__(self) -> str:
        return f"<ChatModel {self.name}, dialect {self.dialect.name}, over {self.engine!r}>"

    @property
    def can_think(self) -> bool:
        """Whether `enable_thinking` changes anything."""
        return bool(self.dialect.think or self.dialect.labels)

    def __enter__(self) -> ChatModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the weights."""
        self.engine.close()

    def render(self, request: Request) -> Prompt:
        """The prompt of a request."""
        if not isinstance(request, Request):
            raise RequestError(f"render takes a Request, such as Request.of(messages, {{}}); got {shown(request)}")
        vocabulary, family = self.engine.vocabulary, self.dialect_of(request)
        render = functools.partial(
            render_prompt,
            self.template,
            marks=vocabulary.special_pattern,
            variables={
                "bos_token": vocabulary.name_of(self.engine.model.bos),
                "eos_token": vocabulary.name_of(vocabulary.eos),
            },
        )
        if family.labels:
            return render(protocol_messages(request, family, self.template)).without_open_think()
        return render(
            fitting(request.messages, family),
            request.shown_tools,
            request.enable_thinking,
            calls_in_content=family.native if family.calls_in_content else None,
        )

    def dialect_of(self, request: Request) -> Dialect:
        """How the reply to a request is written: a text protocol is spoken only where there are tools, or calls in the
        history."""
        return self._plain if self.dialect.labels and not speaks_protocol(request) else self.dialect

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds, prompt and reply together."""
        return self.engine.n_ctx

    def count_tokens(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """Tokens of the prompt that these messages and tools make."""
        return len(self._transcripts.tokens_of(self.render(Request.of(messages, {"tools": tools}))))

    def context_use(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None
    ) -> ContextUse:
        """How full the context is with these messages and tools, and what each message takes of it; exact."""
        request = Request.of(messages, {"tools": tools})
        return context_use(request, self.n_ctx, self.render, self._transcripts.tokens_of, self._turn_ends)

    def save_state(
        self,
        path: str | Path,
        messages: Sequence[dict[str, Any]],
        *,
        most_bytes: int = MOST_STATE_BYTES,
        **options: Unpack[RequestOptions],
    ) -> int:
        """Write what this model has read of a conversation (tokens, and their KV state) to a file, for `load_state`.

        Args:
            path: the file; it is the old one or the whole new one, whatever happens. Only the user can read it.
            messages: the conversation, with its replies.
            most_bytes: most bytes of keys and values; what would be more is left out at the end.
            options: those of its requests, above all the tools.

        Returns:
            The tokens whose state it holds.

        Raises:
            RequestError: messages or options are wrong.
            OSError: it cannot be written.
        """
        request = Request.of(messages, options)
        return save_conversation(Path(path), request, self.engine, self._transcripts, self.render, most_bytes)

    def load_state(self, path: str | Path) -> int:
        """Continue the conversation that `save_state` wrote: its next request computes only what is new in it.

        What cannot be used (damaged, of another model, build or KV type) is told in a warning and changes nothing.

        Returns:
            The tokens that need not be computed; 0 also where there is no such file.
        """
        return load_conversation(Path(path), self.engine, self._transcripts)

    def _stream(self, request: Request) -> Iterator[ChatCompletionChunk]:
        family = self.dialect_of(request)
        if family.labels:
            self._tell()
        can_think = bool(family.think or family.labels)
        if request.enable_thinking and not can_think:
            warnings.warn(f"enable_thinking has no effect: {self.name} has no thinking mode", stacklevel=3)
        self._check_bias(request)
        plan = self._plan(request)
        if request.follows_results and not request.allowed_names:
            plan = self._answering(plan)
        return reply_chunks(self.name, request.n, functools.partial(self._choose, plan))

    def _tell(self) -> None:
        """Say once that tools are offered in a way that this model was not trained for."""
        if self._must_tell:
            self._must_tell = False
            fault = (
                "calls tools in a way that is not known here" if "tools" in self.template else "has no place for tools"
            )
            warnings.warn(
                f"the chat template of {self.name} {fault}; they are offered as text instead (dialect react), "
                "which small models follow less well",
                stacklevel=4,
            )

    def _check_bias(self, request: Request) -> None:
        n = self.engine.vocabulary.n_tokens
        if unknown := [token for token in request.logit_bias or () if token >= n]:
            raise RequestError(f"logit_bias names the token {unknown[0]}; {self.name} has the tokens 0 to {n - 1}")

    def _plan(self, request: Request) -> _Plan:
        """How a request is replied to."""
        family, prompt = self.dialect_of(request), self.render(request)
        if family.labels:
            thinking = wants_thought(request)
        else:  # some templates open a block always
            thinking = bool(family.think) and (request.enable_thinking is not False or prompt.opens_think)
            if family.think and str(prompt).rstrip().endswith(family.think[1]):  # it has closed a block already
                thinking = False
        opens = thinking and prompt.opens_think
        mode = "open" if opens else "allowed" if thinking else "none"
        is_bound = request.tools or request.response_format or family.labels
        grammar = reply_grammar(request, family, mode) if is_bound else None
        calls = functools.partial(reply_grammar, request.calling(), family, mode)
        words = functools.partial(reply_grammar, dataclasses.replace(request, tool_choice="none"), family, mode)
        tools = request.tools if request.allowed_names else ()
        if not tools:  # no call can be meant: only the native mark, which is masked or was never explained, is one
            family = dataclasses.replace(family, wrappers=family.wrappers[:1])
        tokens = self._transcripts.tokens_of(prompt)
        return _Plan(
            request,
            prompt,
            tokens,
            thinking and not family.labels,
            grammar,
            calls,
            words,
            Budgets(
                request, thinking, self.engine.n_ctx - len(tokens), n_cut(self.engine, family), family.think_budget
            ),
            functools.partial(
                OutputParser,
                tools=tools,
                enable_thinking=thinking,
                prompt_opens_think=opens,
                dialect=family,
                stop=request.stop,
            ),
        )

    def _answering(self, plan: _Plan) -> _Plan:
        """The plan of the same reply as text, with what asks for it where the context has room."""
        asking = self._plan(answering(plan.request, self.dialect_of(plan.request)))
        has_room = self.engine.n_ctx - len(asking.tokens) > N_FOR_OPENING
        return asking if has_room else dataclasses.replace(plan, grammar=plan.words())

    def _opened(self, plan: _Plan, n_shareable: int) -> tuple[_Plan, list[Generation]]:
        """The plan of a reply of which it is weighed whether it calls, and the generations that told."""

        def ask(more: list[int], sampling: SamplingParams) -> Generation:
            return self.engine.prepare([*plan.tokens, *more], sampling, max_tokens=1, n_shareable=n_shareable)

        kind, asked = weigh(plan.request, self.engine, ask, self.dialect_of(plan.request))
        if kind == "text" and plan.request.follows_results:
            return self._answering(plan), asked
        grammar = plan.grammar if kind == "either" else plan.calls() if kind == "call" else plan.words()
        return dataclasses.replace(plan, grammar=grammar), asked

    def _choose(self, plan: _Plan, index: int, stamp: Stamp) -> Generator[ChatCompletionChunk, None, Outcome]:
        """One choice. The first one evaluates the prompt, the others find it in the cache."""
        request, family, asked = plan.request, self.dialect_of(plan.request), list[Generation]()
        n_shareable = self._beginnings.n_tokens(request, plan.tokens)
        if not plan.is_thoughtful and is_open(request, family) and self.engine.n_ctx - len(plan.tokens) > N_FOR_OPENING:
            plan, asked = self._opened(plan, n_shareable)
            request = plan.request
        parser, content, written = plan.parser(), ContentLogprobs(request.logprobs), _Written()
        sampling = sampling_of(request, plan.is_thoughtful, index)
        if request.allowed_names and request.parallel_tool_calls:
            sampling = dataclasses.replace(sampling, fork_bias=end_bias(self.engine.vocabulary, family))
        attempt = functools.partial(
            self.engine.prepare, plan.tokens, sampling, max_tokens=plan.budgets.all, n_shareable=n_shareable
        )
        generation = attempt(grammar=plan.grammar)
        if family.labels and not (request.must_call or request.response_format):
            generation.obliged = False  # the answer is free text, although a label stands before it: cut is cut
        yield stamp({"role": "assistant"})
        yield from self._deltas(
            generation, Watch(self.engine, generation, parser, plan.budgets, content), written, stamp
        )
        if not generation.n_generated and written.finish == "stop" and not request.must_call:
            # It ended at once: there is nothing that it wants to call, so the same prompt is asked for words alone.
            # The cache holds the prompt, the second attempt costs one token.
            first, generation = generation, attempt(grammar=plan.words())
            watch = Watch(self.engine, generation, parser, plan.budgets, content)
            yield from self._deltas(generation, watch, written, stamp)
            generation.timings.absorb(first.timings)
        for earlier in reversed(asked):
            generation.timings.absorb(earlier.timings)
        for delta, logprobs in content.of(parser.finish(written.finish), False):
            yield stamp(delta, logprobs=logprobs)
        raw = b"".join(written.raw)
        parsed, cost = parser.result(), _cost(generation, written.n_reasoning)
        self._remember(plan, raw, generation.tokens, parsed.message)
        found = violations(parsed, request)
        digest = hashlib.sha256(str(plan.prompt).encode("utf-8", "replace")).hexdigest()
        return Outcome(parsed, raw.decode("utf-8", "replace"), cost, found, digest)

    def _remember(self, plan: _Plan, raw: bytes, tokens: Sequence[int], message: dict[str, Any]) -> None:
        """Keep the tokens of a reply as far as the next prompt will repeat it: but for the label of a next section, and
        for a stop text."""
        request, n, family = plan.request, len(tokens), self.dialect_of(plan.request)
        wanted = len(said_before(raw, family.labels)) if family.labels else len(raw)
        wanted = min([wanted, *(at for stop in request.stop if (at := raw.find(stop.encode())) >= 0)])
        while len(raw) > wanted:
            n -= 1
            raw = raw.removesuffix(self.engine.vocabulary.bytes_of(tokens[n : n + 1]))
        with contextlib.suppress(UnicodeDecodeError):  # cut inside a character: no prompt can begin with this text
            text, think = raw.decode("utf-8"), family.think or self._plain.think
            told = retold(self.render, request, plan.prompt, text, message, self._turn_ends, think)
            self._transcripts.remember(told or plan.prompt, "" if told else text, tokens[:n])

    def _deltas(
        self, generation: Generation, watch: Watch, written: _Written, stamp: Stamp
    ) -> Iterator[ChatCompletionChunk]:
        """The chunks of a generation as it comes."""
        generation.watch = watch
        calling = None
        for step in self.engine.read(generation):
            written.raw.append(step.text)
            written.finish = step.finish_reason or written.finish
            for delta, logprobs in watch.deltas.popleft():
                yield stamp(delta, logprobs=logprobs)
            before, calling = calling, watch.calling
            if calling and calling != before:
                yield stamp({}, calling=calling)
        written.n_reasoning = watch.n_reasoning


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What all choices of a reply have in common."""

    request: Request
    prompt: Prompt
    tokens: list[int]  # of the prompt
    is_thoughtful: bool  # sampled as thoughts are; the one line of a text protocol chooses a tool
    grammar: Grammar | None
    calls: Callable[[], Grammar]  # the grammar of a reply that calls
    words: Callable[[], Grammar]  # the grammar of a reply that calls nothing and says something
    budgets: Budgets
    parser: Callable[[], OutputParser]


@dataclasses.dataclass
class _Written:
    """What a choice came to so far."""

    raw: list[bytes] = dataclasses.field(default_factory=list)
    finish: str = "stop"
    n_reasoning: int = 0  # tokens


def _missing_mark(dialect: Dialect, engine: Engine) -> str:
    """The mark around a text in a call, where the vocabulary lacks it: no grammar could tell where the text ends."""
    quotes = {w.shape.quote for w in dialect.wrappers} - {""}
    return next((quote for quote in quotes if quote not in engine.vocabulary.special), "")


def _usable_template(engine: Engine) -> str:
    template = engine.metadata.get("tokenizer.chat_template")
    with_tools = engine.metadata.get("tokenizer.chat_template.tool_use")
    if isinstance(with_tools, str) and "tools" not in str(template):
        template = with_tools  # Hermes 2 Pro and 3 keep them apart
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


def _cost(generation: Generation, n_reasoning: int) -> Cost:
    """With llama.cpp's names for times (server, `timings`), and where our own time went."""
    t = generation.timings
    timings = {
        "cache_n": t.n_cached,
        "prompt_n": t.n_prompt - t.n_cached,
        "prompt_ms": t.prompt_s * 1000,
        "predicted_n": t.n_generated,
        "predicted_ms": t.generate_s * 1000,
        "predicted_steps": t.n_steps,
        "draft_n": t.n_drafted,
        "draft_n_accepted": t.n_accepted,
        "mask_ms": t.mask_s * 1000,
        "sample_ms": t.sample_s * 1000,
    }
    return Cost(generation.n_prompt, generation.n_generated, t.n_cached, n_reasoning, timings)
