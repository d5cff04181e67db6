"""What a user may write for a model, what is said when it names nothing, which file a quantisation means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laploop.models.errors import ModelNotFoundError, QuantNotFoundError
from laploop.models.files.quants import choose_files, parts_of
from laploop.models.files.spec import HubSpec, NameSpec, OllamaSpec, PathSpec, UrlSpec, parse_spec

DATA = Path(__file__).parents[1] / "data" / "download.jsonl"
CASES = {case["id"]: case for case in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())}


@pytest.mark.parametrize("text", ["qwen3-1.7b", "Qwen3-1.7B:q8_0"])
def test_short_names(text: str) -> None:
    parsed = parse_spec(text)
    assert isinstance(parsed, NameSpec) and parsed.entry.name == "qwen3-1.7b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:Qwen/Qwen3-1.7B-GGUF", HubSpec("Qwen/Qwen3-1.7B-GGUF")),
        ("HF:Qwen/Qwen3-1.7B-GGUF:Q8_0", HubSpec("Qwen/Qwen3-1.7B-GGUF", quant="Q8_0")),
        ("hf://Qwen/Qwen3-1.7B-GGUF", HubSpec("Qwen/Qwen3-1.7B-GGUF")),
        ("hf:a/b/c.gguf", HubSpec("a/b", file="c.gguf")),
        ("hf:a/b/sub/c.GGUF", HubSpec("a/b", file="sub/c.GGUF")),
        ("hf:a/b:c.gguf", HubSpec("a/b", file="c.gguf")),
        ("ms:a/b", HubSpec("a/b", scheme="ms:")),
        ("MS:a/b:q4_k_m", HubSpec("a/b", quant="q4_k_m", scheme="ms:")),
        ("ms:a/b/c.gguf", HubSpec("a/b", file="c.gguf", scheme="ms:")),
    ],
)
def test_hub_specs(text: str, expected: HubSpec) -> None:
    assert parse_spec(text) == expected


def test_a_bare_repository_needs_the_flag_or_a_quantisation() -> None:
    assert parse_spec("a/b", hub=True) == HubSpec("a/b")
    assert parse_spec("a/b:q8_0", hub=True) == parse_spec("a/b:q8_0") == HubSpec("a/b", quant="q8_0")
    with pytest.raises(ModelNotFoundError, match="hf:a/b"):
        parse_spec("a/b")
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        parse_spec("a/b:latest")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hf:",
        "hf:a",
        "hf:a/b:",
        "\0",
        "~nobody-here/x.gguf",
        "x" * 5000 + ".gguf",
        "hf:a/b/c.bin",
        "hf:../../etc/x.gguf",
        "hf:a/b/../../c.gguf",
        "hf:a/b/c.gguf:Q8",
    ],
)
def test_malformed_specs_are_refused(text: str) -> None:
    with pytest.raises(ModelNotFoundError):
        parse_spec(text)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.invalid")
    for page in ("blob", "resolve", "raw"):
        address = f"https://mirror.invalid/a/b/{page}/main/dir/my%20model.gguf?download=true"
        assert parse_spec(address) == HubSpec("a/b", file="dir/my model.gguf", revision="main")
    for other in ("https://elsewhere.invalid/a/b/c.safetensors", "https://mirror.invalid/a/b", "https:///c.gguf"):
        with pytest.raises(ModelNotFoundError, match="give its path"):
            parse_spec(other)


def test_addresses_elsewhere_carry_a_hash_if_they_like() -> None:
    address = "https://me:secret@elsewhere.invalid/d/my%20model.gguf?key=secret"
    plain = parse_spec(address)
    assert isinstance(plain, UrlSpec) and plain == UrlSpec(address)
    assert (plain.name, str(plain)) == ("my model.gguf", "https://elsewhere.invalid/d/my%20model.gguf")
    assert parse_spec(f"{address}#sha256={'AB' * 32}") == UrlSpec(address, "ab" * 32)
    for wrong in ("#sha256=12", "#part"):
        with pytest.raises(ModelNotFoundError, match="64 hex digits"):
            parse_spec(address + wrong)


def test_a_name_of_ollama_is_a_tag_of_it() -> None:
    assert parse_spec("ollama:llama3.2:1b") == OllamaSpec("llama3.2:1b")
    assert parse_spec("Ollama:hf.co/a/b") == OllamaSpec("hf.co/a/b:latest")


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "モデル" / "żółw 模型.gguf"
    file.parent.mkdir()
    file.touch()
    assert parse_spec(str(file)) == PathSpec(file)
    monkeypatch.chdir(file.parent)
    assert parse_spec(file.name) == PathSpec(Path(file.name))
    assert parse_spec(f"./{file.name}") == PathSpec(Path(file.name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert parse_spec(f"~/モデル/{file.name}") == PathSpec(file)


def test_a_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.chdir(tmp_path)
    assert isinstance(parse_spec("smollm2-135m"), NameSpec)


def test_a_folder_with_one_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no \.gguf model"):
        parse_spec(str(tmp_path))
    for name in ("README.md", "mmproj-F16.gguf", "one.gguf"):
        (tmp_path / name).touch()
    assert parse_spec(str(tmp_path)) == PathSpec(tmp_path / "one.gguf")
    (tmp_path / "two.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=r"one\.gguf, two\.gguf"):
        parse_spec(str(tmp_path))


def test_a_folder_with_one_split_model(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"m-0000{n}-of-00002.gguf").touch()
    assert parse_spec(str(tmp_path)) == PathSpec(tmp_path / "m-00001-of-00002.gguf")


def test_a_missing_path_lists_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "real.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=r"real\.gguf"):
        parse_spec(str(tmp_path / "reel.gguf"))
    with pytest.raises(ModelNotFoundError, match="does not exist either"):
        parse_spec(str(tmp_path / "none" / "x.gguf"))


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused_by_name(text: str) -> None:
    try:
        parsed = parse_spec(text)
    except ModelNotFoundError as error:
        assert str(error)
    else:
        assert isinstance(parsed, PathSpec | HubSpec | NameSpec | UrlSpec | OllamaSpec)


@pytest.mark.parametrize("case_id", ["C098", "C099", "C100"])
def test_case_choice_of_a_quantisation(case_id: str) -> None:
    given_, expected = CASES[case_id]["input"], CASES[case_id]["expected"]
    if "error_mentions" in expected and "selected_count" not in expected:
        with pytest.raises(QuantNotFoundError) as caught:
            choose_files(given_["repo_files"], given_["wanted"], "a/b")
        assert all(word in str(caught.value) for word in expected["error_mentions"])
        assert not any(word in str(caught.value) for word in expected["error_not_mentions"])
        return
    chosen = choose_files(given_["repo_files"], given_["wanted"], "a/b")
    assert chosen == expected.get("selected", chosen)
    assert len(chosen) == expected.get("selected_count", 1)
    assert chosen[0] == expected.get("load_path", chosen[0])


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("Q4_K_S", "m-Q4_K_S.gguf"),
        ("F16", "m-F16.gguf"),
        ("bf16", "m-BF16.gguf"),
        ("IQ4_XS", "m-IQ4_XS.gguf"),
        (None, "m-Q4_K_M.gguf"),
    ],
)
def test_quantisations_match_whole(wanted: str | None, chosen: str) -> None:
    """`F16` is not in `BF16`, `Q4_K` not in `Q4_K_M`."""
    names = [f"m-{quant}.gguf" for quant in ("Q4_K_M", "Q4_K_S", "BF16", "F16", "IQ4_XS", "Q4_0")]
    assert choose_files([*names, "mmproj-F16.gguf", "imatrix-F16.gguf"], wanted, "a/b") == [chosen]


@pytest.mark.parametrize("wanted", ["Q4_K", "Q4", "K_M", "XS", "m"])
def test_pieces_of_a_quantisation_do_not_choose(wanted: str) -> None:
    names = ["m-Q4_K_M.gguf", "m-IQ4_XS.gguf"]
    with pytest.raises(QuantNotFoundError, match=r"m-IQ4_XS\.gguf, m-Q4_K_M\.gguf"):
        choose_files(names, wanted, "a/b")


def test_two_matches_are_not_guessed() -> None:
    with pytest.raises(QuantNotFoundError, match="2 match"):
        choose_files(["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "a/b")
    with pytest.raises(QuantNotFoundError, match="no quantisation"):
        choose_files(["a-Q8_0.gguf", "a-F16.gguf"], None, "a/b")


def test_parts_of_a_split_file() -> None:
    names = [f"q/m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert parts_of(names[1], names, "a/b") == names
    with pytest.raises(QuantNotFoundError, match="00002-of-00003"):
        parts_of(names[0], [names[0], names[2]], "a/b")
    with pytest.raises(QuantNotFoundError, match="holds no GGUF"):
        choose_files(["README.md"], None, "a/b")
