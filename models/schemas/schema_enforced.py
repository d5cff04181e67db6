"""The part of a JSON Schema that the grammar engine can enforce, and what had to be left out of it.

The facts on llguidance 1.9 are measured, see docs/schemas.md. First what is known to be refused, ignored or wrong there
is left out, keyword by keyword; if the rest does not compile, what is at fault is looked for, schema by schema, so that
one odd keyword never loosens its neighbours. What is left takes every value that the whole schema takes.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from laploop.engine import GrammarError
from laploop.engine.grammar import Grammar

from .schema_keywords import LISTS, MAPS, RESTRICTING, SINGLE, in_place, walk
from .schema_patterns import for_grammar
from .schema_refs import endless, references, targets_of

# llguidance knows no other formats.
ENFORCED_FORMATS = frozenset({
    "date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
})  # fmt: skip
# llguidance's own rules for these take the year 0 and a 60th second anywhere, which validators refuse. Leap years:
# divisible by 4, but of whole centuries only those divisible by 400.
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"
_PATTERN_OF_FORMAT = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[Tt]{_TIME}$"}
# llguidance's automaton has a state for each remainder of a division: a million take minutes and gigabytes. And a way
# out of a number has to be found by trying its digits.
_MOST_REMAINDERS = 1_000
# llguidance reads at most 128 levels of JSON; a schema in a schema is one or two.
_MOST_LEVELS = 100
# Schemas that are held against llguidance one by one before all are left out.
_MOST_TRIALS = 500
_REFUSED = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties",
    "$dynamicRef", "$recursiveRef",
})  # fmt: skip
# Names for places, switches of the engine's own, and what is written out otherwise.
_DROPPED = frozenset(["x-guidance", "nullable", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"])
# Keywords that mean nothing without another.
_BESIDE = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
# Keywords that may be at fault in a schema that llguidance refuses, in the order in which they are given up.
_SUSPECTS = (
    "oneOf", "patternProperties", "minProperties", "maxProperties", "maxLength", "minLength", "multipleOf", "pattern",
    "allOf", "anyOf", "$ref",
)  # fmt: skip


class LeftOut(NamedTuple):
    """A keyword that is not enforced: the JSON pointer of its schema, its name ("*": all of that schema), and why."""

    pointer: str
    keyword: str
    why: str


class Enforced(NamedTuple):
    """A schema that llguidance takes, and what of the given one it does not hold."""

    schema: dict[str, Any]
    left_out: tuple[LeftOut, ...]

    def holds(self, pointer: str, keyword: str) -> bool:
        """Whether a keyword of the given schema is enforced."""
        return not any(
            (keyword == name and pointer == place)
            or (name == "*" and f"{pointer}/".startswith(f"{place}/"))
            or (name != "oneOf" and f"{pointer}/".startswith(f"{place}/{name}/"))  # of oneOf's branches one is met
            for place, name, _ in self.left_out
        )


def enforced(schema: Mapping[str, Any]) -> Enforced:
    """What of `schema` can be enforced while sampling.

    Args:
        schema: a valid JSON Schema (2020-12).
    """
    return _enforced(json.dumps(schema))


@lru_cache(maxsize=512)
def _enforced(text: str) -> Enforced:
    return _Search(json.loads(text)).run()


def refusal(schema: Mapping[str, Any] | bool) -> str:
    """llguidance's reason to refuse a schema; empty if it enforces all of it."""
    try:
        Grammar.json_schema(schema)
    except GrammarError as error:
        return str(error).partition("JSON schema: ")[2] or str(error)
    return ""


