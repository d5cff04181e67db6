"""`laploop models`: which models are known, which are here, and what is in them. It loads none."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import KV_TYPES, MAX_THREADS, Whole, flag

if TYPE_CHECKING:
    from laploop.models.files.catalogue import CatalogueEntry
    from laploop.models.files.fit import Fit

as_json_flag = flag("--json", "as_json", is_flag=True, default=False, help="Print JSON.")


@click.group(context_settings={"max_content_width": 100})
def models() -> None:
    """List, fetch, inspect and remove models.

    SPEC is a short name (qwen3-1.7b, qwen3-1.7b:q4_k_m), a path, hf:owner/repo[:quant|/file.gguf], the same with ms:
    for ModelScope, the address of a file, or ollama:name[:tag].
    """


@models.command("list")
@as_json_flag
def list_models(as_json: bool) -> None:
    """The models of the catalogue, and what is on this machine, other programs' models too."""
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.other_programs import local_models
    from laploop.models.files.resolve import on_disk
    from laploop.models.files.store import Store

    from .visible import clean, json_text

    catalogue, store, others = Catalogue.load(), Store.default(), local_models()
    origins = {os.path.realpath(model.path): model.origin for model in others}
    origins.update({os.path.realpath(path): "laploop" for path in store.files()})
    rows = [_entry_row(entry, on_disk(entry, store), catalogue.default, origins) for entry in catalogue.entries]
    known = {os.path.realpath(row["path"]) for row in rows if row["path"]}
    more = [(store.name_of(path), "laploop", path, path.stat().st_size) for path in store.files()]
    more += [(model.name, model.origin, model.path, model.size_bytes) for model in others]
    rows += [
        {"name": None, "spec": name, "file": path.name, "size_bytes": size, "origin": origin, "path": str(path)}
        for name, origin, path, size in more
        if os.path.realpath(path) not in known
    ]
    if as_json:
        click.echo(json_text(rows))
        return
    for row in rows:
        name = (row["name"] or row["spec"]) + (" (default)" if row.get("default") else "")
        place = f"{row['origin']}: {row['path']}" if row["path"] else f"not here; {' or '.join(row['sources'])}"
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
@click.option("-c", "--ctx-size", "contexts", multiple=True, type=Whole(min=1), help="Reckon memory for this context.")
@click.option("-ctk", "--cache-type-k", "kv_types", multiple=True, type=click.Choice(KV_TYPES), help="... KV type.")
@as_json_flag
def show(spec: str, contexts: tuple[int, ...], kv_types: tuple[str, ...], as_json: bool) -> None:
    """What is in SPEC: shape, quantisation, context, special tokens, template, memory. Reads the header only."""
    from . import model_facts
    from .visible import clean, json_text

    told = model_facts.facts(
        model_facts.found_path(spec), contexts or model_facts.CONTEXTS, kv_types or model_facts.KV_TYPES
    )
    if as_json:
        click.echo(json_text(told))
        return
    for key, value in told.items():
        if key == "memory_bytes":
            value = ", ".join(f"{_size(item)} for {name}" for name, item in value.items())
        elif isinstance(value, dict):
            value = ", ".join(f"{name} {item}" for name, item in value.items())
        elif isinstance(value, list):
            value = "; ".join(value)
        elif key.endswith("_bytes") and value is not None:
            value = f"{value:,} ({_size(value)})"
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        if value not in (None, ""):
            click.echo(f"{key:<24} {clean(str(value))}")


@models.command()
@click.argument("spec")
def verify(spec: str) -> None:
    """Read SPEC whole and compare its SHA-256 with the one that is known for it."""
    from laploop.engine.gguf import read_gguf, shard_paths
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.other_programs import local_models
    from laploop.models.files.store import Store, sha256_of

    from . import background, model_facts
    from .cli import complain
    from .progress import progress_printer

    store, damaged = Store.default(), False
    first = model_facts.found_path(spec)
    known = {model.path.resolve(): model.sha256 for model in local_models() if model.sha256}
    named = {entry.file: entry.sha256 for entry in Catalogue.load().entries}
    for path in shard_paths(first):
        read_gguf(path)
        expected = store.recorded(path).get("sha256") or known.get(path.resolve()) or named.get(path.name)
        with progress_printer() as progress:
            actual = background.call(functools.partial(sha256_of, path, progress))
        if expected not in (None, actual):
            damaged = True
            complain(f"{path} is not the file it should be: SHA-256 {actual}, expected {expected}")
            continue
        if store.recorded(path).get("sha256") != actual or not store.is_verified(path, actual):
            store.remember(path, actual)
        how = "as expected" if expected else "now noted; none was known before"
        click.echo(f"{path} {actual} ({how})")
    if damaged:
        sys.exit(1)


