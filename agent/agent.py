"""Agent: a model, tools and settings, asked as often as one likes. Each question is a Run of its own.

Sync is the core; `astream` wraps it in a thread.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from laploop.models import ContextUse, Model
from laploop.models.requests.plain import text_of
from laploop.tools import Tool, given_up
from typing_extensions import TypedDict, Unpack

from .approval import Approvals
from .as_tool import agent_tool
from .choice import ToolChoice, check_choice
from .errors import ConfigError, HistoryError
from .events import Event, RunFinished
from .given import Tools, check_is, check_model, check_options, registry_of
from .guards import Guards
from .history import check_history, messages_of
from .in_thread import in_thread
from .limits import Limits
from .loop import run_loop
from .memory import Memory
from .prompts import language_of_messages, system_prompt, texts_for
from .result import RunResult
from .run import Run, Settings
from .schemas import check_schemas
from .session import Opening, Session
from .stop import Stop
from .tokens import TokenCounter
from .trace import Trace
from .trace_folder import TraceFolder
from .visibility import Bm25Selector, ToolSelector, Visible, names_of, tools_of_run

#: Most tokens of one reply, thinking not counted: small models sometimes never end by themselves.
DEFAULT_MAX_TOKENS = 2048
DEFAULT_SELECTOR = Bm25Selector()

Question = str | Sequence[dict[str, Any]]


class RunOptions(TypedDict, total=False):
    """What can be set for one run, in the place of the agent's own setting."""

    visible: Visible | None
    approvals: Approvals | None