def normalise(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema in the words that llguidance takes: OpenAI's `nullable` written out, patterns in its dialect,
    dates and times as patterns, no-ops dropped, and no `x-guidance` of the caller's, which could switch enforcement
    off. What is known to be refused or ignored is dropped."""
    return _Rewriter(schema).schema


def validated_format(name: Any) -> bool:
    """Whether the check after generation knows a format."""
    import jsonschema

    return isinstance(name, str) and name in jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers


class _Rewriter:
    """A copy of a schema without what is known not to work."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        schema = copy.deepcopy(dict(schema))  # so that no part stands in two places: parts are told by their ids
        self.left_out: list[LeftOut] = []
        found = references(schema)
        self._endless = endless(schema)
        self._outside = {id(r.node) for r in found if r.keyword == "$ref" and r.target is None}
        self._too_many = _large_multiples(schema, targets_of(found))
        self.schema = self._node(schema, "", 0)
        for reference in found:
            self._rewrite_elsewhere(schema, reference.node.get(reference.keyword))

    def _rewrite_elsewhere(self, schema: Mapping[str, Any], reference: Any) -> None:
        """Rewrite a schema that stands where no keyword is known to hold one, such as #/components/schemas/X."""
        steps = str(reference).partition("#/")[2].split("/") if str(reference).startswith("#/") else []
        if not steps or steps[0] in RESTRICTING | MAPS:
            return
        here: Any = self.schema
        given: Any = schema
        for n, step in enumerate(steps):
            key: Any = _unescaped(step)
            key = int(key) if isinstance(given, list) and key.isdecimal() else key
            given = given[key]
            if n == len(steps) - 1:
                here[key] = self._any(given, "/" + "/".join(steps), 0)
            else:
                here = here[key]

    def _any(self, value: Any, pointer: str, level: int) -> Any:
        if not isinstance(value, Mapping):
            return value
        if id(value) in self._endless and pointer:
            return False
        return self._node(value, pointer, level)

    def _node(self, node: Mapping[str, Any], pointer: str, level: int) -> dict[str, Any]:
        if level > _MOST_LEVELS:
            self._leave_out(pointer, "*", "the schema is nested too deeply for the grammar")
            return {}
        result: dict[str, Any] = {}
        for keyword, value in node.items():
            if keyword in _DROPPED or is_idle(node, keyword):
                continue
            if why := self._fault(node, keyword):
                self._leave_out(pointer, keyword, why)
                continue
            if keyword in MAPS and isinstance(value, Mapping):
                value = {k: self._any(v, f"{pointer}/{keyword}/{_escaped(k)}", level + 2) for k, v in value.items()}
            elif keyword in LISTS and isinstance(value, list):
                value = [self._any(v, f"{pointer}/{keyword}/{i}", level + 2) for i, v in enumerate(value)]
            elif keyword in SINGLE:
                value = self._any(value, f"{pointer}/{keyword}", level + 1)
            result[keyword] = value
        self._write_patterns(result, pointer)
        _write_formats(result)
        _write_fractions(result)
        self._mend_bounds(result, pointer)
        if node.get("nullable") is True:
            _allow_null(result)
        return result

    def _fault(self, node: Mapping[str, Any], keyword: str) -> str:
        """Why a keyword cannot be enforced; empty if it can, as far as is known."""
        if keyword in _REFUSED:
            return "the grammar has no words for it"
        if keyword == "$ref" and id(node) in self._outside:
            return f"{node['$ref']!r} leads to another document"
        if keyword == "multipleOf":
            if _n_remainders(node["multipleOf"]) > _MOST_REMAINDERS:
                return "the divisor is too large"
            if id(node) in self._too_many:
                return "several divisors together are too large"
            return refusal({"type": "number", "multipleOf": node["multipleOf"]})  # 0.07 has too many digits for it
        return ""

    def _leave_out(self, pointer: str, keyword: str, why: str) -> None:
        self.left_out.append(LeftOut(pointer, keyword, why))

    def _write_patterns(self, result: dict[str, Any], pointer: str) -> None:
        if isinstance(result.get("pattern"), str):
            pattern = for_grammar(result["pattern"])
            if pattern is None:
                self._leave_out(pointer, "pattern", "the grammar has no words for it")
                del result["pattern"]
            else:
                result["pattern"] = pattern
        if isinstance(result.get("patternProperties"), Mapping):
            patterns = {for_grammar(k): v for k, v in result["patternProperties"].items()}
            if None in patterns or len(patterns) < len(result["patternProperties"]):
                self._leave_out(pointer, "patternProperties", "the grammar has no words for it")
                self.left_out += loosen(result, pointer, "patternProperties")
            else:
                result["patternProperties"] = patterns

    def _mend_bounds(self, result: dict[str, Any], pointer: str) -> None:
        """Numbers between an excluded whole one and a limit in the same unit: llguidance takes the excluded one."""
        if result.get("type") == "integer":
            return
        for excluded, other, sign in (("exclusiveMinimum", "Maximum", 1), ("exclusiveMaximum", "Minimum", -1)):
            bound = result.get(excluded)
            limits = [result[k] for k in (other.lower(), f"exclusive{other}") if k in result]
            if bound is None or bound != int(bound) or sign * bound < 0:
                continue
            if any(sign * (limit - bound) < 1 for limit in limits):
                self._leave_out(pointer, excluded, "the grammar takes the limit itself")
                result[excluded.removeprefix("exclusive").lower()] = result.pop(excluded)


def is_idle(node: Mapping[str, Any], keyword: str) -> bool:
    """Whether a keyword restricts nothing there where it stands."""
    return _BESIDE.get(keyword, keyword) not in node or (keyword == "uniqueItems" and node[keyword] is False)


def _write_fractions(result: dict[str, Any]) -> None:
    """Multiples of a fraction with any number of decimals: llguidance wants those of the divisor, 1.50 for 1.5."""
    divisor = Decimal(str(result.get("multipleOf", 1))).normalize()
    n_decimals = -int(divisor.as_tuple().exponent)
    if n_decimals < 2:
        return
    whole = int(divisor.scaleb(n_decimals))
    divisors = [float(Decimal(math.lcm(whole, 10**n)).scaleb(-n_decimals)) for n in range(n_decimals)]
    divisors = [d for d in divisors if not refusal({"type": "number", "multipleOf": d})]
    result["allOf"] = [*result.get("allOf", ()), {"anyOf": [{"multipleOf": d} for d in divisors]}]
    del result["multipleOf"]


def _write_formats(result: dict[str, Any]) -> None:
    """Dates and times as patterns; no format that the grammar would refuse or ignore."""
    name = result.pop("format", None)
    kinds = result.get("type", "string")
    if not isinstance(name, str) or name not in ENFORCED_FORMATS or "string" not in kinds:
        return
    if name not in _PATTERN_OF_FORMAT:
        result["format"] = name
    elif "pattern" not in result:
        result["pattern"] = _PATTERN_OF_FORMAT[name]
    else:
        result["allOf"] = [*result.get("allOf", ()), {"pattern": _PATTERN_OF_FORMAT[name]}]


def _allow_null(result: dict[str, Any]) -> None:
    if "type" in result:
        kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*kinds, "null"] if "null" not in kinds else kinds
        if "enum" in result and None not in result["enum"]:
            result["enum"] = [*result["enum"], None]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(step: str) -> str:
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")


