"""Agent: a model, tools and settings, asked as often as one likes. Each question is a Run of its own.

Sync is the core; `astream` wraps it in one thread, here and nowhere else.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from laploop.models import Model
from laploop.tools import Tool, ToolRegistry

from .choice import ToolChoice, check_choice
from .errors import ConfigError, HistoryError
from .events import Event, RunFinished
from .history import check_history, messages_of
from .loop import run_loop
from .prompts import language_of_messages, system_prompt, text_of, texts_for
from .result import RunResult
from .run import Run, Settings
from .schemas import check_schemas
from .session import Session

#: Most tokens of one reply, thinking not counted: small models sometimes never end by themselves.
DEFAULT_MAX_TOKENS = 2048

Question = str | Sequence[dict[str, Any]]


class Agent:
    """A tool-calling agent.

    Args:
        model: ChatModel, ScriptedModel or OpenAIModel.
        tools: Tools or plain functions (or a ToolRegistry). Schemas are checked here.
        system_prompt: replaces the built-in rules; "" sends none. Messages that begin with a system message
            keep theirs.
        max_rounds: tool rounds at most; then a final answer is asked for from what was observed.
        on_limit: "answer", or "raise" to get a RoundLimitError at that point.
        parallel: whether the calls of one reply run at the same time.
        max_parallel: threads at most.
        tool_choice: OpenAI's; "required" and a named function hold for the first reply only, or no answer
            could follow.
        parallel_tool_calls: whether one reply may hold several calls (None: the model's default).
        sampling fields: passed to the model where they are set; None leaves the model's own default for this
            kind of round. max_tokens (2048 where None) and thinking_budget in tokens.

    Raises:
        ConfigError: a bad schema, an unknown tool in tool_choice, a number out of range.
    """

    def __init__(
        self,
        model: Model,
        tools: ToolRegistry | Iterable[Tool | Callable[..., Any]] = (),
        system_prompt: str | None = None,
        max_rounds: int = 5,
        on_limit: str = "answer",
        parallel: bool = True,
        max_parallel: int = 8,
        *,
        tool_choice: ToolChoice = "auto",
        parallel_tool_calls: bool | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        max_tokens: int | None = None,
        enable_thinking: bool | None = None,
        thinking_budget: int | None = None,
        seed: int | None = None,
    ) -> None:
        if on_limit not in ("answer", "raise"):
            raise ConfigError(f'on_limit is {on_limit!r}; expected "answer" or "raise"')
        for name, number in (("max_rounds", max_rounds), ("max_parallel", max_parallel)):
            if not isinstance(number, int) or number < 1:
                raise ConfigError(f"{name} is {number!r}; expected 1 or more")
        self.model = model
        self.tools = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.system_prompt = system_prompt
        check_schemas(self.tools)
        check_choice(tool_choice, self.tools.names())
        sampling = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "max_tokens": DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens,
            "enable_thinking": enable_thinking,
            "thinking_budget": thinking_budget,
            "seed": seed,
            "parallel_tool_calls": parallel_tool_calls,
        }
        self.settings = Settings(
            max_rounds=max_rounds,
            raise_on_limit=on_limit == "raise",
            max_parallel=max_parallel if parallel else 1,
            tool_choice=tool_choice,
            request={k: v for k, v in sampling.items() if v is not None},
        )
        self._active: set[threading.Event] = set()
        self._lock = threading.Lock()

    def run(self, question: Question, session: Session | None = None) -> RunResult:
        """Ask and wait for the end.

        Raises:
            HistoryError: the question is empty, or the messages break the protocol.
            RoundLimitError: on_limit="raise" and the cap was reached.
            ModelError, EngineError: the model failed. The session is then as it was.
        """
        return _last(self.stream(question, session))

    def stream(self, question: Question, session: Session | None = None) -> Generator[Event, None, None]:
        """Ask and get events as they happen; the last is RunFinished. Closing the iterator breaks the run
        off.

        Raises what `run` does: HistoryError at once, the others while iterating.
        """
        return self._events(self._start(question, session), session, threading.Event())

    async def arun(self, question: Question, session: Session | None = None) -> RunResult:
        """`run` for asyncio."""
        result = None
        async for event in self.astream(question, session):
            if isinstance(event, RunFinished):
                result = event.result
        assert result is not None, "a run that does not raise ends with RunFinished"
        return result

    async def astream(self, question: Question, session: Session | None = None) -> AsyncIterator[Event]:
        """`stream` for asyncio: the run goes on in a thread; leaving the iterator cancels it and waits for
        its end.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        flag = threading.Event()
        events = self._events(self._start(question, session), session, flag)

        def post(item: Event | BaseException | None) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, item)

        def work() -> None:
            try:
                for event in events:
                    post(event)
            except BaseException as error:  # noqa: BLE001 - handed over to the awaiting side, which raises it
                post(error)
            finally:
                post(None)

        worker = threading.Thread(target=work, name="laploop-run", daemon=True)
        worker.start()
        try:
            while (item := await arrived.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            flag.set()
            await asyncio.shield(loop.run_in_executor(None, worker.join))

    def cancel(self) -> None:
        """End every run of this agent that is going on, from any thread: stop_reason "cancelled".

        Takes effect at the model's next piece of text, or within a tenth of a second while tools run. A tool
        that is running is not waited for.
        """
        with self._lock:
            for flag in self._active:
                flag.set()

    def prompt_for(self, messages: Sequence[dict[str, Any]]) -> str | None:
        """The system prompt that a run over these messages gets; None for none."""
        if messages and messages[0].get("role") in ("system", "developer"):
            return None
        if self.system_prompt is not None:
            return self.system_prompt or None
        return system_prompt(list(self.tools), language_of_messages(messages))

    def _start(self, question: Question, session: Session | None) -> Run:
        new = messages_of(question)
        if not new or not any(text_of(m).strip() or m.get("tool_calls") for m in new):
            raise HistoryError("the question is empty; expected a text or a list of messages")
        messages = [*(session.messages if session else ()), *new]
        check_history(messages)
        prompt = self.prompt_for(messages)
        if prompt is not None:
            messages.insert(0, {"role": "system", "content": prompt})
        run = Run(self.model, self.tools, self.settings, messages, texts_for(language_of_messages(messages)))
        run.trace.add(
            "run_started",
            started_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            question=next((text_of(m) for m in reversed(new) if m.get("role") == "user"), ""),
            system_prompt=prompt,
            model=self.model.name,
            tools=self.tools.to_openai(),
            max_rounds=self.settings.max_rounds,
            request=self.settings.request,
            messages=list(messages),
        )
        return run

    def _events(self, run: Run, session: Session | None, flag: threading.Event) -> Generator[Event, None, None]:
        """The loop with its surroundings: the trace, cancellation, and the session at the end."""
        run.cancelled = flag
        has_prompt = run.trace.records[0]["system_prompt"] is not None
        with self._lock:
            self._active.add(flag)
        try:
            for event in run_loop(run):
                run.trace.add_event(event)
                yield event
        except (GeneratorExit, KeyboardInterrupt):
            run.settle()
            _remember(run, session, has_prompt)
            raise
        else:
            _remember(run, session, has_prompt)
        finally:
            with self._lock:
                self._active.discard(flag)


def _remember(run: Run, session: Session | None, has_prompt: bool) -> None:
    if session is not None:
        session.messages[:] = run.messages[1 if has_prompt else 0 :]


def _last(events: Iterator[Event]) -> RunResult:
    result = None
    for event in events:
        if isinstance(event, RunFinished):
            result = event.result
    assert result is not None, "a run that does not raise ends with RunFinished"
    return result
