"""What a user may write to name a model, taken apart.

Forms: a short name of the catalogue with an optional quantisation (`qwen3-1.7b`, `qwen3-1.7b:q4_k_m`); a path
to a file, or to a folder with exactly one model; `hf:owner/repo[:quant]` and `hf:owner/repo/file.gguf` (what
llama.cpp's `-hf` takes, with the prefix), the same with `ms:` for ModelScope; `owner/repo:quant`; an address of a file;
`ollama:name[:tag]`. `owner/repo` alone is refused, with a hint, because it could as well be a path. Looks at the disk
for paths only; knows nothing of the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import ModelNotFoundError
from .catalogue import Catalogue, CatalogueEntry

_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_QUANT = re.compile(r"[A-Za-z-]*\d\w*", re.ASCII)
_NOT_A_MODEL = ("mmproj", "imatrix")  # image projectors and calibration data also end in .gguf


@dataclass(frozen=True, slots=True)
class PathSpec:
    """A file on disk."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A file, or the files of a quantisation, in a repository; `scheme` "hf:" is the hub, "ms:" ModelScope."""

    repo: str
    quant: str | None = None
    file: str | None = None
    revision: str | None = None
    scheme: str = "hf:"

    def __str__(self) -> str:
        return f"{self.scheme}{self.repo}" + (f"/{self.file}" if self.file else f":{self.quant}" if self.quant else "")


