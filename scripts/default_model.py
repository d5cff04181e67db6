"""Which model scripts/run uses when none is named: the default, or a smaller one where that is out of reach.

`laploop` itself never replaces a model; scripts/run calls this module, which prints its choice, and hands it
on as LAPLOOP_MODEL. Nothing is remembered: the default is tried again at every call (`resolve_model` asks the
hub for a sign of life first, so that this takes seconds even where nothing answers).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.progress import ProgressFunction
    from laploop.models.files.store import Store

FALLBACK = "qwen2.5-coder-1.5b"
"""The smallest model that answers the sample tasks and also travels inside published packages."""


def choose(
    *,
    fallback: str = FALLBACK,
    offline: bool = False,
    progress: ProgressFunction | None = None,
    catalogue: Catalogue | None = None,
    store: Store | None = None,
) -> tuple[str, str]:
    """Bring a model to disk; return its name, and that of the default where it could not be had, else "".

    Args:
        fallback: the model to take where the default is out of reach.
        offline: use only what is on disk.
        progress: told how a download goes.
        catalogue, store: other ones than laploop's own.

    Raises:
        ModelUnavailableError: neither model is on disk or can be fetched.
        ModelError: the default could be reached but not stored (disk full, wrong bytes): that is no reason to
            take another model.
    """
    from laploop.models import resolve_model
    from laploop.models.errors import ModelUnavailableError
    from laploop.models.files.catalogue import Catalogue

    default = (catalogue or Catalogue.load()).default

    def get(name: str) -> None:
        resolve_model(name, offline=offline or None, progress=progress, catalogue=catalogue, store=store)

    try:
        get(default)
    except ModelUnavailableError as first:
        try:
            get(fallback)
        except ModelUnavailableError as second:
            raise ModelUnavailableError(f"{first} The smaller one: {second}") from second
        return fallback, default
    return default, ""


def main(arguments: list[str]) -> int:
    """Print the model's name on stdout, a line on stderr if it is not the default; returns the exit code.

    Args:
        arguments: those of `laploop`, which are checked first: a mistyped flag is no reason to fetch a model.
    """
    import click

    from .cli import EXIT_USAGE, check, complain
    from .usage import usage_message

    try:
        check(arguments)
    except click.UsageError as error:
        complain(usage_message(error))
        return EXIT_USAGE
    from laploop.models import ModelError

    from .progress import progress_printer

    try:
        with progress_printer() as progress:
            name, instead_of = choose(offline="--offline" in arguments, progress=progress)
    except ModelError as error:
        print(f"laploop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("laploop: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    if instead_of:
        why = f"`scripts/run models pull {instead_of}` says why, -m names another model"
        print(f"laploop: {instead_of} cannot be reached from here, using {name} ({why})", file=sys.stderr)
    print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
