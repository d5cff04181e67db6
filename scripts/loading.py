"""From the flags to a loaded model and its tools, with a word on stderr while it takes long. It asks nothing
of either.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from . import background
from .cli import complain
from .options import Options, UsageFault

if TYPE_CHECKING:
    from laploop.models import Model
    from laploop.tools import Tool, WebConfig

QUIET_S = 1.0  # loading that is over sooner is not worth a line


@contextlib.contextmanager
def loaded_model(options: Options) -> Iterator[Model]:
    """Find (and if need be fetch) the model that the flags name, load it, and free it at the end.

    Raises ModelError or EngineError. Ctrl-C is answered at once, also while native code loads.
    """
    from laploop.engine import Engine, EngineConfig
    from laploop.models import ChatModel, resolve_model

    from .progress import progress_printer

    config = EngineConfig(**options.engine_settings())
    with progress_printer() as progress:
        resolved = background.call(lambda: resolve_model(options.spec, offline=options.offline, progress=progress))
    with _status(f"Loading {resolved.name} …"):
        model = background.call(lambda: ChatModel(Engine.load(resolved.path, config), resolved.name))
    if options.ctx_size and model.engine.n_ctx < options.ctx_size:
        used = f"{model.engine.n_ctx} is used"
        complain(f"a context of {options.ctx_size} is more than {resolved.name} was trained for; {used}")
    try:
        yield model
    finally:
        if not background.is_busy():  # freeing a model under a thread that decodes with it would crash
            model.close()


def chosen_tools(options: Options, web: WebConfig | None = None) -> list[Tool]:
    """The built-in tools, with the file tools inside --root, and those that flags or the folder add; none with
    --no-tools.
    """
    if options.no_tools:
        unused = {"-T": options.tool, "--db": options.db, "--docs": options.docs, "--mcp": options.mcp}
        if given := [name for name, value in [*unused.items(), ("--write", options.write)] if value]:
            complain(f"--no-tools: {', '.join(given)} {'is' if len(given) == 1 else 'are'} not used")
        return []
    from laploop.tools import ToolRegistry, builtin_tools

    from .tool_sources import added_tools

    root = options.root or _current_folder()
    return list(
        ToolRegistry([*builtin_tools(root=root, web=web), *added_tools(options, root)])
    )  # refuses one name twice


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageFault(
            "the current folder has been deleted; change to another one, or name one with --root"
        ) from None


@contextlib.contextmanager
def _status(text: str) -> Iterator[None]:
    """Show `text` on stderr once QUIET_S have passed; on a terminal it is wiped out at the end."""
    is_terminal = sys.stderr.isatty()
    shown = threading.Event()

    def show() -> None:
        shown.set()
        sys.stderr.write(text if is_terminal else text + "\n")
        sys.stderr.flush()

    timer = threading.Timer(QUIET_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shown.is_set() and is_terminal:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
