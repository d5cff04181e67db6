"""JSON that can be written to any file: readable, and never half a surrogate pair.

A question may hold one (a byte of the command line that is no UTF-8 arrives as one), and no file could take it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: Any, indent: int | None = None) -> str:
    """`value` as JSON with non-ASCII characters kept; lone surrogates, which stand only in strings, as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m.group()):04x}", text)
