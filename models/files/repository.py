"""A model of a repository, on the hub or on ModelScope: what of it is here, else fetched.

What is here serves without asking whether the site has a newer version. Knows no catalogue.
"""

from __future__ import annotations

import os
from pathlib import Path

from laploop.engine.errors import BadModelFileError
from laploop.engine.gguf import shard_paths

from ..errors import ModelError, ModelUnavailableError, QuantNotFoundError
from . import download, hub_cache, modelscope
from .other_programs import LocalModel, local_models
from .progress import Progress, ProgressFunction
from .quants import DEFAULT_QUANT, choose_files, names_quant, parts_of
from .spec import HubSpec, is_model_file
from .store import Store

OFFLINE_VARIABLES = ("LAPLOOP_OFFLINE", "HF_HUB_OFFLINE")


def offline_variable() -> str | None:
    """The environment variable that says "no network", if one does."""
    for name in OFFLINE_VARIABLES:
        if os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on"):
            return name
    return None


def why_offline() -> str:
    """The words for an error."""
    variable = offline_variable()
    return f"{variable} is set" if variable else "only the disk was searched"


def find_in_repository(spec: HubSpec, offline: bool, store: Store, progress: ProgressFunction) -> Path:
    """The file of a repository's model that is loaded first.

    Raises `ModelNotFoundError`, `QuantNotFoundError`, `ModelUnavailableError`, `ChecksumError` or `DiskSpaceError`.
    """
    cached = _cached_names(spec, store)
    try:
        chosen = _choose(spec, cached) if cached else []
    except QuantNotFoundError:
        chosen = []
    here = _cached_path(spec, store, chosen[0]) if chosen else None
    # without a quantisation the site decides what the default is, unless the usual default is already here
    if here is not None and (offline or spec.quant or spec.file or names_quant(chosen[0], DEFAULT_QUANT)):
        return here
    elsewhere = _in_other_programs(spec)
    if here is None and len(elsewhere) == 1:
        return elsewhere[0].path
    if offline:
        names = [*cached, *(model.name for model in elsewhere)]
        there = f"of this repository: {', '.join(names)}" if names else "nothing of this repository"
        raise ModelUnavailableError(
            f"{spec} is not on this machine and {why_offline()}. On disk is {there}. "
            f"Go online once and run `laploop models pull {spec}`, or give a path."
        )
    try:
        return _fetch(spec, store, progress)
    except ModelUnavailableError as error:
        if here is not None:
            progress(Progress(f"hub not reached ({error}); using {here.name} from its cache", 0, None, "disk"))
            return here
        site = "hub" if spec.scheme == "hf:" else "ModelScope"
        mirror = "HF_ENDPOINT to a mirror" if spec.scheme == "hf:" else "MODELSCOPE_ENDPOINT to another site"
        raise ModelUnavailableError(
            f"{spec} could not be fetched. {site}: {str(error).rstrip('.')}. "
            f"Check the network and proxy settings, set {mirror}, or give a path."
        ) from error


def _choose(spec: HubSpec, names: list[str]) -> list[str]:
    if spec.file:
        return parts_of(spec.file, names, spec.repo)
    return choose_files(names, spec.quant, spec.repo, spec.scheme)


def _cached_names(spec: HubSpec, store: Store) -> list[str]:
    """Paths in the repository of what lies where laploop itself fetches it to."""
    if spec.scheme == "hf:":
        return hub_cache.cached_names(spec.repo, spec.revision)
    root = _modelscope_root(spec, store)
    paths = [path for path in root.rglob("*.gguf") if is_model_file(path.name)]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def _cached_path(spec: HubSpec, store: Store, name: str) -> Path | None:
    if spec.scheme == "hf:":
        return hub_cache.cached_file(spec.repo, name, spec.revision)
    return _modelscope_root(spec, store) / name


def _modelscope_root(spec: HubSpec, store: Store) -> Path:
    return store.path(modelscope.stored_name(spec.repo, ""))


def _in_other_programs(spec: HubSpec) -> list[LocalModel]:
    """The models of other programs that are meant: none, one, or several different ones."""
    if spec.revision not in (None, "main", modelscope.REVISION):
        return []  # their folders do not tell the commit
    meant: dict[str, LocalModel] = {}
    for model in local_models():
        name = model.file or model.name  # Ollama's names end in the quantisation
        is_same = (model.repo or "").lower() == spec.repo.lower() and model.is_of(spec.scheme)
        wanted = name == spec.file if spec.file else names_quant(name, spec.quant or DEFAULT_QUANT)
        if is_same and wanted and _is_whole(model.path):
            meant.setdefault(name.rsplit("/", 1)[-1].lower(), model)
    return list(meant.values())


def _is_whole(path: Path) -> bool:
    try:
        return bool(shard_paths(path))
    except BadModelFileError:
        return False


def _fetch(spec: HubSpec, store: Store, progress: ProgressFunction) -> Path:
    if spec.scheme == "ms:":
        listed = {file.path: file for file in modelscope.list_files(spec.repo, spec.revision)}
        files = [listed[name] for name in _choose(spec, list(listed))]
        return modelscope.fetch(spec.repo, files, spec.revision, store, progress)
    download.probe()
    chosen = _choose(spec, download.list_files(spec.repo, spec.revision))
    for file in chosen:
        download.fetch(download.Wanted(spec.repo, file, spec.revision), store, progress)
    first = hub_cache.cached_file(spec.repo, chosen[0], spec.revision)
    if first is None:
        raise ModelError(f"{spec} was fetched, but the hub's cache does not show it. Check HF_HOME and its disk.")
    return first
