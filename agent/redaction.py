"""Secrets taken out of what is written to disk, by rule. It knows shapes of secrets, not what a record means.

A rule sees one text at a time: a key that is known by its shape (a provider's prefix, a JSON web token, a private key),
or a value behind a word such as `password`. What has no such shape is not found: a trace is still private.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_WORD = (
    r"(?:password|passwd|passphrase|secret|(?:api|access|private)[_-]?key|(?:access|auth|refresh|bearer)[_-]?token"
    r"|authorization|credentials?)"
)
_SECRET_NAME = re.compile(rf"(?:.*[_-])?{_WORD}|token|pwd", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is replaced: the group `secret` of the pattern where it has one, else the whole match."""

    name: str
    pattern: re.Pattern[str]


RULES: tuple[Rule, ...] = (
    Rule(
        "private key",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    Rule("web token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    Rule(
        "key",
        re.compile(
            r"\b(?:sk-[\w-]{16,}|hf_\w{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
            r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{30,}|pypi-[\w-]{16,}|npm_\w{30,})"
        ),
    ),
    Rule("authorization", re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[\w.~+/=-]{8,})", re.IGNORECASE)),
    Rule(
        "password in a link",
        re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,200}:(?P<secret>[^\s/@\"']{1,200})@"),
    ),
    Rule(  # the value in quotes, as JSON (which may stand inside JSON) and source text have it
        "named",
        re.compile(rf"{_WORD}\\*[\"']?\s*[:=]\s*\\*[\"'](?P<secret>[^\"'\\\n]{{3,500}})", re.IGNORECASE),
    ),
    Rule("named", re.compile(rf"\b{_WORD}\s*=\s*(?P<secret>[^\s\"'\\&,;]{{3,500}})", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Replaces secrets in JSON values by `[redacted: rule]`. The result is as valid as JSON as what it was.

    Args:
        rules: tried in this order. `Redaction(())` replaces nothing.
    """

    rules: Sequence[Rule] = RULES

    def text(self, text: str) -> str:
        """The text without its secrets."""
        for rule in self.rules:
            text = rule.pattern.sub(lambda match, name=rule.name: _replaced(match, name), text)  # type: ignore[misc]
        return text

    def value(self, value: Any) -> Any:
        """A copy of a JSON value with the secrets in all its texts replaced, and every text under a telling name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._named(key, item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def _named(self, key: str, value: Any) -> Any:
        if self.rules and isinstance(value, str) and value and _SECRET_NAME.fullmatch(key):
            return f"[redacted: {key}]"
        return self.value(value)


def _replaced(match: re.Match[str], name: str) -> str:
    mark = f"[redacted: {name}]"
    if "secret" not in match.re.groupindex:
        return mark
    if match["secret"].startswith("[redacted"):
        return match[0]
    start, end = match.span("secret")
    return match[0][: start - match.start()] + mark + match[0][end - match.start() :]