@models.command()
@flag("-c", "--ctx-size", type=Whole(min=0), help="Context length in tokens. [8192]")
@flag("-t", "--threads", type=Whole(min=1, max=MAX_THREADS), help="CPU threads.")
@flag("-ngl", "--gpu-layers", type=Whole(min=0), help="Layers on the GPU. [all that the build can]")
@click.option("--no-speed", is_flag=True, help="Measure nothing: only what fits.")
@click.option("--again", is_flag=True, help="Measure anew, whatever is known from before.")
@as_json_flag
def fit(
    ctx_size: int | None, threads: int | None, gpu_layers: int | None, no_speed: bool, again: bool, as_json: bool
) -> None:
    """Which models of the catalogue run on this machine, how fast, and which is the best choice.

    The speeds follow from a measurement of about fifteen seconds, which is made once.
    """
    from laploop.engine import EngineConfig
    from laploop.engine.machine import machine_facts
    from laploop.engine.memory import available_bytes
    from laploop.models.files.calibration import calibrate
    from laploop.models.files.catalogue import Catalogue
    from laploop.models.files.fit import best, fits, headers
    from laploop.models.files.store import Store

    from . import background
    from .progress import progress_printer
    from .visible import clean, json_text

    given: dict[str, Any] = {"n_ctx": ctx_size, "n_threads": threads, "n_gpu_layers": gpu_layers}
    config = EngineConfig(**{key: value for key, value in given.items() if value is not None})
    catalogue = Catalogue.load()
    known = headers(catalogue, Store.default())
    speeds = None
    if not no_speed:
        with progress_printer() as progress:
            speeds = background.call(
                lambda: calibrate([header for header, _ in known.values()], config, progress, again=again)
            )
    rows = fits(catalogue, known, config, speeds, available_bytes())
    choice, machine = best(rows) if speeds else None, machine_facts()
    if as_json:
        told = [{**_fit_row(row), "best": row is choice} for row in rows]
        click.echo(json_text({"machine": machine, "models": told}))
        return
    for key, value in machine.items():
        if value not in (None, "", []):
            shown = _size(value) if key.endswith("_bytes") else ", ".join(value) if isinstance(value, list) else value
            click.echo(f"{key:<24} {clean(str(shown))}")
    click.echo("")
    for row in rows:
        click.echo(f"{row.entry.name:<24} {_fit_line(row)}{'  <- the best choice' if row is choice else ''}")
    if not any(row.runs for row in rows):
        click.echo("None of them fits in the free memory.")


def _fit_line(row: Fit) -> str:
    if not row.runs:
        return f"needs {_size(row.needed_bytes)}: does not fit"
    speed = ""
    if row.tokens_per_s and row.prompt_tokens_per_s:
        speed = f"  {row.tokens_per_s:6.1f} tokens/s, prompts {row.prompt_tokens_per_s:6.0f}"
    here = "" if row.path else "  (not here)"
    return f"{_size(row.needed_bytes):>9} with a context of {row.n_ctx}{speed}{here}"


def _fit_row(row: Fit) -> dict[str, Any]:
    return {
        "name": row.entry.name,
        "path": str(row.path) if row.path else None,
        "runs": row.runs,
        "n_ctx": row.n_ctx,
        "needed_bytes": row.needed_bytes,
        "tokens_per_s": row.tokens_per_s,
        "prompt_tokens_per_s": row.prompt_tokens_per_s,
    }


@models.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(name: str, yes: bool) -> None:
    """Remove a model that laploop itself stores (from packages, ModelScope or an address), and parts of it.

    What lies in the hub's cache or another program's folder belongs to other tools too and is left alone.
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
    stored = [store.name_of(path) for path in store.files()]
    meant = [item for item in stored if name in (item, item.rsplit("/", 1)[-1])]
    meant = meant if len(meant) == 1 else [item for item in stored if item in (name, _stored_as(name))]
    if meant:
        return meant[0]
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
    raise ModelNotFoundError(
        f"laploop's own folder does not hold {name}; it holds {', '.join(stored) or 'nothing'}.{elsewhere}"
    )


def _stored_as(spec: str) -> str:
    """The name in the store of what an address or a file of ModelScope is fetched to; "" for other specs."""
    from laploop.models.errors import ModelNotFoundError
    from laploop.models.files import modelscope, web
    from laploop.models.files.spec import HubSpec, UrlSpec, parse_spec

    try:
        parsed = parse_spec(spec)
    except ModelNotFoundError:
        return ""
    if isinstance(parsed, UrlSpec):
        return web.stored_name(parsed)
    if isinstance(parsed, HubSpec) and parsed.scheme == "ms:" and parsed.file:
        return modelscope.stored_name(parsed.repo, parsed.file)
    return ""


def _entry_row(entry: CatalogueEntry, found: Path | None, default: str, origins: dict[str, str]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "file": entry.file,
        "quant": entry.quant,
        "size_bytes": entry.size_bytes or (found.stat().st_size if found else None),
        "repo": entry.repo,
        "license": entry.license,
        "sources": ["hub", "package index"] if entry.pypi else ["hub"],
        "default": entry.name == default,
        "origin": origins.get(os.path.realpath(found)) if found else None,
        "path": str(found) if found else None,
    }


def _size(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"
