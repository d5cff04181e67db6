"""`laploop chat`: questions in a row to one loaded model, which remembers. It knows a prompt line and its
commands.

On a terminal the line has history and may span lines (Alt-Enter, or a backslash at the end); with piped input
every line is a question and only the answers are printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import background
from .ask import answer, make_agent, report
from .cli import EXIT_ERROR, complain
from .folder_config import with_folder
from .options import Options, UsageFault, collect, flag, shared_options

if TYPE_CHECKING:
    from laploop.models import Model
    from laploop.tools import Tool

    from .sessions import Keeper
    from .terminal import View

HELP = """\
/help              this text
/clear             forget the conversation
/context           how full the context is, and what of it each message takes
/tools             the tools that the model may call
/approvals         which calls run, and what you answered; /approvals forget asks again
/think on|off|auto think before answering, or not; auto leaves it to the model
/exit, /quit       leave (so does Ctrl-D)
Alt-Enter, or a backslash at the end of a line, starts a new line. Ctrl-C stops an answer."""


def no_question(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> None:
    """Refuse what was meant for `ask`."""
    if words:
        raise UsageFault(
            f'laploop chat takes no question: start it, then type. For one answer: laploop ask "{" ".join(words)}"'
        )


@click.command(context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="", expose_value=False, callback=no_question)
@flag("--session", "session_name", metavar="NAME", help="Keep the conversation under this name, and go on with it.")
@shared_options()
@click.pass_context
def chat(ctx: click.Context, /, session_name: str | None, **values: Any) -> int:
    """Talk with a model that stays loaded and remembers."""
    options = with_folder(collect(ctx, values))
    from .loading import chosen_tools, loaded_model
    from .terminal import make_view
    from .visible import clean

    tools = chosen_tools(options)
    with contextlib.ExitStack() as stack:
        keeper = None
        if session_name is None:
            model = stack.enter_context(loaded_model(options))
        else:
            from .sessions import Keeper, opened

            path = stack.enter_context(opened(session_name))
            model = stack.enter_context(loaded_model(options))
            keeper = stack.enter_context(Keeper(path, model))
            click.echo(clean(keeper.greeting()), err=True)
        lines = prompted_lines(f"{model.name} · /help") if sys.stdin.isatty() else piped_lines()
        return Conversation(model, tools, options, make_view, keeper).hold(lines)


class Conversation:
    """A session with a model, fed with lines."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool],
        options: Options,
        make_view: Callable[[], View],
        keeper: Keeper | None = None,
    ) -> None:
        from laploop.agent import Session

        from .approval_prompt import make_approvals

        self._keeper = keeper
        self.session = keeper.session if keeper else Session()
        self._approvals = make_approvals(options.approve)  # what was answered holds for the whole chat
        self.options = options
        self._model = model
        self._tools = tools
        self._make_view = make_view
        self._agent = make_agent(model, tools, options, self._approvals)
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: click.echo(HELP, err=True),
            "/clear": self._clear,
            "/context": self._show_context,
            "/tools": self._show_tools,
            "/approvals": self._show_approvals,
            "/think": self._think,
        }

    def hold(self, lines: Iterator[str]) -> int:
        """Answer line after line until they end or one says /exit; 1 if a question failed."""
        code = 0
        for line in lines:
            text = line.strip()
            if text.split()[:1] in (["/exit"], ["/quit"]):
                break
            if text.startswith("/"):
                self._command(text)
            elif text:
                code = self._ask(text) or code
        return code

    def _ask(self, question: str) -> int:
        from laploop.agent import AgentError
        from laploop.engine import EngineError
        from laploop.models import ModelError

        if self._keeper:
            self._keeper.pause()
        try:
            report(answer(self._agent, question, self._make_view(), self.session))
        except KeyboardInterrupt:
            click.echo(err=True)  # behind the terminal's own ^C
            background.wait()  # the run ends at its next token; until then the model is not free
            complain("stopped; the conversation goes on")
        except (AgentError, EngineError, ModelError) as error:
            complain(f"{error} (/clear forgets the conversation)")
            return EXIT_ERROR
        finally:
            if self._keeper:
                self._keeper.keep()
        return 0

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        command = self._commands.get(name)
        if command is None:
            complain(f"there is no {name}; the commands are {', '.join(self._commands)}, /exit, /quit")
        else:
            command(rest.strip())

    def _clear(self, value: str) -> None:
        if _takes_nothing("/clear", value):
            return
        self.session.clear()
        if self._keeper:
            self._keeper.keep()
        click.echo("The conversation is forgotten.", err=True)

    def _show_context(self, value: str) -> None:
        if _takes_nothing("/context", value):
            return
        from .context_lines import context_lines

        click.echo("\n".join(context_lines(self._agent.context(self.session), self.session.messages)), err=True)

    def _show_tools(self, value: str) -> None:
        if _takes_nothing("/tools", value):
            return
        for tool in self._tools:
            click.echo(f"{tool.name}: {' '.join(tool.description.split())}", err=True)
        if not self._tools:
            click.echo("There are no tools (--no-tools).", err=True)

    def _show_approvals(self, value: str) -> None:
        from .approval_prompt import as_lines

        if value == "forget":
            self._approvals.forget()
        elif value:
            complain(f"/approvals takes nothing, or forget, not {value!r}")
            return
        click.echo("\n".join(as_lines(self._approvals)), err=True)

    def _think(self, value: str) -> None:
        if value == "on" and not self._model.can_think:
            complain(f"{self._model.name} has no thinking mode; nothing changes")
            return
        if value in ("on", "off", "auto"):
            self.options = replace(self.options, reasoning=value)
            self._agent = make_agent(self._model, self._tools, self.options, self._approvals)
        elif value:
            complain(f"/think takes on, off or auto, not {value!r}")
            return
        click.echo(f"Thinking: {self.options.reasoning}.", err=True)


