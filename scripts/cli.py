"""The `laploop` command: finds the sub-command, turns every known failure into one line and an exit code.

It knows no flags of sub-commands and imports them only when they are needed. A first argument that is neither
a sub-command nor an option is a question: `laploop "…"` is `laploop ask "…"`. Exit codes: docs/cli.md.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from .options import UsageFault
from .streams import prepare_streams
from .usage import usage_message

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

COMMANDS = {
    "ask": "laploop.scripts.ask:ask",
    "bench": "laploop.scripts.bench_command:bench",
    "cache": "laploop.scripts.cache_command:cache",
    "chat": "laploop.scripts.chat:chat",
    "demo": "laploop.scripts.demo:demo",
    "models": "laploop.scripts.models_command:models",
    "sessions": "laploop.scripts.sessions_command:sessions",
    "tools": "laploop.scripts.tools_command:tools",
    "trace": "laploop.scripts.trace_command:trace",
}
OWN_OPTIONS = ("-h", "--help", "--version")
# click 8.2 and later raises this for `laploop models`; before, it printed the help itself.
_NO_SUB_COMMAND: tuple[type[click.UsageError], ...] = (
    (vars(click.exceptions)["NoArgsIsHelpError"],) if "NoArgsIsHelpError" in vars(click.exceptions) else ()
)


class LazyGroup(click.Group):
    """A group whose sub-commands are imported when they are first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command, imported now; None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"laploop {version('laploop')}")
    except PackageNotFoundError:
        click.echo("laploop (not installed)")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every long flag has a variable: --ctx-size is LAPLOOP_CTX_SIZE. Flags win. "
    'laploop "question" is short for laploop ask "question".',
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
def cli() -> None:
    """Ask a language model that runs in this process, with tools."""


def arrange(arguments: Sequence[str]) -> list[str]:
    """Put the sub-command first: `ask` where none is named, or one that stands behind its own options.

    Raises UsageFault for a single word that looks like a mistyped sub-command.
    """
    args = list(arguments)
    if args[:1] == ["help"] and len(args) <= 2 and all(word in COMMANDS for word in args[1:]):
        return [*args[1:], "--help"]
    if not args or args[0] in OWN_OPTIONS or args[0] in COMMANDS:
        return args
    at = _first_word(args)
    if at is not None and args[at] in COMMANDS:
        return [args[at], *args[:at], *args[at + 1 :]]
    if at is not None and _first_word(args[at + 1 :]) is None:
        near = difflib.get_close_matches(args[at], COMMANDS, n=1, cutoff=0.75)
        if near:
            raise UsageFault(
                f'there is no command "{args[at]}"; did you mean "laploop {near[0]}"? '
                f'To ask it as a question: laploop ask "{args[at]}"'
            )
    return ["ask", *args]


def check(arguments: Sequence[str]) -> None:
    """Raise click's UsageError for arguments that `run` would refuse, and run nothing: for scripts/run, which fetches a
    model first."""
    args = arrange(arguments)
    command = cli.get_command(click.Context(cli), args[0]) if args else None
    if command is not None:
        command.make_context(args[0], args[1:], parent=click.Context(cli, info_name="laploop"))


def _first_word(args: list[str]) -> int | None:
    """Where the first argument stands that is neither an option of `ask` nor an option's value."""
    from .ask import ask

    takes_value = {
        name for option in ask.params if isinstance(option, click.Option) and not option.is_flag for name in option.opts
    }
    at = 0
    while at < len(args):
        if args[at] == "--" or not args[at].startswith("-") or args[at] == "-":
            return None if args[at] == "--" else at
        at += 2 if args[at] in takes_value else 1
    return None


def run(arguments: Sequence[str]) -> int:
    """Run the command; every failure that has a known cause is one line on stderr. Returns the exit code."""
    try:
        args = arrange(arguments)
        if not args:
            click.echo(cli.get_help(click.Context(cli, info_name="laploop")))
            return 0
        code = cli.main(args=args, prog_name="laploop", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        if error.ctx is not None and isinstance(error, _NO_SUB_COMMAND):
            click.echo(error.ctx.get_help())
            return 0
        complain(usage_message(error))
        return EXIT_USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return EXIT_ERROR
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is left to say, and a flush would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        if os.environ.get("LAPLOOP_DEBUG"):
            raise
        complain(_message_of(error))
        return EXIT_ERROR


def complain(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    from .visible import clean

    click.echo(f"laploop: {' '.join(clean(message).split())}", err=True)


def _message_of(error: Exception) -> str:
    from laploop.agent.errors import AgentError
    from laploop.engine.errors import EngineError
    from laploop.models.errors import ModelError
    from laploop.tools.errors import ToolError

    if isinstance(error, (EngineError, ModelError, ToolError, AgentError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    name = type(error).__name__
    return f"unexpected {name}: {error} (a fault of laploop; LAPLOOP_DEBUG=1 shows where)"


def main() -> Any:
    """Entry point of the `laploop` command."""
    prepare_streams()
    warnings.showwarning = lambda message, *_, **__: complain(str(message))
    code = run(sys.argv[1:])
    from .background import leave

    leave(code)


if __name__ == "__main__":
    main()
