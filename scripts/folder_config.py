"""`laploop.toml`: the tools, roots, servers and rules of a folder, used only once its person has said yes to them.

    tools = ["mytools.py", "package.module:function"]    # as -T has them; paths are relative to this folder
    root = "notes"                                       # what the file tools may read
    write = true                                         # write_file and edit_file below it, each call asked about
    databases = ["shop.db"]                              # SQLite, read only
    documents = "papers"                                 # search_documents
    approve = { network = "ask" }                        # as --approve has them
    [servers.time]                                       # MCP servers, as in mcpServers
    command = "uvx"
    args = ["mcp-server-time"]

Such a file can start programs, so it is not read like settings are: it arrives with a folder that somebody else made.
What was said yes to is remembered by the hash of the file and of the tool files that it names; a changed one is asked
about again. Without a terminal it is not used, and one line says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from .cli import complain
from .options import EFFECTS, RULES, Options, UsageFault

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "laploop.toml"
_MAX_BYTES = 100_000
_MAX_TRUSTED = 200
_MAX_FILES = 1_000  # of a package
_KEYS = ("tools", "root", "write", "databases", "documents", "approve", "servers")


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """What a folder's file says; paths are absolute."""

    folder: Path
    tools: tuple[str, ...] = ()
    root: Path | None = None
    write: bool = False
    databases: tuple[Path, ...] = ()
    documents: Path | None = None
    approve: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)


def with_folder(options: Options) -> Options:
    """The options with what the current folder's trusted file adds; flags win."""
    if options.no_tools:
        return options
    try:
        found = trusted_config(Path.cwd())
    except FileNotFoundError:  # the current folder was deleted; who needs it says so
        return options
    if found is None:
        return options
    return replace(
        options,
        folder=found.folder,
        tool=(*found.tools, *options.tool),
        root=options.root or found.root,
        write=options.write or found.write,
        db=(*found.databases, *options.db),
        docs=options.docs or found.documents,
        approve={**found.approve, **(options.approve or {})} or None,
        servers=found.servers or None,
    )


def trusted_config(folder: Path, ask: Callable[[str], str] | None = None) -> FolderConfig | None:
    """The configuration of `folder`, where there is one and it is trusted.

    Args:
        ask: shows a question and gives the answer; by default on the terminal, if there is one.

    Raises:
        UsageFault: the file is not valid; says where.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    data = _bytes_of(path)
    config = parse_config(data, folder)
    digest = _digest(data, config)
    trusted = _trusted()
    key = str(folder.resolve() / NAME)  # not where a link leads: what the file names lies in this folder
    if trusted.get(key) == digest:
        return config
    if ask is None and not (sys.stdin.isatty() and sys.stderr.isatty()):
        complain(f"{path} is not used: start laploop in a terminal once, to say whether you trust it")
        return None
    from .visible import clean

    changed = " has changed since you trusted it" if key in trusted else ""
    click.echo(f"{path}{changed}:\n\n{_indented(data, clean)}\n", err=True)
    answer = (ask or _ask)("Its tools and servers are programs that run as you. Trust it? [y]es, [n]o: ")
    if answer.strip().lower() not in ("y", "yes"):
        complain(f"{NAME} is not used")
        return None
    if _digest(_bytes_of(path), config) != digest:
        raise UsageFault(f"{path} changed while you read it; start again")
    _remember({**trusted, key: digest})
    return config


def parse_config(data: bytes, folder: Path) -> FolderConfig:
    """The configuration in the text of a file.

    Raises:
        UsageFault: not TOML, an unknown key, a wrong value, a place outside the folder.
    """
    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageFault(f"{NAME} is not valid TOML: {error}") from error
    if unknown := sorted(set(values) - set(_KEYS)):
        raise UsageFault(f"{NAME}: {unknown[0]!r} is not known; known are {', '.join(_KEYS)}")
    approve = _typed(values, "approve", dict, {})
    for effect, rule in approve.items():
        if effect not in EFFECTS or rule not in RULES:
            raise UsageFault(
                f"{NAME}: approve has {effect!r} = {rule!r}; one of {', '.join(EFFECTS)} with one of {', '.join(RULES)}"
            )
    root, documents = (_typed(values, key, str, "") for key in ("root", "documents"))
    return FolderConfig(
        folder,
        tools=tuple(_texts(values, "tools")),
        root=folder / root if root else None,
        write=_typed(values, "write", bool, False),
        databases=tuple(folder / name for name in _texts(values, "databases")),
        documents=folder / documents if documents else None,
        approve=approve,
        servers=_typed(values, "servers", dict, {}),
    )


def _typed(values: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = values.get(key, default)
    if not isinstance(value, kind):
        raise UsageFault(f"{NAME}: {key} is {value!r}; expected a {kind.__name__}")
    return value


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    found = _typed(values, key, list, [])
    if not all(isinstance(item, str) for item in found):
        raise UsageFault(f"{NAME}: {key} is {found!r}; expected a list of texts")
    return list(found)


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise UsageFault(f"{path} is larger than {_MAX_BYTES:,} bytes")
    return data


def _digest(data: bytes, config: FolderConfig) -> str:
    """The hash of the file and of what Python may import from the folder for the tools that it names."""
    digest = hashlib.sha256(data)
    for file in sorted({file for spec in config.tools for file in _sources(spec, config.folder)}):
        content = file.read_bytes() if file.is_file() else b""
        digest.update(hashlib.sha256(os.path.relpath(file, config.folder).encode() + b"\0" + content).digest())
    return digest.hexdigest()


def _sources(spec: str, folder: Path) -> list[Path]:
    """A tool's own file; for a module all that could be imported in its name: a package comes before a file."""
    source = spec if spec.endswith(".py") else spec.rpartition(":")[0] or spec
    if source.endswith(".py"):
        return [folder / source]
    top = source.partition(".")[0]
    package = [file for file in (folder / top).rglob("*") if "__pycache__" not in file.parts]
    if len(package) > _MAX_FILES:
        raise UsageFault(f"{NAME}: {top} has more than {_MAX_FILES} files; name a file of its tools")
    return [*folder.glob(f"{top}.*"), *package]


def _indented(data: bytes, clean: Callable[[str], str]) -> str:
    return "\n".join(f"    {clean(line)}" for line in data.decode("utf-8").splitlines())


def _ask(question: str) -> str:
    from .approval_prompt import read_line

    try:
        return read_line(question, "")
    except EOFError:
        return ""


def _store() -> Path:
    from laploop.engine.folders import data_dir

    return data_dir() / "trusted-folders.json"


def _trusted() -> dict[str, str]:
    """File → hash; nothing where the memory is missing or damaged: then all is asked about again."""
    try:
        found = json.loads(_store().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _remember(trusted: Mapping[str, str]) -> None:
    store = _store()
    store.parent.mkdir(parents=True, exist_ok=True)
    kept = dict(list(trusted.items())[-_MAX_TRUSTED:])
    new = store.with_name(f".{secrets.token_hex(8)}.new")
    new.write_text(json.dumps(kept, indent=1), "utf-8")
    new.replace(store)