def _n_remainders(divisor: Any) -> int:
    """The digits of a divisor as a whole number: 700 and 0.07 count as 7."""
    digits = Decimal(str(divisor)).normalize().as_tuple().digits
    return int("".join(map(str, digits)))


def _large_multiples(schema: Mapping[str, Any], targets: Mapping[int, Any]) -> set[int]:
    """ids of schemas whose divisor meets others in the same value, so that the automaton would be too large."""
    found: set[int] = set()
    for _, node in walk(schema):
        group: dict[int, Mapping[str, Any]] = {}
        waiting: list[Any] = [node]
        while waiting:
            here = waiting.pop()
            if isinstance(here, Mapping) and id(here) not in group:
                group[id(here)] = here
                waiting += [*in_place(here), targets.get(id(here))]
        divisors = {key: _n_remainders(n["multipleOf"]) for key, n in group.items() if "multipleOf" in n}
        if len(divisors) > 1 and math.lcm(*(d for d in divisors.values() if d <= _MOST_REMAINDERS)) > _MOST_REMAINDERS:
            found |= divisors.keys()
    return found


def loosen(node: dict[str, Any], pointer: str, keyword: str) -> Iterator[LeftOut]:
    """Take a keyword out of a schema, which then takes at least what it took before; what else has to go for it."""
    value = node.pop(keyword)
    if keyword == "oneOf":  # at least one instead of exactly one
        node["allOf"] = [*node.get("allOf", ()), {"anyOf": value}]
    elif keyword == "patternProperties" and node.get("additionalProperties", True) is not True:
        node["additionalProperties"] = True
        yield LeftOut(pointer, "additionalProperties", "it stands beside patterns that the grammar cannot say")
    elif keyword == "$ref":
        return


