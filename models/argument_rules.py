"""The grammar of arguments that are no JSON: between tags (Qwen3-Coder), or with bare keys and marked texts (Gemma).

What such a notation has no words for is left to the check after generation, which knows the whole schema. Writes
llguidance's Lark; knows notations, not families.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .call_writing import bare_value, quoted_value, tagged
from .dialect import CallShape
from .errors import RequestError
from .schemas.schema_enforced import enforced
from .schemas.value_types import TYPES, target, value_types

_MOST_REFERENCES = 20
_NO_KEY = {"tags": re.compile(r"[>\n]"), "quoted": re.compile(r"[:,{}\n]|\A\s|\s\Z")}
_FREE_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,40}/"
_NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class ArgumentRules:
    """Writes the rules of one tool's arguments.

    Args:
        shape: with the notation.
        root: the schema of the arguments, an object.
        where: whose it is, for messages.
        add_rule: adds a rule of this body under this name, and returns the name.
        mark: returns the rule of a mark.
        json_values: the rule of the JSON values of a schema.
        prefix: of the rules' names.
    """

    def __init__(
        self,
        shape: CallShape,
        root: Mapping[str, Any],
        where: str,
        add_rule: Callable[[str, str], str],
        mark: Callable[[str], str],
        json_values: Callable[[Mapping[str, Any]], str],
        prefix: str,
    ) -> None:
        self._shape, self._root, self._where = shape, root, where
        self._add_rule, self._mark, self._json_values, self._prefix = add_rule, mark, json_values, prefix
        self._n_rules = 0
        self._rule_of: dict[str, str] = {}  # of a reference's target, and of the notation's own values

    def arguments(self) -> str:
        """The rule of all arguments."""
        schema = self._merged(self._root)
        if self._shape.arguments == "quoted":
            return self._object(schema)
        properties, required, extra = self._members(schema)
        parts = []
        for key, value in properties.items():
            head, tail = tagged(key, "\0").split("\0")
            rule = f"{_text(head)} {self._bare(value, tail)}"
            parts.append(rule if key in required else f"({rule})?")
        if extra is not None and not properties:
            head, tail = tagged("\0", "\1").split("\0")
            opening, closing = tail.split("\1")
            parts.append(f"({_text(head)} {_FREE_KEY} {_text(opening)} {self._bare(extra, closing)})*")
        return " ".join(parts) or '""'

    def _rule(self, body: str, terminal: bool = False) -> str:
        self._n_rules += 1
        name = f"{self._prefix}_{self._n_rules}"
        return self._add_rule(name.upper() if terminal else name, body)

    # -- schemas ----------------------------------------------------------------------------------------------------

    def _merged(self, schema: Any) -> dict[str, Any]:
        """A schema with what it refers to and all it is composed of by allOf in one object."""
        merged: dict[str, Any] = {}
        pending, n = [schema], 0
        while pending and n < _MOST_REFERENCES:
            part, n = pending.pop(), n + 1
            if not isinstance(part, Mapping):
                continue
            pending += list(part.get("allOf") or ())
            if "$ref" in part:
                pending.append(target(self._root, part["$ref"]))
            for key, value in part.items():
                if key == "properties" and isinstance(merged.get(key), dict):
                    merged[key] = {**value, **merged[key]}
                elif key == "required" and isinstance(merged.get(key), list):
                    merged[key] = [*merged[key], *value]
                elif key not in ("allOf", "$ref"):
                    merged.setdefault(key, value)
        return merged

    def _members(self, schema: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], Any]:
        """An object's properties, the names that have to be there, and the schema of further ones (None: there are
        none)."""
        properties = dict(schema.get("properties") or {})
        required = {str(name) for name in schema.get("required") or ()}
        extra = schema.get("additionalProperties", True)
        for name in sorted(required - properties.keys()):
            properties[name] = extra
        no_key = _NO_KEY[self._shape.arguments]
        for name in properties:
            if not name or no_key.search(name):
                raise RequestError(
                    f"{self._where}: this model's way of writing calls has no words for a parameter called {name!r}; "
                    "use letters, digits and _"
                )
        return properties, required, None if extra is False else extra

    def _json(self, schema: Any, types: frozenset[str]) -> str:
        """The rule of the JSON values of these types, with references that lead out of the part."""
        whole: dict[str, Any] = {"type": sorted(types)}
        if isinstance(schema, Mapping):
            whole = {**_moved(schema), **({} if "type" in schema else whole)}
            if types < value_types(schema, self._root):  # without its texts
                whole = {"allOf": [_moved(schema), {"type": sorted(types)}]}
            if '"$ref"' in json.dumps(schema):
                whole["$defs"] = {"root": _moved(self._root)}
        return self._json_values(whole)

    # -- values between tags ----------------------------------------------------------------------------------------

    def _bare(self, schema: Any, tail: str) -> str:
        """The rule of a value and of the tag behind it."""
        types = value_types(schema, self._root)
        if values := self._listed(schema):
            texts = [bare_value(value) for value in values]
            return "(" + " | ".join(_text(text + tail) for text in texts if "</parameter>" not in text) + ")"
        merged = self._merged(schema)
        for keyword in ("anyOf", "oneOf"):
            if "string" in types and (branches := merged.pop(keyword, None)):
                return self._rule(" | ".join(self._bare({**merged, "allOf": [b]}, tail) for b in branches))
        rules = [f"{self._json(schema, types - {'string'})} {_text(tail)}"] if types - {"string"} else []
        if "string" in types:
            text = self._free_text(schema if types == {"string"} else True, "</parameter>")
            whole = self._rule(f"{text} {_text(tail)}", terminal=True)
            self._n_rules += 1
            # A text has no mark in front of its end: it ends where the tag first stands.
            rules.append(self._add_rule(f"{self._prefix}_{self._n_rules}[lazy]", whole).removesuffix("[lazy]"))
        return self._rule(" | ".join(rules))

    def _listed(self, schema: Any) -> list[Any]:
        """The values that a schema lists, if that is what it does."""
        merged = self._merged(schema) if isinstance(schema, Mapping) else {}
        if "const" in merged:
            return [merged["const"]]
        return list(merged.get("enum") or ())

    def _free_text(self, schema: Any, never: str) -> str:
        """The terminal of a text without marks around it; it never holds `never`."""
        wanted = self._merged(schema) if isinstance(schema, Mapping) else {}
        part = enforced({"type": "string", **{k: v for k, v in wanted.items() if k in _TEXT_KEYWORDS}}).schema
        parts = []
        if isinstance(part.get("pattern"), str) and (pattern := _whole(part["pattern"])):
            parts.append(_regex(pattern))
        if (form := _FORMATS.get(part.get("format", ""))) and "pattern" not in part:
            parts.append(_regex(form))
        if "minLength" in part or "maxLength" in part:
            parts.append(f"/(?s:.){{{part.get('minLength', 0)},{part.get('maxLength', '')}}}/")
        parts = parts or [r"/(.|\n)*/"]
        holds = self._rule(_regex(rf"(.|\n)*{re.escape(never)}(.|\n)*"), terminal=True)
        return self._rule(" & ".join([*parts, f"~{holds}"]), terminal=True)

    # -- values with bare keys --------------------------------------------------------------------------------------

    def _quoted(self, schema: Any) -> str:
        # Schemas may lead back to themselves: a rule has its name before it has its body.
        key = json.dumps(schema, sort_keys=True)
        if key not in self._rule_of:
            self._n_rules += 1
            self._rule_of[key] = name = f"{self._prefix}_{self._n_rules}"
            self._add_rule(name, self._quoted_body(schema))
        return self._rule_of[key]

    def _quoted_body(self, schema: Any) -> str:
        if values := self._listed(schema):
            return " | ".join(self._spelled(value) for value in values)
        merged = self._merged(schema)
        for keyword in ("anyOf", "oneOf"):
            if branches := merged.pop(keyword, None):
                return " | ".join(self._quoted({**merged, "allOf": [branch]}) for branch in branches)
        types = value_types(schema, self._root)
        if types == TYPES and not {"properties", "items", "prefixItems"} & merged.keys():
            merged = {}
        return " | ".join(self._of_type(kind, merged) for kind in sorted(types))

    def _of_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return f"{self._mark(self._shape.quote)} {self._text_rule(schema)} {self._mark(self._shape.quote)}"
        if kind == "number":
            named = schema.get("type")
            named = named if isinstance(named, list) else [named]
            is_whole = "integer" in named and "number" not in named
            limits = {k: schema[k] for k in _NUMBER_KEYWORDS if k in schema}
            return self._json_values({"type": "integer" if is_whole else "number", **limits})
        return '"null"' if kind == "null" else '("true" | "false")'

    def _text_rule(self, schema: Mapping[str, Any]) -> str:
        key = "text " + json.dumps({k: v for k, v in schema.items() if k in _TEXT_KEYWORDS}, sort_keys=True)
        if key not in self._rule_of:
            self._rule_of[key] = self._free_text(schema, self._shape.quote)
        return self._rule_of[key]

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties, required, extra = self._members(schema)
        parts = [
            (f"{_text(key + ':')} {self._quoted(properties[key])}", key in required)
            for key in sorted(properties, key=str.lower)
        ]
        if not parts and extra is not None:
            member = f'{_FREE_KEY} ":" {self._quoted(extra)}'
            return self._rule(f'"{{" ({member} ("," {member})*)? "}}"')
        return self._rule('"{" ' + _in_order(parts) + ' "}"')

    def _array(self, schema: Mapping[str, Any]) -> str:
        first = list(schema.get("prefixItems") or ())
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        parts = [(self._quoted(item), i < least) for i, item in enumerate(first[:most])]
        items = schema.get("items", True)
        body = _in_order(parts) if parts else ""
        if items is not False and (most is None or most > len(parts)):
            item = self._quoted(items)
            n_least = max(least - len(parts), 0)
            n_most = "" if most is None else str(most - len(parts))
            if parts:
                if n_least:
                    body = f'{body} ("," {item}){{{n_least},{n_most}}}'  # all in front are required
            else:
                rest = "" if most is None else str(most - 1)
                some = f'{item} ("," {item}){{{max(n_least - 1, 0)},{rest}}}'
                body = some if n_least else f"({some})?"
        return self._rule(f'"[" {body} "]"')

    def _spelled(self, value: Any) -> str:
        text, quote = quoted_value(value, self._shape.quote), self._shape.quote
        pieces = text.split(quote)
        return f" {self._mark(quote)} ".join(_text(piece) if piece else '""' for piece in pieces)


# A character, an escape or a class of a pattern.
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
# Formats as patterns, narrower than their standards: those of JSON texts are the grammar engine's own, for these it has
# no words. Dates and times have patterns already.
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IN_URI = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_FORMATS = {
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": f"({_BYTE}\\.){{3}}{_BYTE}",
    "hostname": f"{_LABEL}(\\.{_LABEL}){{1,4}}",
    "email": f"[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@{_LABEL}(\\.{_LABEL}){{1,4}}",
    "uri": f"[a-z][a-z0-9+.-]*://{_LABEL}(\\.{_LABEL}){{0,4}}(:[1-9][0-9]{{0,3}})?(/{_IN_URI}*)*"
    f"(\\?{_IN_URI}*)?(#{_IN_URI}*)?",
}
#: How texts of these formats may end, wherever in them the tokens run out.
ENDS_OF_FORMATS = ("@a.a", ".a", "://a")
_TEXT_KEYWORDS = ("pattern", "format", "minLength", "maxLength")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _regex(pattern: str) -> str:
    """A pattern as Lark writes it down."""
    return "/" + re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], pattern) + "/"


def _moved(schema: Any) -> Any:
    """A schema whose references lead from the root of another, where it stands under $defs/root."""
    if isinstance(schema, list):
        return [_moved(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        k: "#/$defs/root" + v[1:] if k == "$ref" and isinstance(v, str) and v.startswith("#") else _moved(v)
        for k, v in schema.items()
    }


def _in_order(parts: list[tuple[str, bool]]) -> str:
    """Members with a comma between them, in this order; those that are not needed may be left out."""
    choices = []
    for i, (rule, needed) in enumerate(parts):
        rest = [f'("," {r})' + ("" if n else "?") for r, n in parts[i + 1 :]]
        choices.append(" ".join([rule, *rest]))
        if needed:
            return "(" + " | ".join(choices) + ")"
    return "(" + " | ".join([*choices, '""']) + ")"


def _whole(pattern: str) -> str:
    """A pattern that may match anywhere as one that matches the whole text; empty where that cannot be said."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inside = pattern[begins : len(pattern) - ends]
    outer, depth = [], 0  # what stands in no group
    for piece in _PIECE.findall(inside):
        depth += (piece == "(") - (piece == ")")
        if piece in ("^", "$") or (piece == "|" and depth == 0):
            outer.append(piece)
    if "^" in outer or "$" in outer or ("|" in outer and (begins or ends)):
        return ""
    before, behind = "" if begins else r"(.|\n)*", "" if ends else r"(.|\n)*"
    return before + f"({inside})" + behind