def _takes_nothing(command: str, value: str) -> bool:
    """True, and a word on it, where something stands behind a command that takes nothing."""
    if value:
        complain(f"{command} takes nothing, not {value!r}")
    return bool(value)


def piped_lines() -> Iterator[str]:
    """The lines of standard input; a backslash at the end joins the next one."""
    waiting = ""
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if text.endswith("\\"):
            waiting += text[:-1] + "\n"
            continue
        yield waiting + text
        waiting = ""
    if waiting:
        yield waiting


def prompted_lines(title: str) -> Iterator[str]:
    """What is typed at a prompt, until Ctrl-D; Ctrl-C throws the line away. History is kept in the data
    folder, where that can be read and written.
    """
    from laploop.engine.folders import data_dir
    from prompt_toolkit import PromptSession

    history = _history(data_dir() / "chat-history.txt")
    session: PromptSession[str] = PromptSession(history=history, key_bindings=_keys(), multiline=True)
    click.echo(title, err=True)
    while True:
        try:
            yield session.prompt("> ", prompt_continuation="  ")
        except KeyboardInterrupt:  # noqa: PERF203 - one try per line that a person types
            click.echo("Ctrl-D or /exit leaves.", err=True)
        except EOFError:
            return


def _history(path: Path) -> Any:
    """The lines typed before, kept in a file; without it (a home that is read-only, a full disk) for this chat only."""
    from prompt_toolkit.history import FileHistory

    class Kept(FileHistory):
        """prompt_toolkit itself lets a file's error end the prompt."""

        is_told = False

        def load_history_strings(self) -> Iterable[str]:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                if path.stat().st_mode & 0o077:  # what a person types is nobody else's to read
                    path.chmod(0o600)
                yield from super().load_history_strings()
            except OSError as error:
                self.tell(error)

        def store_string(self, string: str) -> None:
            try:
                super().store_string(string)
            except OSError as error:
                self.tell(error)

        def tell(self, error: OSError) -> None:
            if not self.is_told:
                self.is_told = True
                complain(f"lines are not kept for the next chat: {path}: {error.strerror or error}")

    return Kept(str(path))


def _keys() -> Any:
    """Enter sends, unless a backslash stands before the cursor; Alt-Enter starts a new line."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
