"""A regular expression of JSON Schema (ECMA 262) in the words that the grammar engine takes, and never wider.

llguidance reads Rust's dialect: other escapes, set operations inside classes, \\d \\w \\s of ASCII. Validators in
Python take \\W, \\D and \\S as the complements of Unicode's classes; here they are what both agree on, so that a text
that the grammar lets through is one that a validator takes. What cannot be said is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# What Python's regular expressions take for letters, digits and white space; what this Unicode does not know (Cn) may
# be a letter in theirs.
_WORD = r"\p{Alphabetic}\p{M}\p{N}\p{Pc}\p{Cn}\x{200C}\x{200D}"
_DIGIT, _SPACE = r"\p{Nd}\p{Cn}", r"\s\x{1C}-\x{1F}\x{85}\x{FEFF}"
# llguidance takes a class with every control character for one that also has quotes and backslashes, which JSON escapes
# like those: [^"] let quotes through. So no class has this one.
_ODD = r"\x{01}"
_WIDE = {"w": _WORD, "d": _DIGIT, "s": _SPACE}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})")
_META = frozenset(r"\.+*?()|[]{}^$#&-~")  # outside a class or inside
_CONTROL = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|c([A-Za-z])|0(?![0-9])")
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PROPERTY = re.compile(r"[pP](?:[A-Z]|\{\^?[A-Za-z0-9_=]+\})")
_GROUP = re.compile(r"\((?:\?(?:P?<[A-Za-z_]\w*>|([is]*):))?")
_FLAGS = re.compile(r"\(\?([is]+)\)")


class _CannotSayError(Exception):
    """The pattern holds what the grammar engine has no words for."""


def for_grammar(pattern: str) -> str | None:
    """The pattern in llguidance's words; None where it has none: look-around, word boundaries, back-references,
    possessive and atomic groups, and what dialects read differently.

    Args:
        pattern: one that a validator takes.
    """
    try:
        return "".join(_Reader(pattern).parts())
    except _CannotSayError:
        return None


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def parts(self) -> Iterator[str]:
        if flags := _FLAGS.match(self._text):
            self._at = flags.end()
            yield flags[0]
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._at += 1
                yield self._escape()
            elif char == "[":
                self._at += 1
                yield self._class()
            elif char == "(":
                yield self._group()
            elif char in "^$.|)":
                self._at += 1
                yield char
            elif char in "*+?" or self._text.startswith("{,", self._at) or self._match(_QUANTIFIER):
                raise _CannotSayError(char)
            else:
                self._at += 1
                yield _literal(ord(char))
            yield self._quantifier(char)

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _group(self) -> str:
        found = self._match(_GROUP)
        if not found or self._text[self._at : self._at + 1] == "?":
            raise _CannotSayError("group")
        return f"(?{found[1] or ''}:"

    def _quantifier(self, before: str) -> str:
        found = self._match(_QUANTIFIER)
        if not found:
            return ""
        if before in "(|^$" or self._text[self._at : self._at + 1] in ("+", "*", "{"):
            raise _CannotSayError(found[0])
        if self._text[self._at : self._at + 1] == "?":  # lazy: another match, the same language
            self._at += 1
        return found[0]

    def _escape(self) -> str:
        """What stands behind a backslash outside a class."""
        char = self._text[self._at : self._at + 1]
        if char in ("d", "w", "s"):
            self._at += 1
            return "\\" + char
        if char in ("D", "W", "S"):
            self._at += 1
            return f"[^{_WIDE[char.lower()]}]"
        if found := self._match(_PROPERTY):
            return _property(found[0])
        return _literal(self._code_point())

    def _code_point(self) -> int:
        char = self._text[self._at : self._at + 1]
        if found := self._match(_HEX):
            digits = found[1] or found[2] or found[3]
            code = int(digits, 16) if digits else ord(found[4]) % 32 if found[4] else 0
            if 0xD800 <= code < 0xDC00 and (pair := self._match(_LOW_HALF)):
                code = 0x10000 + ((code - 0xD800) << 10) + int(pair[1], 16) - 0xDC00
            if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
                raise _CannotSayError(found[0])
            return code
        if not char or (char.isascii() and char.isalnum() and char not in _CONTROL):
            raise _CannotSayError(char)
        self._at += 1
        return _CONTROL.get(char, ord(char))

    def _class(self) -> str:
        """A character class, behind its bracket."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        if self._text.startswith("]", self._at):
            raise _CannotSayError("an empty class")
        items: list[str] = []
        has_odd = False
        while not self._text.startswith("]", self._at):
            low = self._class_atom(negated)
            if not isinstance(low, str) and self._text[self._at : self._at + 1] == "-":
                after = self._text[self._at + 1 : self._at + 2]
                if after and after != "]":
                    self._at += 1
                    high = self._class_atom(negated)
                    if isinstance(high, str) or high < low:
                        raise _CannotSayError("range")
                    has_odd = has_odd or low <= 1 <= high
                    items.append(f"{_literal(low)}-{_literal(high)}")
                    continue
            items.append(low if isinstance(low, str) else _literal(low))
        self._at += 1
        if negated:
            return f"[^{''.join(items)}{_ODD}]"
        return f"[{''.join(items)}&&[^{_ODD}]]" if has_odd else f"[{''.join(items)}]"

    def _class_atom(self, negated: bool) -> str | int:
        """A character's code point, or several characters as the engine writes them."""
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if not char:
            raise _CannotSayError("an open class")
        if char != "\\":
            return ord(char)
        char = self._text[self._at : self._at + 1]
        if char == "b":
            self._at += 1
            return 8
        if char and char in "dws":
            self._at += 1
            return _WIDE[char] if negated else "\\" + char
        if char and char in "DWS":
            self._at += 1
            return "\\" + char if negated else f"[^{_WIDE[char.lower()]}]"
        if found := self._match(_PROPERTY):
            return rf"\{found[0]}\p{{Cn}}" if negated and found[0][0] == "p" else _property(found[0])
        return self._code_point()


def _property(name: str) -> str:
    """A class by its property; the complement leaves out what this Unicode does not know."""
    if name.strip("pP{}^") in ("C", "Cn", "Other", "Unassigned"):
        raise _CannotSayError(name)  # what is in these changes with each Unicode
    if name[0] == "P":
        return rf"[^\p{name[1:]}\p{{Cn}}{_ODD}]"
    has_controls = name.lstrip("p{")[:1] not in "LMNPSZ"  # of the general categories only C has them
    return rf"[\{name}&&[^{_ODD}]]" if has_controls or "=" in name else "\\" + name


def _literal(code: int) -> str:
    """One character, inside a class or outside."""
    char = chr(code)
    if char in _META:
        return "\\" + char
    return char if char.isprintable() else rf"\x{{{code:02X}}}"
