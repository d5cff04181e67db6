"""The tiny model: the real architecture with random weights, made once per session, loaded once per module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

# No time limits: a busy machine is no fault of the code.
hypothesis.settings.register_profile("laploop", deadline=None)
hypothesis.settings.load_profile("laploop")

if TYPE_CHECKING:
    from laploop.engine import Engine
    from laploop.models import ChatModel

SUPPORT = Path(__file__).parent / "support"
if str(SUPPORT) not in sys.path:
    sys.path.insert(0, str(SUPPORT))

from exact import EXACT  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _own_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests save (KV states) does not lie among the user's; real weights, which live and slow tests need, do."""
    if "live" in request.path.parts or any(mark.name == "slow" for mark in request.node.iter_markers()):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random-weight qwen3 GGUF, Q8_0: under EXACT, results are bit-equal whatever the batch."""
    from laploop.models.template import builtin_template
    from tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", builtin_template())


@pytest.fixture(scope="module")
def tiny_engine(tiny_path: Path) -> Iterator[Engine]:
    """One sequence, one thread, exact."""
    from laploop.engine import Engine, EngineConfig

    with Engine.load(tiny_path, EngineConfig(n_ctx=2048, n_threads=1, n_seq_max=1, **EXACT)) as engine:
        yield engine


@pytest.fixture(scope="module")
def tiny_chat(tiny_path: Path) -> Iterator[ChatModel]:
    """A chat model over such an engine."""
    from laploop.engine import EngineConfig
    from laploop.models import ChatModel

    with ChatModel.load(tiny_path, config=EngineConfig(n_ctx=2048, n_threads=1, **EXACT)) as model:
        yield model
