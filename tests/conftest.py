"""The tiny model: the real architecture with random weights, made once per session, loaded once per module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laploop.engine import Engine, EngineConfig
from laploop.models import ChatModel
from laploop.models.template import builtin_template

sys.path.insert(0, str(Path(__file__).parent / "support"))
from tiny_model import make_tiny_model

SMALL = EngineConfig(n_ctx=2048, n_threads=1)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random-weight qwen3 GGUF, Q8_0: results on it are bit-equal whatever the batch."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", builtin_template())


@pytest.fixture(scope="module")
def tiny_engine(tiny_path: Path) -> Iterator[Engine]:
    with Engine.load(tiny_path, SMALL) as engine:
        yield engine


@pytest.fixture(scope="module")
def tiny_chat(tiny_path: Path) -> Iterator[ChatModel]:
    with ChatModel.load(tiny_path, config=SMALL) as model:
        yield model