@dataclass(frozen=True, slots=True)
class UrlSpec:
    """A file anywhere; the hash is what stands behind `#sha256=` in its address, as package indexes write it."""

    url: str
    sha256: str | None = None

    def __str__(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def name(self) -> str:
        """The file's name."""
        return unquote(urlsplit(self.url).path).rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class OllamaSpec:
    """A model of Ollama's store by its name there, such as `llama3.2:1b`."""

    name: str


@dataclass(frozen=True, slots=True)
class NameSpec:
    """A model of the catalogue."""

    entry: CatalogueEntry


Spec = PathSpec | HubSpec | NameSpec | UrlSpec | OllamaSpec


def parse_spec(text: str, *, hub: bool = False, catalogue: Catalogue | None = None) -> Spec:
    """Take `text` apart. With `hub` (the `-hf` flag) a bare `owner/repo[:quant]` is a repository.

    Raises `ModelNotFoundError` if it names nothing that is known or on disk; the message lists the choices.
    """
    text = text.strip()
    if not text or "\0" in text:
        raise ModelNotFoundError(f"The model is an empty or broken string. {_forms(catalogue)}")
    try:
        return _parse(text, hub, catalogue)
    except (
        OSError,
        RuntimeError,
    ) as error:  # a name too long for a path, a folder not to be read, no such ~user
        why = getattr(error, "strerror", None) or str(error)
        raise ModelNotFoundError(f"{text[:200]!r} cannot be a path here ({why}). {_forms(catalogue)}") from error


def _parse(text: str, hub: bool, catalogue: Catalogue | None) -> Spec:
    scheme, rest = text[:3].lower(), text[3:].removeprefix("//")
    if scheme in ("hf:", "ms:"):
        return _hub(rest, text, scheme)
    if text.lower().startswith("ollama:"):
        name = text[len("ollama:") :].removeprefix("//")
        return OllamaSpec(name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest")
    if text.lower().startswith(("http://", "https://")):
        return _address(text)
    if hub:
        return _hub(text, text)
    if _looks_like_path(text):
        return PathSpec(_model_in(Path(text).expanduser(), text))
    if "/" in text or "\\" in text:
        repo, _, quant = text.partition(":")
        if _REPO.fullmatch(repo) and _QUANT.fullmatch(quant):
            return _hub(text, text)
        hint = f" For the repository on the hub write hf:{text}." if _REPO.fullmatch(repo) else ""
        raise ModelNotFoundError(f"There is no file or folder {text!r}.{hint} {_forms(catalogue)}")
    try:
        return NameSpec((catalogue or Catalogue.load()).find(text))
    except ModelNotFoundError:
        if Path(text).is_file():  # no model's name: whoever opens it says what it is instead
            return PathSpec(Path(text))
        raise


def is_model_file(name: str) -> bool:
    """Whether a file of this name can be a language model: a .gguf, neither projector nor calibration."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1].lower()
    return base.endswith(".gguf") and not any(word in base for word in _NOT_A_MODEL)


def _looks_like_path(text: str) -> bool:
    if text.startswith(("/", "\\", "./", ".\\", "../", "..\\", "~")) or text in (".", ".."):
        return True
    if text.lower().endswith(".gguf") or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    # `models/mine` is a path if it is there; a plain word is a name even if a folder happens to be called so
    return ("/" in text or "\\" in text) and Path(text).exists()


def _model_in(path: Path, text: str) -> Path:
    if path.is_file():
        return path
    if path.is_dir():
        names = sorted(item.name for item in path.iterdir() if is_model_file(item.name))
        whole = [name for name in names if not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", name, re.I)]
        if len(whole) == 1:
            return path / whole[0]
        if not names:
            raise ModelNotFoundError(f"The folder {text} holds no .gguf model. Name the file, or another folder.")
        raise ModelNotFoundError(f"The folder {text} holds {len(names)} models; name one: {_some(whole or names)}.")
    beside = path.parent
    names = sorted(item.name for item in beside.glob("*.gguf")) if beside.is_dir() else []
    if names:
        there = f"In that folder: {_some(names)}."
    elif beside.is_dir():
        there = "That folder holds no .gguf file."
    else:
        there = f"The folder {beside} does not exist either."
    raise ModelNotFoundError(f"There is no file {text}. {there} `laploop models list` shows what is known.")


def _hub(rest: str, text: str, scheme: str = "hf:") -> HubSpec:
    head, _, quant = rest.partition(":")
    pieces = head.split("/", 2)
    repo = "/".join(pieces[:2])
    if len(pieces) < 2 or not _REPO.fullmatch(repo) or ".." in repo:
        raise ModelNotFoundError(
            f"{text!r} names no repository; expected {scheme}owner/repo, {scheme}owner/repo:quant or "
            f"{scheme}owner/repo/file.gguf."
        )
    file = pieces[2] if len(pieces) == 3 and pieces[2] else None
    if file is None and quant.lower().endswith(".gguf"):
        file, quant = quant, ""
    if file is not None:
        if quant or ".." in file.split("/") or not file.lower().endswith(".gguf"):
            raise ModelNotFoundError(f"{text!r}: expected a .gguf file after the repository, and no quantisation.")
        return HubSpec(repo, file=file, scheme=scheme)
    if ":" in rest and not quant:
        raise ModelNotFoundError(f"{text!r}: a quantisation is missing after the colon, for example :Q4_K_M.")
    return HubSpec(repo, quant=quant or None, scheme=scheme)


def _address(text: str) -> HubSpec | UrlSpec:
    """An address from a browser. On the hub /blob/ is the page about the file, /resolve/ the file; both will do."""
    from huggingface_hub import constants

    parts = urlsplit(text)
    hosts = {urlsplit(url).netloc for url in (constants.ENDPOINT, constants.HUGGINGFACE_CO_URL_HOME)}
    path = unquote(parts.path)
    if not path.lower().endswith(".gguf") or not parts.hostname:
        raise ModelNotFoundError(
            f"{text} is not the address of a .gguf file (https://host/…/file.gguf, or on the hub "
            "…/owner/repo/resolve/main/file.gguf). Download it with a browser and give its path."
        )
    pieces = path.strip("/").split("/", 4)
    if parts.netloc in hosts and len(pieces) == 5 and pieces[2] in ("blob", "resolve", "raw"):
        owner, name, _, revision, file = pieces
        if _REPO.fullmatch(f"{owner}/{name}") and ".." not in (revision, *file.split("/")):
            return HubSpec(f"{owner}/{name}", file=file, revision=revision)
    _, _, sha256 = parts.fragment.lower().partition("sha256=")
    if parts.fragment and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ModelNotFoundError(f"{text}: behind # only sha256= and 64 hex digits are understood.")
    return UrlSpec(parts._replace(fragment="").geturl(), sha256 or None)


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _forms(catalogue: Catalogue | None) -> str:
    names = (catalogue or Catalogue.load()).names()
    return f"Name a model ({', '.join(names)}), a .gguf file or its address, hf:owner/repo[:quant], or ms:…"
