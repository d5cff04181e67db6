"""Text of models, tools and files made safe to show: control characters become visible. It knows no screen."""

from __future__ import annotations

import json
import re

# C0 but tab and newline, DEL, C1; the marks that reorder text (Unicode's bidirectional controls); and halves of
# surrogate pairs, which no stream can encode.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


MAX_LINE_CHARS = 2_000


def clean(text: str) -> str:
    """The text with control characters as visible escapes; carriage returns are dropped. Works piece by
    piece.
    """
    return _CONTROL.sub(lambda m: _visible(m.group()), text.replace("\r", ""))


def _visible(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def json_text(value: object, indent: int | None = 2) -> str:
    """JSON for stdout, with no raw control character in it: inside strings they can be written as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _CONTROL.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def one_line(text: str) -> str:
    """The text on one line, clean; no more of it than the widest terminal shows."""
    return clean(" ".join(text[:MAX_LINE_CHARS].split()))
