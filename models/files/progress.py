"""What is told to whoever waits for a model. Knows nothing of terminals: see `laploop.scripts.progress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A state of one job. `done_bytes` never falls within one `description`; None: the total is not known.

    `source` says where the bytes come from: "hub", "pypi", "modelscope", "web" or "disk" (checking what is there, or
    waiting).
    """

    description: str
    done_bytes: int
    total_bytes: int | None
    source: str


ProgressFunction = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
