"""Where laploop keeps what it can make or fetch again. Knows the platform's conventions, not what lies there."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """laploop's cache folder: `LAPLOOP_CACHE_DIR`, or the platform's place for caches."""
    chosen = os.environ.get("LAPLOOP_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("laploop", appauthor=False)
