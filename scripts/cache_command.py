"""`laploop cache`: what is saved of prompts, so that no process computes it again. It loads no model."""

from __future__ import annotations

import time

import click

from .options import flag

as_json_flag = flag("--json", "as_json", is_flag=True, default=False, help="Print JSON.")


@click.group(context_settings={"max_content_width": 100})
def cache() -> None:
    """Look at saved prompt states, and clear them.

    What every question begins with, the system prompt and the tools, is computed once and saved; questions and answers
    are not. The states lie in laploop's cache folder; the models are not touched by any of these commands.
    """


@cache.command("list")
@as_json_flag
def list_states(as_json: bool) -> None:
    """The saved states, the latest used first."""
    from laploop.engine.prefix_store import PrefixStore

    from .visible import clean, json_text

    entries = PrefixStore.default().entries()
    if as_json:
        click.echo(
            json_text(
                [
                    {
                        "model": entry.model,
                        "n_tokens": entry.n_tokens,
                        "size_bytes": entry.size_bytes,
                        "used": _local_time(entry.used_s),
                        "path": str(entry.path),
                    }
                    for entry in entries
                ]
            )
        )
        return
    if not entries:
        click.echo("There are no saved states yet.", err=True)
    for entry in entries:
        model = "(unreadable)" if entry.model is None else entry.model or "(no name)"
        tokens = "" if entry.n_tokens is None else f"{entry.n_tokens:,} tokens"
        click.echo(
            f"{clean(model):<32} {tokens:>14} {megabytes(entry.size_bytes):>10}  used {_local_time(entry.used_s)}"
        )


@cache.command()
@as_json_flag
def size(as_json: bool) -> None:
    """How many states there are, how many bytes, and where."""
    from laploop.engine.prefix_store import PrefixStore

    from .visible import clean, json_text

    store = PrefixStore.default()
    n_states, size_bytes = len(store.entries()), store.size_bytes()
    if as_json:
        click.echo(json_text({"states": n_states, "size_bytes": size_bytes, "path": str(store.folder)}))
        return
    click.echo(f"{n_states} states, {megabytes(size_bytes)}, in {clean(str(store.folder))}")


@cache.command()
@as_json_flag
def clear(as_json: bool) -> None:
    """Remove all states; the next question of each kind is computed anew."""
    from laploop.engine.prefix_store import PrefixStore

    from .visible import json_text

    n_states, size_bytes = PrefixStore.default().clear()
    if as_json:
        click.echo(json_text({"removed": n_states, "size_bytes": size_bytes}))
        return
    click.echo(f"removed {n_states} states ({megabytes(size_bytes)})")


def megabytes(size_bytes: int) -> str:
    """A size for people."""
    return f"{size_bytes / 1e6:,.1f} MB"


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
