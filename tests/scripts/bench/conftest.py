"""llama.cpp is loaded as all tests have it: the first measurement would choose how threads wait, for this process."""

from __future__ import annotations

import laploop.engine.native
import pytest


@pytest.fixture(autouse=True)
def _loaded() -> None:
    assert laploop.engine.native.system_info()
