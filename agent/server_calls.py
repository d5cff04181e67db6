"""The calls in a server's stream, brought into OpenAI's form: each under its own index, with an id, named once.

Servers differ. Some leave the index away, or give every call the index 0 (then a new id begins a new call); some leave
the id away; llama-cpp-python's repeats id and name in each piece.
"""

from __future__ import annotations

import uuid
from typing import Any


class ServerCalls:
    """Knows which calls of one stream have begun, choice by choice."""

    def __init__(self) -> None:
        self._begun: dict[int, list[dict[str, str]]] = {}  # choice → its calls: id as the server gave it, and name
        self._at: dict[tuple[int, Any], int] = {}  # choice and the server's index → the call that it stands for now

    def mend(self, choice: dict[str, Any]) -> None:
        """Rewrite the pieces of calls in one choice of a chunk, in place."""
        number = choice.get("index") or 0
        for part in (choice.get("delta") or {}).get("tool_calls") or ():
            self._mend(number, part)

    def _mend(self, number: int, part: dict[str, Any]) -> None:
        begun, key = self._begun.setdefault(number, []), (number, part.get("index"))
        function = part.get("function") or {}
        call_id, name = part.get("id") or "", function.get("name") or ""
        at = self._at.get(key)
        if at is None or self._is_another(begun[at], part.get("index"), call_id, name):
            at = self._at[key] = len(begun)
            begun.append({"id": call_id, "name": name})
            part["id"] = call_id or f"call_{uuid.uuid4().hex[:24]}"
        elif name == begun[at]["name"]:
            function["name"] = None
        else:
            begun[at]["name"] += name
        part["index"] = at

    @staticmethod
    def _is_another(call: dict[str, str], index: int | None, call_id: str, name: str) -> bool:
        if call_id and call["id"]:
            return call_id != call["id"]
        return index is None and bool(name)
