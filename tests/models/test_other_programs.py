"""Models of other programs, laid out as they lay them out: found, listed with their origin, run in place, untouched."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from laploop.models.errors import ModelNotFoundError, ModelUnavailableError
from laploop.models.files.catalogue import Catalogue, CatalogueEntry
from laploop.models.files.other_programs import LocalModel, local_models
from laploop.models.files.progress import Progress
from laploop.models.files.resolve import resolve_model
from laploop.models.files.store import Store
from laploop.models.files.synthetic import Shape, write_synthetic

Place = Callable[[Path, bytes], Path]
VARIABLES = ("HF_HUB_CACHE", "HF_HOME", "LLAMA_CACHE", "OLLAMA_MODELS", "MODELSCOPE_CACHE", "LAPLOOP_MODEL_FOLDERS")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole GGUF of two tiny layers."""
    with pytest.MonkeyPatch.context() as patch:
        shape = Shape("qwen3", 2, 64, 128, 2, 1, 32, 300, 512, 1e6, True)
        patch.setattr("laploop.models.files.synthetic.shapes", lambda: {"tiny": shape})
        path = tmp_path_factory.mktemp("model") / "tiny.gguf"
        write_synthetic(path, "tiny:q8_0")
    return path.read_bytes()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it."""
    from huggingface_hub import constants

    for name in (*VARIABLES, "XDG_CACHE_HOME", "LAPLOOP_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / ".cache" / "huggingface" / "hub"))
    monkeypatch.setattr("laploop.models.files.other_programs.sys.platform", "linux")
    return tmp_path


def put(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def in_hub_cache(home: Path, data: bytes) -> Path:
    repo = home / ".cache/huggingface/hub/models--acme--tiny-GGUF"
    blob = put(repo / "blobs" / sha(data), data)
    put(repo / "refs/main", "c1")
    link = repo / "snapshots/c1/tiny-Q8_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def in_llama_cpp(home: Path, data: bytes) -> Path:
    cache = home / ".cache/llama.cpp"
    put(cache / "manifest=acme=tiny-GGUF=latest.json", json.dumps({"ggufFile": {"rfilename": "tiny-Q8_0.gguf"}}))
    put(cache / "acme_tiny-GGUF_tiny-Q8_0.gguf.etag", "x")
    return put(cache / "acme_tiny-GGUF_tiny-Q8_0.gguf", data)


def in_lm_studio(home: Path, data: bytes) -> Path:
    """Its home moved, as it allows; a projector lies beside the model."""
    put(home / ".lmstudio-home-pointer", str(home / "moved"))
    put(home / "moved/models/acme/tiny-GGUF/mmproj-tiny-F16.gguf", data)
    return put(home / "moved/models/acme/tiny-GGUF/tiny-Q8_0.gguf", data)


def in_lm_studio_elsewhere(home: Path, data: bytes) -> Path:
    put(home / ".lmstudio/settings.json", json.dumps({"downloadsFolder": str(home / "disk")}))
    return put(home / "disk/acme/tiny-GGUF/tiny-Q8_0.gguf", data)


def ollama_manifest(data: bytes) -> str:
    kinds = {"model": sha(data), "template": "0" * 64, "license": "1" * 64}
    layers = [{"mediaType": f"application/vnd.ollama.image.{k}", "digest": f"sha256:{v}"} for k, v in kinds.items()]
    return json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + "2" * 64}, "layers": layers})


def in_ollama(home: Path, data: bytes) -> Path:
    root = home / ".ollama/models"
    put(root / "manifests/registry.ollama.ai/library/tiny/8b", ollama_manifest(data))
    return put(root / f"blobs/sha256-{sha(data)}", data)


def in_ollama_from_the_hub(home: Path, data: bytes) -> Path:
    root = home / ".ollama/models"
    put(root / "manifests/hf.co/acme/tiny-GGUF/Q8_0", ollama_manifest(data))
    return put(root / f"blobs/sha256-{sha(data)}", data)


def in_modelscope(home: Path, data: bytes) -> Path:
    return put(home / ".cache/modelscope/models/acme--tiny-GGUF/snapshots/master/tiny-Q8_0.gguf", data)


def in_older_modelscope(home: Path, data: bytes) -> Path:
    put(home / ".cache/modelscope/hub/models/acme/tiny-1___5-GGUF/.msc", "x")
    return put(home / ".cache/modelscope/hub/models/acme/tiny-1___5-GGUF/tiny-Q8_0.gguf", data)


def in_a_named_folder(home: Path, data: bytes) -> Path:
    os.environ["LAPLOOP_MODEL_FOLDERS"] = f"{home / 'my models'}{os.pathsep}"
    return put(home / "my models/deep/er/tiny-Q8_0.gguf", data)


STORES: dict[str, tuple[Place, str, str]] = {
    "hub": (in_hub_cache, "Hugging Face cache", "hf:acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "llama.cpp": (in_llama_cpp, "llama.cpp", "hf:acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "lm studio": (in_lm_studio, "LM Studio", "hf:acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "lm studio elsewhere": (in_lm_studio_elsewhere, "LM Studio", "hf:acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "ollama": (in_ollama, "Ollama", "ollama:tiny:8b"),
    "ollama from the hub": (in_ollama_from_the_hub, "Ollama", "ollama:hf.co/acme/tiny-GGUF:Q8_0"),
    "modelscope": (in_modelscope, "ModelScope cache", "ms:acme/tiny-GGUF/tiny-Q8_0.gguf"),
    "older modelscope": (in_older_modelscope, "ModelScope cache", "ms:acme/tiny-1.5-GGUF/tiny-Q8_0.gguf"),
    "folder": (in_a_named_folder, "my models", "my models/deep/er/tiny-Q8_0.gguf"),
}


@pytest.fixture(params=STORES)
def kept(request: pytest.FixtureRequest, home: Path, model: bytes) -> Iterator[tuple[Path, str, str]]:
    """A store with the model: its path there, origin and name."""
    place, origin, name = STORES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPLOOP_MODEL_FOLDERS", "")
        yield place(home, model), origin, name


def tree(root: Path) -> dict[str, Any]:
    """Every file and link below `root` with its content and time."""
    return {
        str(path.relative_to(root)): (
            os.readlink(path) if path.is_symlink() else path.is_file() and sha(path.read_bytes()),
            path.lstat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
    }


def test_each_is_listed_with_its_origin_and_a_name_that_leads_back(
    kept: tuple[Path, str, str], home: Path, model: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, origin, name = kept
    store = Store(tmp_path_factory.mktemp("own"))
    before = tree(home)
    (found,) = local_models()
    assert (found.path, found.size_bytes) == (path, len(model))
    assert found.origin.endswith(origin) and found.name.endswith(name)
    assert resolve_model(found.name, offline=True, store=store).path.samefile(path)
    if found.repo:
        scheme = "ms:" if found.name.startswith("ms:") else "hf:"
        assert resolve_model(f"{scheme}{found.repo}:q8_0", offline=True, store=store).path.samefile(path)
    assert tree(home) == before and store.files() == []


def test_a_model_of_the_catalogue_is_used_where_another_program_keeps_it(
    kept: tuple[Path, str, str], home: Path, model: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By its size or claimed hash, whatever it is called there; hashed once."""
    path, _, _ = kept
    store = Store(tmp_path_factory.mktemp("own"))
    entry = CatalogueEntry("known", "Q8_0", "Known-Q8_0.gguf", "a/b", sha(model), size_bytes=len(model))
    before = tree(home)
    for hashed in (True, False):
        told: list[Progress] = []
        found = resolve_model("known", catalogue=Catalogue((entry,), "known"), store=store, progress=told.append)
        assert found.path.samefile(path) and found.entry == entry
        assert bool(told) == hashed
    assert tree(home) == before and store.files() == []


