"""The one module that calls llama.cpp: its failures are errors with its own last words, and its log stays quiet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from laploop.engine import BackendError, Engine, EngineConfig, native

ROOT = Path(__file__).parents[2]


def test_only_one_module_imports_llama_cpp() -> None:
    folders = ("engine", "models", "agent", "tools", "scripts")
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*(import|from) llama_cpp", path.read_text("utf-8"), re.MULTILINE)
        if not {"bootstrap", "benchmarks"} & set(path.parts)  # a benchmark measures llama.cpp itself, too
    }
    assert found == {str(Path("engine/native.py"))}


def test_a_file_that_llama_cpp_refuses_is_an_error_with_its_words(tiny_path: Path, tmp_path: Path) -> None:
    """A header that is whole and a shape that is not: only llama.cpp sees it."""
    data = tiny_path.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_X.weight")
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    with pytest.raises(BackendError, match=r"odd\.gguf.*blk\.1\.attn_q\.weight"):
        Engine.load(path, EngineConfig(n_ctx=256))


def test_loading_and_generating_print_nothing(tiny_path: Path) -> None:
    code = (
        "import sys; from laploop.engine import Engine, EngineConfig\n"
        "with Engine.load(sys.argv[1], EngineConfig(n_ctx=256)) as e: list(e.generate([65], max_tokens=3))"
    )
    command = [sys.executable, "-c", code, str(tiny_path)]
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"LAPLOOP_LLAMA_LOG": "1"}
    )
    assert "llama" in told.stderr and told.stdout == ""


def test_facts_of_a_model(tiny_engine: Engine) -> None:
    model = tiny_engine.model
    assert "qwen3" in model.description and "Q8_0" in model.description
    assert model.n_vocab == tiny_engine.vocabulary.n_tokens and model.n_ctx_train == 4096
    assert model.n_params > 100_000 and model.size_bytes > 100_000
    assert native.system_info()


def test_a_long_text_is_tokenized_whole(tiny_engine: Engine) -> None:
    text = "早上好 hello " * 20_000
    assert tiny_engine.detokenize(tiny_engine.tokenize(text)) == text
