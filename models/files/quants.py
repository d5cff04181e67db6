"""Which file of a repository is meant by a quantisation's name.

Knows file names only. Rules: the whole path counts (`Q4_K_M/model.gguf`), letter case does not; a name
matches whole (`Q4_K` is not `Q4_K_M`, `F16` not `BF16`); parts of a split model are one choice; nothing is
substituted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import QuantNotFoundError
from .spec import is_model_file

DEFAULT_QUANT = "Q4_K_M"  # what llama.cpp's -hf takes when no quantisation is named
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)


def gguf_models(names: Iterable[str]) -> dict[str, list[str]]:
    """The models among files: path without part numbers to its files in order."""
    return _group(name for name in names if is_model_file(name))


def choose_files(names: Iterable[str], quant: str | None, repo: str, scheme: str = "hf:") -> list[str]:
    """The file, or all parts of the split file, that hold `quant`, the one to load first.

    Without `quant`: the only model of the repository, else its Q4_K_M. Raises `QuantNotFoundError` naming
    what was wanted and what is there, if nothing or more than one model matches, or a part is missing.
    """
    models = gguf_models(names)
    if not models:
        raise QuantNotFoundError(f"{repo} holds no GGUF files. Choose a repository whose name ends in -GGUF.")
    if quant is None and len(models) == 1:
        matches = list(models)
    else:
        matches = [model for model in models if names_quant(model, quant or DEFAULT_QUANT)]
    there = ", ".join(files[0] for files in models.values())
    if len(matches) != 1:
        wanted = quant or f"no quantisation (so {DEFAULT_QUANT} is looked for)"
        found = "none matches" if not matches else f"{len(matches)} match"
        way_out = f"Write {scheme}{repo}:QUANT or {scheme}{repo}/FILE.gguf for one of them."
        raise QuantNotFoundError(f"{wanted} was asked for, and of the models in {repo} {found}: {there}. {way_out}")
    return _whole(models[matches[0]], repo)


def parts_of(file: str, names: Iterable[str], repo: str) -> list[str]:
    """`file` and, if it is part of a split model, all its siblings in order."""
    all_names = list(names)
    if file not in all_names:
        there = ", ".join(name for name in all_names if is_model_file(name)) or "no GGUF files"
        raise QuantNotFoundError(f"{repo} has no file {file}. It has: {there}.")
    return _whole(_group(all_names)[_PART.sub("", file)], repo)


def is_part(file: str) -> bool:
    """Whether the name is that of one part of a split model."""
    return bool(_PART.search(file))


def _group(names: Iterable[str]) -> dict[str, list[str]]:
    models: dict[str, list[str]] = {}
    for name in sorted(names):
        models.setdefault(_PART.sub("", name), []).append(name)
    return models


def names_quant(model: str, quant: str) -> bool:
    """Whether the path of a model names `quant`, in any letter case."""
    if not re.match(r"[A-Za-z-]+\d", quant):
        return False  # every quantisation's name begins like Q4, IQ4, F16, UD-Q4; K_M is a piece of one
    # `_` may stand before a quantisation (model_Q4_K_M) but after it it would continue the name (Q4_K_M)
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])", model, re.IGNORECASE))


def _whole(files: list[str], repo: str) -> list[str]:
    match = _PART.search(files[0])
    if match is None:
        return files
    count = int(match[2])
    expected = [_PART.sub(f"-{n:05d}-of-{count:05d}", files[0]) for n in range(1, count + 1)]
    missing = [name for name in expected if name not in files]
    if missing:
        raise QuantNotFoundError(f"{repo} lacks parts of a split model: {', '.join(missing)}.")
    return expected