class Agent:
    """A tool-calling agent.

    Args:
        model: ChatModel, ScriptedModel or OpenAIModel.
        tools: Tools or plain functions (or a ToolRegistry). Schemas are checked here.
        system_prompt: replaces the built-in rules; "" sends none. Messages that begin with a system message
            keep theirs.
        max_rounds: tool rounds at most (`limits.max_rounds`); then a final answer is asked for from what was observed.
        on_limit: "answer", or "raise" to get a LimitError at that point.
        parallel: whether the calls of one reply run at the same time.
        max_parallel: calls at one time at most.
        limits: caps on rounds, calls, tokens and time, in the place of max_rounds.
        guards: when a model counts as stuck.
        memory: how long results and histories may get before they are cut and summarized.
        approvals: which calls wait for a person, and who is asked. By default those that write, or cannot be undone,
            are denied: nobody can be asked.
        visible: names of tools or groups that may be called, or a callable that says so before each round. The others
            are masked; the prompt stays the same.
        selector: chooses the tools of a run before its first prompt, which gets shorter: by default the 16 that go best
            with the question, where there are more. None: all.
        traces: a folder that each run writes its trace to, event by event, for `laploop trace`; None: `RunResult.trace`
            is all there is. Secrets are taken out by rule (`Redaction`), in the file only.
        tool_choice: OpenAI's; "required" and a named function hold for the first reply only, or no answer
            could follow.
        parallel_tool_calls: whether one reply may hold several calls (None: the model's default).
        sampling fields: passed to the model where they are set; None leaves the model's own default for this
            kind of round. max_tokens (2048 where None) and thinking_budget in tokens.

    Raises:
        ConfigError: no model, no list of tools, a bad schema, an unknown tool in tool_choice, a number out of range.
        ToolError: something in the list of tools is no tool, or two have one name.
    """

    def __init__(
        self,
        model: Model,
        tools: Tools = (),
        system_prompt: str | None = None,
        max_rounds: int | None = None,
        on_limit: str = "answer",
        parallel: bool = True,
        max_parallel: int = 8,
        *,
        limits: Limits | None = None,
        guards: Guards | None = None,
        memory: Memory | None = None,
        approvals: Approvals | None = None,
        visible: Visible | None = None,
        selector: ToolSelector | None = DEFAULT_SELECTOR,
        traces: TraceFolder | str | Path | None = None,
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
        if not isinstance(max_parallel, int) or max_parallel < 1:
            raise ConfigError(f"max_parallel is {max_parallel!r}; expected 1 or more")
        check_model(model)
        for name, value, kind in (
            ("limits", limits, Limits),
            ("guards", guards, Guards),
            ("memory", memory, Memory),
            ("approvals", approvals, Approvals),
        ):
            check_is(name, value, kind)
        if limits is not None and max_rounds is not None:
            raise ConfigError("max_rounds and limits are both given; set max_rounds in limits")
        if limits is None:
            limits = Limits() if max_rounds is None else Limits(max_rounds=max_rounds)
        self.model = model
        self.tools = registry_of(tools)
        self.system_prompt = system_prompt
        check_schemas(self.tools)
        check_choice(tool_choice, self.tools.names())
        if visible is not None and not callable(visible):
            names_of(visible, self.tools)
        self.approvals = approvals or Approvals()
        self._traces = TraceFolder(traces) if isinstance(traces, (str, Path)) else traces
        check_is("traces", self._traces, TraceFolder)
        self._visible = visible
        self._selector = selector
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
            limits=limits,
            raise_on_limit=on_limit == "raise",
            max_parallel=max_parallel if parallel else 1,
            tool_choice=tool_choice,
            request={k: v for k, v in sampling.items() if v is not None},
            guards=guards or Guards(),
            memory=memory or Memory(),
        )
        self._active: set[Run] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        names = ", ".join(self.tools.names())
        return f"<Agent over {self.model!r}, tools: {names or 'none'}>"

    def run(self, question: Question, session: Session | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Ask and wait for the end.

        Args:
            question: a text, or messages.
            session: what was said before; it is extended.
            options: see RunOptions.

        Raises:
            HistoryError: the question is empty, or the messages break the protocol.
            ConfigError: an option that does not exist, or `visible` names a tool that does not.
            LimitError: on_limit="raise" and a cap was reached.
            ModelError, EngineError: the model failed. The session is then as it was.
        """
        return _last(self.stream(question, session, **options))

    def stream(
        self, question: Question, session: Session | None = None, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        """Ask and get events as they happen; the last is RunFinished. Closing the iterator breaks the run
        off.

        Raises what `run` does: HistoryError and ConfigError at once, the others while iterating.
        """
        return self._events(self._start(question, session, options), session)

    async def arun(
        self, question: Question, session: Session | None = None, **options: Unpack[RunOptions]
    ) -> RunResult:
        """`run` for asyncio."""
        result = None
        async for event in self.astream(question, session, **options):
            if isinstance(event, RunFinished):
                result = event.result
        assert result is not None, "a run that does not raise ends with RunFinished"
        return result

    async def astream(
        self, question: Question, session: Session | None = None, **options: Unpack[RunOptions]
    ) -> AsyncIterator[Event]:
        """`stream` for asyncio: the run goes on in a thread; leaving the iterator cancels it and waits for
        its end.
        """
        run = self._start(question, session, options)
        async with aclosing(in_thread(self._events(run, session), run.stop.set)) as events:
            async for event in events:
                yield event

    def cancel(self, call_id: str | None = None) -> None:
        """End every run of this agent that is going on, from any thread: stop_reason "cancelled". With a `call_id`,
        give up that call only: its result says so, and the run goes on.

        Takes effect after the model's next step (a server's next piece of text), or within a tenth of a second while
        tools run. A tool that is running is not waited for; an isolated one is killed.
        """
        with self._lock:
            for run in self._active:
                if call_id is None:
                    run.stop.set()
                else:
                    run.stop_call(call_id)

    def as_tool(self, name: str, description: str, *, timeout_s: float | None = None) -> Tool:
        """This agent as a tool of another: it is given a question and returns the answer.

        It has its own prompt, tools and history, over the same loaded model; each call is a run of its own. Its own
        approvals hold for what it calls; the tool declares the effects that they let pass unasked. When the call is
        given up, so is the run.

        Args:
            name: the tool's name.
            description: what it can be asked, and what it returns, for the other model.
            timeout_s: seconds until a call is given up; None leaves it to this agent's limits.
        """

        return agent_tool(self, name, description, timeout_s)

    def prompt_for(self, messages: Sequence[dict[str, Any]], tools: Iterable[Tool] | None = None) -> str | None:
        """The system prompt that a run over these messages gets; None for none.

        Args:
            messages: of the run.
            tools: those that the run's selector chose; None for all.
        """
        if messages and messages[0].get("role") in ("system", "developer"):
            return None
        if self.system_prompt is not None:
            return self.system_prompt or None
        return system_prompt(list(self.tools if tools is None else tools), language_of_messages(messages))

    def context(self, session: Session | None = None) -> ContextUse:
        """How full the model's context is before the next question: system prompt, tools, and each of the session's
        messages (the first number is the system prompt's, where the agent adds one). Exact where the model counts
        tokens itself, as those in this process do.
        """
        messages = list(session.messages) if session else []
        prompt = self.prompt_for(messages)
        system = [{"role": "system", "content": prompt}] if prompt is not None else []
        return TokenCounter(self.model, self.tools.to_openai()).use([*system, *messages])

    def _start(self, question: Question, session: Session | None, options: RunOptions) -> Run:
        check_options(options, RunOptions.__annotations__)
        check_is("approvals", options.get("approvals"), Approvals)
        check_is("session", session, Session)
        new = messages_of(question)
        if not new or not any(text_of(m).strip() or m.get("tool_calls") for m in new):
            raise HistoryError("the question is empty; expected a text or a list of messages")
        messages = [*(session.messages if session else ()), *new]
        check_history(messages)
        asked = next((text_of(m) for m in reversed(new) if m.get("role") == "user"), "")
        tools = tools_of_run(self.tools, self._selector, asked, messages, self.settings.tool_choice)
        prompt = self.prompt_for(messages, tools)
        if prompt is not None:
            messages.insert(0, {"role": "system", "content": prompt})
        visible = options.get("visible", self._visible)
        if visible is not None and not callable(visible):
            names_of(visible, self.tools)
            visible = [name for name in names_of(visible, self.tools) if name in tools]
        run = Run(
            self.model,
            tools,
            self.settings,
            messages,
            texts_for(language_of_messages(messages)),
            options.get("approvals") or self.approvals,
            visible,
            Trace(sink=self._traces.begin() if self._traces else None),
            stop=Stop(self.settings.limits.timeout_s, parent=given_up()),
        )
        run.trace.add(
            "run_started",
            started_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            question=asked,
            system_prompt=prompt,
            model=self.model.name,
            tools=tools.to_openai(),
            max_rounds=self.settings.limits.max_rounds,
            request=self.settings.request,
            settings={
                "n_ctx": run.counter.n_ctx,
                "tool_choice": self.settings.tool_choice,
                "on_limit": "raise" if self.settings.raise_on_limit else "answer",
                "max_parallel": self.settings.max_parallel,
                "limits": asdict(self.settings.limits),
                "guards": asdict(self.settings.guards),
                "memory": asdict(self.settings.memory),
                "approvals": dict(run.approvals.policy),
                "tools": {
                    tool.name: {
                        "effects": sorted(tool.effects),
                        "run_alone": tool.run_alone,
                        "timeout_s": tool.timeout_s,
                    }
                    for tool in tools
                },
            },
            messages=list(messages),
        )
        return run

    def _events(self, run: Run, session: Session | None) -> Generator[Event, None, None]:
        """The loop with its surroundings: the trace, cancellation, and the session at the end."""
        has_prompt = run.trace.records[0]["system_prompt"] is not None
        if session is not None:
            with session.in_run(run.messages[1:] if has_prompt else run.messages):
                yield from self._loop(run, session, has_prompt)
        else:
            yield from self._loop(run, session, has_prompt)

    def _loop(self, run: Run, session: Session | None, has_prompt: bool) -> Generator[Event, None, None]:
        with self._lock:
            self._active.add(run)
        try:
            for event in run_loop(run):
                run.trace.add_event(event)
                yield event
        except (GeneratorExit, KeyboardInterrupt):
            run.settle()
            run.trace.add("run_broken_off")
            _remember(run, session, has_prompt)
            raise
        except Exception as error:
            run.trace.add("run_failed", error=type(error).__name__, message=str(error))
            raise
        else:
            _remember(run, session, has_prompt)
        finally:
            run.stop.set()  # whoever still looks at it
            run.trace.close()
            with self._lock:
                self._active.discard(run)


def _remember(run: Run, session: Session | None, has_prompt: bool) -> None:
    if session is not None:
        n = 1 if has_prompt else 0
        session.messages[:] = run.messages[n:]
        session.opening = Opening(tuple(run.messages[:n]), run.request("auto" if run.tools.names() else None))


def _last(events: Iterator[Event]) -> RunResult:
    result = None
    for event in events:
        if isinstance(event, RunFinished):
            result = event.result
    assert result is not None, "a run that does not raise ends with RunFinished"
    return result
