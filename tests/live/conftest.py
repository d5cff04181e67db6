"""Real weights, fetched as a user fetches them: through `resolve_model`, into the user's own cache.

A module names its model as MODEL and its context as N_CTX; it is loaded for the module and freed at its end, so that
one model is in memory at a time. LAPLOOP_LIVE_MODEL=PATH puts another file in the place of all of them, to find slips
in the tests themselves without weights: with a random-weight model the assertions that need a mind will fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from laploop.engine import EngineConfig
from laploop.models import ChatModel, resolve_model

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="session")
def weights() -> Callable[[str], Path]:
    """`weights("smollm2-135m")` is the path of its file."""

    def find(name: str) -> Path:
        return resolve_model(os.environ.get("LAPLOOP_LIVE_MODEL") or name).path

    return find


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, weights: Callable[[str], Path]) -> Iterator[ChatModel]:
    path = weights(request.module.MODEL)
    with ChatModel.load(path, config=EngineConfig(n_ctx=request.module.N_CTX, prefix_cache_bytes=0)) as loaded:
        yield loaded
