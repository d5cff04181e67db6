"""`laploop models`: which models are known, which are here, and what is in them. It loads none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import flag

if TYPE_CHECKING:
    from laploop.models.files.catalogue import CatalogueEntry

SHOW_N_CTX = 4096
SPECIAL = ("bos", "eos", "eot", "padding", "unknown")
as_json_flag = flag("--json", "as_json", is_flag=True, default=False, help="Print JSON.")


@click.group(context_settings={"max_content_width": 100})
def models() -> None:
    """List, fetch, inspect and remove models.

    SPEC is a short name (qwen3-1.7b, qwen3-1.7b:q4_k_m), a path, or hf:owner/repo[:quant|/file.gguf].
    """


@models.command("list")
@as_json_flag
def list_models(as_json: bool) -> None:
    """The models of the catalogue, and what is on this machine."""
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.resolve import on_disk
    from laploop.models.files.store import Store

    from .terminal import clean, json_text

    catalogue, store = Catalogue.load(), Store.default()
    rows = [_entry_row(entry, on_disk(entry, store), catalogue.default) for entry in catalogue.entries]
    known = {row["path"] for row in rows}
    others = [
        {"name": None, "file": path.name, "size_bytes": path.stat().st_size, "path": str(path)}
        for path in store.files()
        if str(path) not in known
    ]
    if as_json:
        click.echo(json_text(rows + others))
        return
    for row in rows + others:
        name = (row["name"] or row["file"]) + (" (default)" if row.get("default") else "")
        place = row["path"] or f"not here; {' or '.join(row['sources'])}"
        click.echo(f"{clean(name):<28} {_size(row['size_bytes']):>9}  {clean(place)}")


@models.command()
@click.argument("spec")
@flag("--offline", is_flag=True, default=False, help="Look at the disk only.")
def pull(spec: str, offline: bool) -> None:
    """Fetch SPEC if it is not here; print its path."""
    from laploop.models.files.resolve import resolve_model

    from . import background
    from .progress import progress_printer

    with progress_printer() as progress:
        found = background.call(lambda: resolve_model(spec, offline=offline, progress=progress))
    click.echo(str(found.path))


@models.command()
@click.argument("spec")
def path(spec: str) -> None:
    """Print where SPEC lies on this machine; never fetches."""
    from laploop.models.files.resolve import resolve_model

    from .progress import progress_printer

    with progress_printer() as progress:
        click.echo(str(resolve_model(spec, offline=True, progress=progress).path))


@models.command()
@click.argument("spec")
@as_json_flag
def show(spec: str, as_json: bool) -> None:
    """What is in SPEC: shape, quantisation, context, special tokens, memory. Reads the header only."""
    from .terminal import clean, json_text

    facts = _facts(spec)
    if as_json:
        click.echo(json_text(facts))
        return
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {item}" for name, item in value.items())
        elif key.endswith("_bytes") and value is not None:
            value = f"{value:,} ({_size(value)})"
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        if value not in (None, ""):
            click.echo(f"{key:<24} {clean(str(value))}")


@models.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(name: str, yes: bool) -> None:
    """Remove a model that laploop itself stores (fetched from a package index), and parts of it.

    What lies in the hub's cache belongs to other tools too and is left alone.
    """
    from laploop.models.files.store import Store

    store, file = Store.default(), _stored_file(name)
    places = [store.path(file), store.part(file), store.work(file)]
    there = ", ".join(str(place) for place in places if place.exists())
    if not yes:
        click.confirm(f"Delete {there}?", abort=True, err=True)
    for removed, size_bytes in store.remove(file):
        click.echo(f"removed {removed} ({_size(size_bytes)})")


def _stored_file(name: str) -> str:
    """The stored file for a short name or a file name. Raises `ModelNotFoundError` if it is not there."""
    from laploop.models.errors import ModelNotFoundError
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.resolve import on_disk
    from laploop.models.files.store import Store

    store, elsewhere = Store.default(), ""
    if name in {path.name for path in store.files()}:
        return name
    try:
        entry = Catalogue.load().find(name)
    except ModelNotFoundError:
        if not name.endswith(".gguf"):
            raise
    else:
        if any(place.exists() for place in (store.path(entry.file), store.part(entry.file))):
            return entry.file
        found = on_disk(entry, store)
        if found is not None:
            elsewhere = f" It lies in the hub's cache, shared with other tools (`hf cache rm`): {found}."
    stored = ", ".join(path.name for path in store.files()) or "nothing"
    raise ModelNotFoundError(f"laploop's own folder does not hold {name}; it holds {stored}.{elsewhere}")


def _entry_row(entry: CatalogueEntry, found: Path | None, default: str) -> dict[str, Any]:
    return {
        "name": entry.name,
        "file": entry.file,
        "quant": entry.quant,
        "size_bytes": entry.size_bytes or (found.stat().st_size if found else None),
        "repo": entry.repo,
        "license": entry.license,
        "sources": ["hub", "package index"] if entry.pypi else ["hub"],
        "default": entry.name == default,
        "path": str(found) if found else None,
    }


def _facts(spec: str) -> dict[str, Any]:
    """What the headers of all parts say. Raises like `resolve_model(offline=True)` and `read_gguf`."""
    from laploop.engine.gguf import kv_bytes, read_gguf, shard_paths
    from laploop.models.files.resolve import on_disk, resolve_model
    from laploop.models.files.spec import NameSpec, parse_spec
    from laploop.models.files.store import Store

    parsed = parse_spec(spec)
    # a file of the hub's cache that was never checked would be hashed first: the header needs no hash
    here = on_disk(parsed.entry, Store.default()) if isinstance(parsed, NameSpec) else None
    path = here or resolve_model(spec, offline=True).path
    files = [read_gguf(part) for part in shard_paths(path)]
    metadata = files[0].metadata
    tensors = [tensor for file in files for tensor in file.tensors]
    arch = metadata.get("general.architecture", "")
    elements: Counter[str] = Counter()
    n_parameters = 0
    for tensor in tensors:
        count = 1
        for dim in tensor.shape:
            count *= dim
        n_parameters += count
        elements[tensor.type] += count
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    special = {}
    for kind in SPECIAL:
        number = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if isinstance(number, int) and number < len(tokens):
            special[kind] = f"{number} {tokens[number].decode('utf-8', 'replace')}"
    return {
        "path": str(path),
        "name": metadata.get("general.name"),
        "architecture": arch,
        "parameters": n_parameters,
        "quantisation": {kind: f"{100 * n / n_parameters:.1f} %" for kind, n in elements.most_common()},
        "size_bytes": sum(file.size_bytes for file in files),
        "parts": len(files),
        "context_length": metadata.get(f"{arch}.context_length"),
        "layers": metadata.get(f"{arch}.block_count"),
        "embedding_length": metadata.get(f"{arch}.embedding_length"),
        "vocabulary": len(tokens),
        "special_tokens": special,
        "chat_template": "yes" if metadata.get("tokenizer.chat_template") else "none",
        f"kv_{SHOW_N_CTX}_f16_bytes": kv_bytes(metadata, SHOW_N_CTX),
        "license": metadata.get("general.license"),
        "gguf_version": files[0].version,
    }


def _size(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"
