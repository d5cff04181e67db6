"""What several tests of the agent write: raw replies in Qwen3's syntax."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def calls() -> Callable[..., str]:
    """`calls(("f", {"x": 1}), …)` is the raw reply that makes these calls."""

    def raw(*pairs: tuple[str, dict[str, Any]]) -> str:
        blocks = (
            "<tool_call>\n" + json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n</tool_call>"
            for n, a in pairs
        )
        return "\n".join(blocks)

    return raw
