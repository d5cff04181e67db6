"""Where laploop keeps things. Knows the platform's conventions, not what lies there."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """What can be made or fetched again: `LAPLOOP_CACHE_DIR`, or laploop's folder in the platform's caches."""
    chosen = os.environ.get("LAPLOOP_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("laploop", appauthor=False)


def data_dir() -> Path:
    """What is the user's own: `LAPLOOP_DATA_DIR`, or laploop's folder in the platform's place for data."""
    chosen = os.environ.get("LAPLOOP_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("laploop", appauthor=False)
