"""Which of the two languages that laploop's own sentences exist in a text is written in."""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "zh"]

_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_LATIN = re.compile(r"[A-Za-z]")


def language_of(text: str) -> Language:
    """ "zh" where at least a fifth of the letters are Chinese and none is Japanese or Korean, else "en"."""
    n_cjk, n_latin = len(_CJK.findall(text)), len(_LATIN.findall(text))
    if _KANA_OR_HANGUL.search(text) or n_cjk == 0:
        return "en"
    return "zh" if n_cjk >= 0.2 * (n_cjk + n_latin) else "en"
