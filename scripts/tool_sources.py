"""Tools that a person names: `-T module:function`, `-T file.py`, databases, documents, MCP servers. It loads no model.

Naming a file runs it, as `python file.py` would: that is for the person to decide, never for a model.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .cli import complain
from .options import Options, UsageFault

if TYPE_CHECKING:
    from laploop.tools import Tool

_MAX_SHOWN_CHARS = 500


def named_tools(spec: str, folder: Path | None = None) -> list[Tool]:
    """The tools of `module:name`, `module`, `file.py:name` or `file.py`.

    A name is a function, a `Tool`, or a list or registry of them. Without one, all `Tool`s at the top of the module
    are meant, or where it has none, its public functions.

    Args:
        folder: what a relative path is relative to, and where modules are looked for first; None for the current one.

    Raises:
        UsageFault: no such file, module or name; an error while it is imported; nothing in it that can be a tool.
    """
    from laploop.tools import ToolError

    folder = Path.cwd() if folder is None else folder
    source, name = _parts(spec)
    if not source:
        raise UsageFault(f"-T {spec}: no module or file is named; write module:function or file.py")
    module = _imported(spec, source, folder)
    if name:
        found = getattr(module, name, None)
        if found is None:
            raise UsageFault(f"-T {spec}: {source} has no {name!r}; it has {_public(module)}")
        values = [found]
    else:
        values = _tools_in(module)
    try:
        tools = [made for value in values for made in _as_tools(value)]
    except ToolError as error:
        raise UsageFault(f"-T {spec}: {error}") from error
    if not tools:
        raise UsageFault(f"-T {spec}: there is no tool in {source}; write @tool above a function")
    return tools


def _parts(spec: str) -> tuple[str, str]:
    """The source and the name; the colon of C:\\x.py is none between them."""
    if spec.endswith(".py"):
        return spec, ""
    source, _, name = spec.rpartition(":")
    return (source, name) if source else (name, "")


def _imported(spec: str, source: str, folder: Path) -> ModuleType:
    try:
        if source.endswith(".py"):
            return _from_file(spec, folder / source)
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))  # as `python -m` does
        return importlib.import_module(source)
    except UsageFault:
        raise
    except ModuleNotFoundError as error:
        if error.name == source or source.startswith(f"{error.name}."):
            raise UsageFault(f"-T {spec}: there is no module {source!r} here; a file is named with its .py") from error
        raise UsageFault(f"-T {spec}: {source} needs the module {error.name!r}, which is not installed") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script that ends by sys.exit too
        raise UsageFault(f"-T {spec}: importing {source} failed: {type(error).__name__}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return " ".join(str(error).split())[:_MAX_SHOWN_CHARS]
    return "it cannot be shown"


def _from_file(spec: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageFault(f"-T {spec}: there is no file {path}")
    # A name of its own: calendar.py must not stand in the place of Python's.
    name = f"laploop_tools_{path.stem}_{hashlib.sha256(bytes(path.resolve())).hexdigest()[:8]}"
    made = importlib.util.spec_from_file_location(name, path)
    if made is None or made.loader is None:
        raise UsageFault(f"-T {spec}: {path} cannot be imported")
    module = importlib.util.module_from_spec(made)
    sys.modules[name] = module  # dataclasses and postponed annotations look there
    made.loader.exec_module(module)
    return module


def _tools_in(module: ModuleType) -> list[Any]:
    from laploop.tools import Tool

    tools = [value for value in vars(module).values() if isinstance(value, Tool)]
    if tools:
        return tools
    return [
        value
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and not isinstance(value, type)
        and getattr(value, "__module__", None) == module.__name__
    ]


def _as_tools(value: Any) -> list[Tool]:
    from laploop.tools import Tool, ToolError, tool

    if isinstance(value, Tool):
        return [value]
    if callable(value) and not isinstance(value, type):
        return [tool(value)]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return [made for item in value for made in _as_tools(item)]
    raise ToolError(f"{value!r} is no function, tool, or list of them")


def _public(module: ModuleType) -> str:
    names = [name for name in vars(module) if not name.startswith("_")]
    return ", ".join(names[:12]) or "nothing"


def server_tools(servers: Mapping[str, Any] | Path) -> list[Tool]:
    """The tools of MCP servers, which run as long as this process; what cannot be used is told in one line each.

    Raises:
        ToolError: the configuration is wrong, or the extra `mcp` is not installed.
    """
    from laploop.tools.mcp import McpServers

    made = McpServers(servers)
    atexit.register(made.close)
    tools = made.tools()
    for problem in made.problems:
        complain(problem)
    return tools


def added_tools(options: Options, root: Path) -> list[Tool]:
    """What the flags and the folder's file add to the built-in tools; `root` is where files may be written."""
    tools: list[Tool] = []
    if options.write:
        from laploop.tools.builtin.edits import edit_tools

        tools += edit_tools(root)
    if options.docs is not None:
        from laploop.tools.builtin.documents import document_tool

        tools.append(document_tool(options.docs))
    for path in options.db:
        from laploop.tools.builtin.database import database_tools

        tools += database_tools(path)
    for spec in options.tool:
        tools += named_tools(spec, options.folder)
    for servers in (options.servers, options.mcp):
        if servers is not None:
            tools += server_tools(servers)
    return tools
