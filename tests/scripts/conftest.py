"""Commands leave traces and sessions in the data folder: here each test has its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the test."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("LAPLOOP_DATA_DIR", str(folder))
    return folder
