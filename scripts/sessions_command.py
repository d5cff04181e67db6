"""`laploop sessions`: the conversations that `laploop chat --session NAME` keeps. It loads no model."""

from __future__ import annotations

import click

from .cache_command import as_json_flag, megabytes
from .sessions import all_sessions, local_time, remove


@click.group(context_settings={"max_content_width": 100})
def sessions() -> None:
    """List and remove the conversations that chat --session NAME keeps.

    They lie in laploop's data folder, each with the state of the model that read it.
    """


@sessions.command("list")
@as_json_flag
def list_sessions(as_json: bool) -> None:
    """The sessions, the latest first."""
    from .visible import clean, json_text

    infos = all_sessions()
    if as_json:
        rows = [
            info._asdict() | {"path": str(info.path), "saved_s": None, "saved": local_time(info.saved_s)}
            for info in infos
        ]
        click.echo(json_text([{k: v for k, v in row.items() if k != "saved_s"} for row in rows]))
        return
    if not infos:
        click.echo("There are no sessions yet (laploop chat --session NAME begins one).", err=True)
    for info in infos:
        messages = "(unreadable)" if info.n_messages is None else f"{info.n_messages:,} messages"
        click.echo(
            f"{clean(info.name):<32} {messages:>16} {megabytes(info.size_bytes):>10}  saved {local_time(info.saved_s)}"
        )


@sessions.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
def rm(names: tuple[str, ...]) -> None:
    """Remove sessions, with their states."""
    from .visible import clean

    for name in names:
        click.echo(f"removed {clean(name)} ({megabytes(remove(name))})")
