"""The choice of a model by scripts/run: the default, or the fallback where no source of it answers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GGUF = b"GGUF" + (3).to_bytes(4, "little") + bytes(24)  # a head is all that resolve_model looks at
ROW = {
    "quant": "Q8_0",
    "repo": "owner/repo",
    "size_bytes": len(GGUF),
    "sha256": hashlib.sha256(GGUF).hexdigest(),
}
CODE = """
import json, sys
from pathlib import Path
from laploop.models import ModelError
from laploop.models.files.catalogue import Catalogue
from laploop.models.files.store import Store
from laploop.scripts.default_model import choose
catalogue = Catalogue.from_json(sys.argv[2])
try:
    print(json.dumps(choose(fallback="small", catalogue=catalogue, store=Store(Path(sys.argv[1])))))
except ModelError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


def choose(folder: Path, on_disk: list[str]) -> list[str]:
    """What is chosen with these models on disk, and a hub that refuses every connection."""
    folder.mkdir()
    for name in on_disk:
        (folder / f"{name}.gguf").write_bytes(GGUF)
    rows = [{"name": name, "file": f"{name}.gguf", **ROW} for name in ("big", "small")]
    catalogue = json.dumps({"default": "big", "models": rows})
    # in a process of its own, since huggingface_hub reads HF_ENDPOINT once, when it is imported
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(folder), catalogue],
        env=os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(folder / "hub")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("on_disk", "chosen"),
    [(["big", "small"], ["big", ""]), (["big"], ["big", ""]), (["small"], ["small", "big"])],
)
def test_the_fallback_is_taken_only_where_the_default_cannot_be_had(
    tmp_path: Path, on_disk: list[str], chosen: list[str]
) -> None:
    assert choose(tmp_path / "store", on_disk) == chosen


def test_with_neither_to_be_had_the_error_names_both(tmp_path: Path) -> None:
    kind, message = choose(tmp_path / "store", [])
    assert kind == "ModelUnavailableError"
    assert "big could not be fetched" in message
    assert "small could not be fetched" in message
