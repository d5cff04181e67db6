"""The models that other programs keep on this machine: found where they lie, used in place, never touched.

Each program's layout is one function below, with its source. What is found is only listed here: whether it is a whole
GGUF is seen when it is opened. Reads folders and small manifests, writes nothing, knows no network.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .quants import gguf_models

FOLDERS_VARIABLE = "LAPLOOP_MODEL_FOLDERS"
MAX_DEPTH = 6  # folders below the one that is searched
MAX_MANIFEST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model in another program's folder.

    Args:
        name: what names it to laploop, as `-m` takes it.
        origin: the program, or the folder that the configuration names.
        path: the file to load; of a split model the first part.
        size_bytes: of all parts.
        repo: the repository that it came from, where the layout tells.
        file: its path in that repository.
        sha256: the hash that the program claims for the file; None where it claims none.
    """

    name: str
    origin: str
    path: Path
    size_bytes: int
    repo: str | None = None
    file: str | None = None
    sha256: str | None = None

    def is_of(self, scheme: str) -> bool:
        """Whether its repository is one of the site that a spec's "hf:" or "ms:" means."""
        return self.name.startswith("ms:") == (scheme == "ms:")


def local_models() -> list[LocalModel]:
    """All of them, each file once: the first program that has it is its origin."""
    found: dict[Path, LocalModel] = {}
    for store in (_hugging_face, _lm_studio, _llama_cpp, _ollama, _modelscope, _named_folders):
        for model in store():
            found.setdefault(model.path.resolve(), model)
    return list(found.values())


def named_folders() -> list[Path]:
    """The folders of LAPLOOP_MODEL_FOLDERS, separated as PATH is."""
    return [Path(item).expanduser() for item in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if item]


def _hugging_face() -> Iterator[LocalModel]:
    """`models--owner--repo/snapshots/<commit>/<file>`, links to `blobs/<sha256>` (huggingface_hub, "Understand
    caching"); newer llama.cpp keeps its own in the same way (its common/hf-cache.cpp)."""
    from huggingface_hub import constants

    roots = [Path(constants.HF_HUB_CACHE)]
    if chosen := os.environ.get("LLAMA_CACHE"):
        roots.append(Path(chosen).expanduser())
    for root in roots:
        for folder in _folders(root):
            if not (match := re.fullmatch(r"models--([\w.-]+?)--([\w.-]+)", folder.name)):
                continue
            repo = f"{match[1]}/{match[2]}"
            for snapshot in _newest_first(folder / "snapshots"):
                yield from _of_repository(snapshot, repo, "Hugging Face cache", claims=lambda path: path.resolve().name)


def _llama_cpp() -> Iterator[LocalModel]:
    """llama.cpp's cache until it moved to Hugging Face's: `owner_repo_file.gguf` in one folder, and
    `manifest=owner=repo=tag.json` to tell where the names end (its common/common.cpp, fs_get_cache_directory)."""
    chosen = os.environ.get("LLAMA_CACHE")
    root = Path(chosen).expanduser() if chosen else _cache_home() / "llama.cpp"
    prefixes = {}
    for manifest in _files(root, "manifest=*.json"):
        _, owner, repo, *_ = [*manifest.stem.split("="), "", ""]
        prefixes[f"{owner}_{repo}_"] = f"{owner}/{repo}"
    for files in gguf_models(path.name for path in _files(root, "*.gguf")).values():
        prefix = next((prefix for prefix in prefixes if files[0].startswith(prefix)), "")
        yield from _model(root, files, "llama.cpp", prefixes.get(prefix), files[0][len(prefix) :])


def _lm_studio() -> Iterator[LocalModel]:
    """`publisher/repository/file.gguf` in `models`, or in the folder that its settings name (its documentation, "Import
    models"). A pointer in the home folder says where it lives."""
    home = Path.home()
    pointer = _text(home / ".lmstudio-home-pointer").strip()
    homes = [Path(pointer)] if pointer else []
    homes += [home / ".lmstudio", home / ".cache" / "lm-studio"]
    roots = [folder / "models" for folder in homes]
    for folder in homes:
        chosen = _json(folder / "settings.json").get("downloadsFolder")
        roots += [Path(chosen)] if isinstance(chosen, str) and chosen else []
    for root in dict.fromkeys(roots):
        for publisher in _folders(root):
            for folder in _folders(publisher):
                yield from _of_repository(folder, f"{publisher.name}/{folder.name}", "LM Studio")


