"""What of the hub already lies in its local cache. Never touches the network.

The cache is huggingface_hub's own, shared with every tool that uses it; its layout is documented ("Understand
caching"): `models--owner--repo/{refs,blobs,snapshots/<commit>}`, where a large file's blob is named by its
SHA-256.
"""

from __future__ import annotations

from pathlib import Path


def repo_folder(repo: str) -> Path:
    """The cache folder of a model repository."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"


def cached_file(repo: str, file: str, revision: str | None = None) -> Path | None:
    """The cached `file`, or None; "known not to exist", for which the look-up has a sentinel, is None too."""
    if not repo_folder(repo).is_dir():
        return None  # saves the import of the hub's client, a quarter of a second
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, revision=revision)
    return Path(found) if isinstance(found, str) else None


def cached_names(repo: str, revision: str | None = None) -> list[str]:
    """Paths in the repository of the .gguf files that are cached for `revision` (default: main)."""
    folder = repo_folder(repo)
    revision = revision or "main"
    ref = folder / "refs" / revision
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.is_file())


def is_inside(path: Path) -> bool:
    """Whether a path leads into the cache by its own name: a link of another program's into it does not."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) in path.parents


def discard(path: Path, sha256: str) -> bool:
    """Remove a damaged cache entry: a snapshot file whose blob claims to be `sha256` and is not.

    False, and nothing is touched, if the blob is not named so: then it is another version, not damage.
    """
    blob = path.resolve()
    if blob.name != sha256:
        return False
    path.unlink()
    blob.unlink(missing_ok=True)
    return True
