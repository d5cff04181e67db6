"""Tools that a person names: `-T module:function`, `-T file.py`, databases, documents, MCP servers. It loads no model.

Naming a file runs it, as `python file.py` would: that is for the person to decide, never for a model.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
    folder = Path.cwd() if folder is None else folder
    source, name = _parts(spec)
    if not source:
        raise UsageFault(f"-T {spec}: no module or file is named; write module:function or file.py")
    module = _imported(spec, source, folder)
    if name:
        found = vars(module).get(name)
        if found is None:
            raise UsageFault(f"-T {spec}: {source} has no {name!r}; it has {_public(module)}")
        values = {name: found}
    else:
        values = _tools_in(module)
    tools: list[Tool] = []
    for label, value in values.items():
        tools += _checked_tools(f"-T {spec}", label, value)
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
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the answer, and may be read as JSON
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


def _tools_in(module: ModuleType) -> dict[str, Any]:
    """What of a module is meant without a name, by its names there."""
    from laploop.tools import Tool

    tools = {name: value for name, value in vars(module).items() if issubclass(type(value), Tool)}
    return tools or {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and not issubclass(type(value), type)
        and _module_of(value) == module.__name__
    }


def _checked_tools(where: str, label: str, value: Any) -> list[Tool]:
    """As `_as_tools`; whatever is wrong with the value is a UsageFault."""
    from laploop.tools import ToolError

    try:
        return _as_tools(value)
    except ToolError as error:
        raise UsageFault(f"{where}: {error}") from error
    except Exception as error:  # an object whose own methods raise while it is looked at
        raise UsageFault(f"{where}: {label} cannot be a tool: {type(error).__name__}: {_said(error)}") from error


def _module_of(value: Any) -> Any:
    """Where it was written; None for an object that does not let itself be asked."""
    with contextlib.suppress(Exception):
        return getattr(value, "__module__", None)
    return None


def _as_tools(value: Any, around: tuple[Any, ...] = ()) -> list[Tool]:
    """The tools that a value is or holds; `around` are the lists that it stands in."""
    from laploop.tools import Tool, ToolError, tool

    if isinstance(value, Tool):
        return [value]
    if callable(value) and not isinstance(value, type):
        return [tool(value)]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        if any(outer is value for outer in around):
            raise ToolError(f"a {type(value).__name__} that holds itself is no list of tools")
        return [made for item in value for made in _as_tools(item, (*around, value))]
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


def _of_databases(paths: Sequence[Path]) -> list[Tool]:
    """The tools of each database; of several, named by their files: query_database_shop."""
    from laploop.tools.builtin.database import database_tools

    different = list({path.resolve(): path for path in paths}.values())
    if len(different) == 1:
        return database_tools(different[0])
    endings = [re.sub(r"\W", "_", path.stem)[:40] for path in different]
    endings = [
        ending if endings.count(ending) == 1 else f"{ending}_{number}" for number, ending in enumerate(endings, start=1)
    ]
    return [
        replace(made, name=f"{made.name}_{ending}")
        for path, ending in zip(different, endings, strict=True)
        for made in database_tools(path)
    ]


def added_tools(options: Options, root: Path) -> list[Tool]:
    """What the flags and the folder's file add to the built-in tools; `root` is where files may be written."""
    tools: list[Tool] = []
    if options.write:
        from laploop.tools.builtin.edits import edit_tools

        tools += edit_tools(root)
    if options.docs is not None:
        from laploop.tools.builtin.documents import document_tool

        tools.append(document_tool(options.docs))
    if options.db:
        tools += _of_databases(options.db)
    for spec in options.tool:
        tools += named_tools(spec, options.folder)
    for servers in (options.servers, options.mcp):
        if servers is not None:
            tools += server_tools(servers)
    return tools