def test_other_bytes_of_the_same_size_are_not_the_model_and_stay(
    kept: tuple[Path, str, str], home: Path, model: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("own"))
    entry = CatalogueEntry("known", "Q8_0", "tiny-Q8_0.gguf", "a/b", "ab" * 32, size_bytes=len(model))
    before = tree(home)
    with pytest.raises(ModelUnavailableError, match="not on this machine"):
        resolve_model("known", offline=True, catalogue=Catalogue((entry,), "known"), store=store)
    assert tree(home) == before


def test_it_runs_in_place(kept: tuple[Path, str, str], home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from laploop.engine import Engine, EngineConfig

    store = Store(tmp_path_factory.mktemp("own"))
    before = tree(home)
    path = resolve_model(local_models()[0].name, offline=True, store=store).path
    config = EngineConfig(n_ctx=256, n_threads=1, prefix_cache_bytes=0)
    with Engine.load(path, config) as engine:
        steps = list(engine.generate(engine.tokenize("a b"), max_tokens=3))
    assert steps and tree(home) == before


def test_the_same_file_in_two_stores_is_one_model(home: Path, model: bytes) -> None:
    link = in_hub_cache(home, model)
    other = home / ".lmstudio/models/acme/tiny-GGUF/tiny-Q8_0.gguf"
    other.parent.mkdir(parents=True)
    other.symlink_to(link)
    assert [found.origin for found in local_models()] == ["Hugging Face cache"]


def test_what_is_damaged_or_on_its_way_is_not_listed(home: Path, model: bytes) -> None:
    root = home / ".ollama/models"
    put(root / "manifests/registry.ollama.ai/library/broken/latest", "{not json")
    put(root / "manifests/registry.ollama.ai/library/deep/latest", "[" * 5000)
    put(root / "manifests/registry.ollama.ai/library/gone/latest", ollama_manifest(b"gone"))
    put(
        root / "manifests/registry.ollama.ai/library/evil/latest", ollama_manifest(model).replace(sha(model), "../../x")
    )
    put(root / "manifests/short", ollama_manifest(model))
    dangling = home / ".cache/huggingface/hub/models--a--b/snapshots/c/x.gguf"
    dangling.parent.mkdir(parents=True)
    dangling.symlink_to("../../blobs/none")
    put(home / ".cache/huggingface/hub/models--a--b/blobs/1.incomplete", model)
    assert local_models() == []


def test_a_folder_that_loops_ends(home: Path, model: bytes) -> None:
    folder = home / ".lmstudio/models/acme/tiny-GGUF"
    put(folder / "tiny.gguf", model)
    (folder / "again").symlink_to(folder)
    assert [found.file for found in local_models()] == ["tiny.gguf"]


def test_a_named_folder_that_is_not_there_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPLOOP_MODEL_FOLDERS", str(home / "none"))
    with pytest.warns(UserWarning, match="none, which is not a folder"):
        assert local_models() == []


def test_a_split_model_is_one_and_needs_all_its_parts(home: Path, model: bytes, tmp_path: Path) -> None:
    folder = home / ".lmstudio/models/acme/tiny-GGUF"
    first = put(folder / "t-Q8_0-00001-of-00002.gguf", model)
    second = put(folder / "t-Q8_0-00002-of-00002.gguf", model)
    (found,) = local_models()
    assert found == LocalModel(
        "hf:acme/tiny-GGUF/t-Q8_0-00001-of-00002.gguf",
        "LM Studio",
        first,
        2 * len(model),
        "acme/tiny-GGUF",
        "t-Q8_0-00001-of-00002.gguf",
    )
    store = Store(tmp_path / "own")
    assert resolve_model("hf:acme/tiny-GGUF:Q8_0", offline=True, store=store).path == first
    second.unlink()
    with pytest.raises(ModelUnavailableError, match="not on this machine"):
        resolve_model("hf:acme/tiny-GGUF:Q8_0", offline=True, store=store)


def test_an_unknown_name_tells_what_other_programs_have(home: Path, model: bytes, tmp_path: Path) -> None:
    in_ollama(home, model)
    with pytest.raises(ModelNotFoundError, match=r"On this machine: ollama:tiny:8b"):
        resolve_model("tiny:8b", store=Store(tmp_path / "own"))
    with pytest.raises(ModelNotFoundError, match=r"holds no tiny:latest; it holds ollama:tiny:8b"):
        resolve_model("ollama:tiny", store=Store(tmp_path / "own"))


def test_nothing_anywhere_is_no_warning(home: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert local_models() == []
