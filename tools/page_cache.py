"""Pages that were read a short while ago: a model asks for one address several times. It fetches nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_MAX_PAGES = 32


class PageCache(Generic[T]):
    """The last 32 pages by address, each for `max_age_s` seconds; 0 keeps none. For several threads."""

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._pages: dict[str, tuple[float, T]] = {}
        self._lock = threading.Lock()

    def get(self, url: str, make: Callable[[], T]) -> tuple[T, float]:
        """The page of `url` and its age in seconds; `make()` gives it where it is not there or too old.

        What `make` raises is raised, and not kept.
        """
        with self._lock:
            at, page = self._pages.get(url, (0.0, None))
        age_s = time.monotonic() - at
        if page is not None and age_s < self._max_age_s:
            return page, age_s
        made = make()
        with self._lock:
            self._pages.pop(url, None)
            self._pages[url] = (time.monotonic(), made)
            while len(self._pages) > _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
        return made, 0.0