class _Search:
    """Looks for the part of a schema that compiles."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._given = schema
        rewriter = _Rewriter(schema)
        self._schema, self._left_out = rewriter.schema, rewriter.left_out
        self._n_trials = 0

    def run(self) -> Enforced:
        why = refusal(self._schema)
        if why:
            self._mend(lambda reason: bool(reason) and not reason.startswith("Unsatisfiable"))
            why = refusal(self._schema)
        if why:  # a part that no value meets; validation refuses what the grammar would take for it
            self._mend(bool)
            why = refusal(self._schema)
        if why:
            kind = self._given.get("type")
            self._schema = {"type": kind} if kind else {}
            self._left_out = [LeftOut("", "*", why)]
        return Enforced(self._schema, tuple(dict.fromkeys(self._left_out)))

    def _mend(self, is_fault: Any) -> None:
        """Loosen the schemas that do not compile by themselves, innermost first, each as little as will do."""
        innermost_first = reversed(list(walk(self._schema)))
        for pointer, node in sorted(innermost_first, key=lambda place: "$ref" in place[1]):  # after what they lead to
            if self._n_trials > _MOST_TRIALS:
                return
            why = self._alone(pointer)
            if is_fault(why):
                self._mend_one(pointer, node, why, is_fault)

    def _mend_one(self, pointer: str, node: Any, why: str, is_fault: Any) -> None:
        before = dict(node)
        suspects = [k for k in _SUSPECTS if k in node]
        for tried in ([k] for k in suspects):  # one alone, else one after another
            if self._try(pointer, node, tried, why, is_fault):
                return
            node.clear()
            node.update(before)
        if self._try(pointer, node, suspects, why, is_fault):
            return
        node.clear()
        node |= {"type": before["type"]} if "type" in before else {}
        self._left_out.append(LeftOut(pointer, "*", why))

    def _try(self, pointer: str, node: Any, keywords: list[str], why: str, is_fault: Any) -> bool:
        """Loosen these keywords until the schema compiles; whether it does then."""
        left_out: list[LeftOut] = []
        for keyword in keywords:
            left_out += [LeftOut(pointer, keyword, why), *loosen(node, pointer, keyword)]
            if not is_fault(self._alone(pointer)):
                self._left_out += left_out
                return True
        return False

    def _alone(self, pointer: str) -> str:
        """Why the schema at `pointer` does not compile by itself, its references led into the whole."""
        self._n_trials += 1
        if not pointer:
            return refusal(self._schema)
        alone: dict[str, Any] = {"x-whole": _moved(self._schema), "$ref": f"#/x-whole{_quoted(pointer)}"}
        for keyword in ("$defs", "definitions"):  # for their anchors
            if keyword in self._schema:
                alone[keyword] = self._schema[keyword]
        return refusal(alone)


def _quoted(pointer: str) -> str:
    from urllib.parse import quote

    return quote(pointer, safe="/~")


def _moved(node: Any) -> Any:
    """A copy of a schema whose references into its root lead to #/x-whole."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    moved = {key: _moved(value) for key, value in node.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = f"#/x-whole{reference[1:]}"
    return moved