def _ollama() -> Iterator[LocalModel]:
    """`manifests/<host>/<namespace>/<model>/<tag>`, JSON whose layer of type `…image.model` names `blobs/sha256-<hex>`;
    newer versions write `manifests-v2` (ollama, server/manifest). As a service it has a home of its own."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        roots = [Path(chosen).expanduser()]
    else:
        roots = [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    for root in roots:
        for manifests in (root / "manifests", root / "manifests-v2"):
            for manifest in sorted(_walk(manifests)):
                where = manifest.relative_to(manifests).parts
                layers = _json(manifest).get("layers")
                if len(where) < 4 or not isinstance(layers, list):
                    continue
                kinds = [layer for layer in layers if isinstance(layer, dict)]
                digests = [_digest(x) for x in kinds if x.get("mediaType") == "application/vnd.ollama.image.model"]
                if len(digests) != 1 or digests[0] is None:  # none: weights of another format; more: not one GGUF
                    continue
                blob = root / "blobs" / f"sha256-{digests[0]}"
                host, *names, model, tag = where
                repo = f"{'/'.join(names)}/{model}" if host in ("hf.co", "huggingface.co") else None
                shown = (
                    [] if (host, names) in (("registry.ollama.ai", ["library"]), ("ollama.com", ["library"])) else names
                )
                known = () if host in ("registry.ollama.ai", "ollama.com") else (host,)
                name = "/".join([*known, *shown, f"{model}:{tag}"])
                if blob.is_file():
                    size_bytes = blob.stat().st_size
                    yield LocalModel(f"ollama:{name}", "Ollama", blob, size_bytes, repo, None, digests[0])


def _digest(layer: dict[str, Any]) -> str | None:
    match = re.fullmatch(r"sha256[:-]([0-9a-f]{64})", str(layer.get("digest")))
    return match[1] if match else None


def _modelscope() -> Iterator[LocalModel]:
    """`models/owner--repo/snapshots/<revision>/<file>`; before that `owner/repo/<file>` in `models`, `hub/models`,
    `hub` or the cache itself, a dot of the repository's name as `___` (modelscope_hub, modelscope.hub.utils)."""
    chosen = os.environ.get("MODELSCOPE_CACHE")
    cache = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "modelscope"
    for root in (cache / "models", cache / "hub" / "models", cache / "hub", cache):
        for owner in _folders(root):
            if match := re.fullmatch(r"([\w.-]+?)--([\w.-]+)", owner.name):
                for snapshot in _newest_first(owner / "snapshots"):
                    yield from _of_repository(snapshot, f"{match[1]}/{match[2]}", "ModelScope cache", "ms:")
                continue
            for folder in _folders(owner):
                repo = f"{owner.name}/{folder.name}".replace("___", ".")
                yield from _of_repository(folder, repo, "ModelScope cache", "ms:", depth=2)


def _named_folders() -> Iterator[LocalModel]:
    for folder in named_folders():
        if not folder.is_dir():
            warnings.warn(f"{FOLDERS_VARIABLE} names {folder}, which is not a folder", stacklevel=2)
        names = (path.relative_to(folder).as_posix() for path in _walk(folder))
        for files in gguf_models(names).values():
            yield from _model(folder, files, str(folder))


def _of_repository(
    folder: Path,
    repo: str,
    origin: str,
    scheme: str = "hf:",
    *,
    depth: int = MAX_DEPTH,
    claims: Callable[[Path], str] | None = None,
) -> Iterator[LocalModel]:
    """The models of one repository, whose files lie in `folder` as they do there."""
    names = (path.relative_to(folder).as_posix() for path in _walk(folder, depth))
    for files in gguf_models(names).values():
        yield from _model(folder, files, origin, repo, files[0], scheme, claims)


def _model(
    folder: Path,
    files: list[str],
    origin: str,
    repo: str | None = None,
    file: str | None = None,
    scheme: str = "hf:",
    claims: Callable[[Path], str] | None = None,
) -> Iterator[LocalModel]:
    path = folder / files[0]
    try:
        size_bytes = sum((folder / name).stat().st_size for name in files)
    except OSError:  # a link that leads nowhere: its file was deleted, or is still on its way
        return
    claimed = claims(path) if claims else ""
    sha256 = claimed if re.fullmatch(r"[0-9a-f]{64}", claimed) else None
    name = f"{scheme}{repo}/{file}" if repo else str(path)
    yield LocalModel(name, origin, path, size_bytes, repo, file, sha256)


def _walk(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """The files below `folder`; links to folders are followed, which people use to share models between programs."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_cannot_read):
        here = Path(place)
        if (real := os.path.realpath(place)) in seen or len(here.relative_to(folder).parts) >= depth:
            folders.clear()
        if real not in seen:
            yield from (here / name for name in sorted(names))
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _cannot_read(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        warnings.warn(f"models are not looked for in {error.filename}: {error.strerror}", stacklevel=2)


def _folders(root: Path) -> list[Path]:
    return [item for item in _entries(root) if item.is_dir() and not item.name.startswith(".")]


def _files(root: Path, pattern: str) -> list[Path]:
    return [item for item in _entries(root) if item.match(pattern) and item.is_file()]


def _newest_first(root: Path) -> list[Path]:
    return sorted(_folders(root), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except OSError as error:
        _cannot_read(error)
        return []


def _text(path: Path) -> str:
    """A small file's text; none if it is not there, or cannot be what it should be."""
    try:
        if path.stat().st_size <= MAX_MANIFEST_BYTES:
            return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        _cannot_read(error)
    return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):  # not ours to mend: a damaged manifest names no model
        return {}
    return value if isinstance(value, dict) else {}


def _cache_home() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
