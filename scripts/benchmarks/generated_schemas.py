"""Required calls from a model that knows nothing, over schemas that nobody chose: 0 faults is the bar.

    python scripts/benchmarks/generated_schemas.py -m MODEL.gguf [--calls 10000] [--schemas 200] [--seed 0]
                                                   [--temperature 1.5] [--state FILE.jsonl]

Draws the schemas (objects up to six levels deep; enums, unions, references and recursion, ranges, multiples, patterns,
formats, arrays, tuples, maps, optional keys, names and values beyond ASCII) and the requests (`required` or named, one
call or several, thinking with a budget or not, token budgets from exactly the smallest call upwards). Every call is
judged by `jsonschema` with its format checker. With --state each outcome is written down at once, and a second run
goes on where the first one stopped. Prints a row a feature and one JSON line; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from laploop.engine import EngineConfig
from laploop.models import ChatModel, schema_report
from required_calls import Outcome, plan, run

Schema = dict[str, Any]
MOST_STEPS = 9  # down in drawing a schema; what comes out is up to six objects, arrays and maps deep
MOST_CHARS = 4_000  # of one schema: the tiny model's context is short
NAMES = [
    "id", "name", "city", "query", "limit", "tags", "unit", "from", "to", "path", "kind", "value", "items", "x-y z",
    "a.b", "$ref", "type", "城市", "größe", "имя", "naïve", "emoji 🎉", 'say "hi"', "back\\slash", "tab\tline\n",
    "日本語の長い名前", "a", "B", "_", "enum", "ключ/значение", "~tilde", "%20", "</tool_call>", "{}", "",
]  # fmt: skip
TEXTS = [
    "celsius", "fahrenheit", "asc", "desc", "", " ", "é", "日本", "🎉🎊", 'say "hi"', "a\\b", "line\nfeed", "\t",
    "null", "1", "true", "</tool_call>", "<think>", "{\"name\": 1}", "Ω≈ç√", "ﬀ", "ÅÄÖ åäö", "-", "a/b", "العربية",
]  # fmt: skip
PATTERNS = [
    r"^\d{4}-\d{2}-\d{2}$", r"^[A-Z]{3}$", r"^[a-z][a-z0-9_]*$", r"^#[0-9a-fA-F]{6}$", r"^https?://[a-z.]+/$", r"x",
    r"^(foo|bar|baz)$", r"^\S+$", r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$", r"(?i)^yes|no$", r"^\p{L}+$", r"^\p{Lu}\p{Ll}*$",
    r"^\w+( \w+)*$", r"^\W+$", r"^[^\w]$", r"^\D$", r"^[一-龥]{1,4}$", r"^(\+\d{1,3} )?\d{3,}$", r"^v\d+\.\d+\.\d+$",
    r"\.(png|jpe?g)$", r"^[\[\]{}]*$", r"^[^\"\\]*$", r"^\/[\w\/]*$", r"^$|^x", r"^[a-z&&b]{2}$", r"^\u00e9\x41$",
]  # fmt: skip
FORMATS = ["date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
KEY_PATTERNS = ["^x-", "^[a-z]{2}$", r"^\d+$", "_id$"]


class Generator:
    """One schema of a tool's arguments.

    Args:
        seed: of the schema; the same seed gives the same schema.
    """

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)  # noqa: S311  # to be repeatable
        self._definitions: dict[str, Schema] = {}
        self._open: list[str] = []  # definitions that are being drawn
        #: What the schema holds, by name.
        self.features: Counter[str] = Counter()
        self._scalars: list[Callable[[], Schema]] = [
            self._string, self._string, self._enum, self._enum, self._const, self._integer, self._integer, self._number,
            self._multiple, self._boolean, self._pattern, self._pattern, self._format, self._format, self._types,
        ]  # fmt: skip
        self._nested: list[Callable[[int], Schema]] = [
            self._array, self._tuple, self._object, self._object, self._object, self._map, self._union, self._one_of,
            self._all_of, self._reference, self._recursive, self._nullable,
        ]  # fmt: skip

    def schema(self) -> Schema:
        """The schema of an object."""
        result = self._object(self._rng.randint(1, MOST_STEPS))
        if self._definitions:
            result["$defs"] = self._definitions
        return result

    def _any(self, depth: int) -> Schema:
        """A schema that goes at most `depth` levels deeper."""
        if depth <= 0 or self._rng.random() < 0.6:
            return self._rng.choice(self._scalars)()
        return self._rng.choice(self._nested)(depth)

    def _count(self, name: str) -> None:
        self.features[name] += 1

    # -- values without parts -------------------------------------------------------------------------------------

    def _string(self) -> Schema:
        self._count("string")
        low, more = self._rng.choice([0, 0, 1, 5, 20]), self._rng.choice([None, 0, 3, 30])
        limits = {"minLength": low} if low else {}
        return {"type": "string", **limits, **({} if more is None else {"maxLength": low + more})}

    def _enum(self) -> Schema:
        self._count("enum")
        pool = [*TEXTS, 0, 1, -7, 2.5, 1e-3, True, False, None, [], {}, [1, "é"], {"k": "日本"}]
        values = self._rng.sample(pool, self._rng.randint(1, 6))
        return {"enum": [v for i, v in enumerate(values) if not any(v == w for w in values[:i])]}

    def _const(self) -> Schema:
        self._count("const")
        return {"const": self._rng.choice([*TEXTS, 3, None, False, ["x", 1], {"a": {"ß": []}}])}

    def _integer(self) -> Schema:
        self._count("range")
        low, span = self._rng.choice([-1000, -1, 0, 1, 5, 1900]), self._rng.choice([0, 1, 9, 100, 10**6])
        bounds = [{"minimum": low}, {"maximum": low + span}, {"exclusiveMinimum": low - 1, "maximum": low + span}, {}]
        return {"type": "integer", **self._rng.choice(bounds)}

    def _number(self) -> Schema:
        self._count("range")
        low, span = self._rng.choice([-2.5, 0, 0.1, 1e-3, 100]), self._rng.choice([0.5, 1, 12.25])
        bounds = [{"minimum": low}, {"exclusiveMinimum": low, "maximum": low + span}, {"maximum": low}, {}]
        return {"type": "number", **self._rng.choice(bounds)}

    def _multiple(self) -> Schema:
        self._count("multipleOf")
        # Fractions are those that binary numbers hold exactly: jsonschema divides floats.
        whole = {"type": "integer", "multipleOf": self._rng.choice([2, 5, 7, 60, 97, 250])}
        part = {"type": "number", "multipleOf": self._rng.choice([0.5, 0.25, 3])}
        return self._rng.choice([whole, {**whole, "minimum": 1, "maximum": 10_000}, part])

    def _boolean(self) -> Schema:
        return {"type": "boolean"}

    def _pattern(self) -> Schema:
        self._count("pattern")
        return {"type": "string", "pattern": self._rng.choice(PATTERNS)}

    def _format(self) -> Schema:
        self._count("format")
        return {"type": "string", "format": self._rng.choice(FORMATS)}

    def _types(self) -> Schema:
        self._count("type list")
        return {"type": self._rng.sample(["string", "integer", "number", "boolean", "null"], self._rng.randint(1, 3))}

    # -- values with parts ----------------------------------------------------------------------------------------

    def _array(self, depth: int) -> Schema:
        self._count("array")
        low, more = self._rng.choice([0, 0, 1, 2]), self._rng.choice([None, 0, 3])
        limits = {"minItems": low} if low else {}
        limits |= {} if more is None else {"maxItems": low + more}
        return {"type": "array", "items": self._any(depth - 1), **limits}

    def _tuple(self, depth: int) -> Schema:
        self._count("tuple")
        parts = [self._any(depth - 2) for _ in range(self._rng.randint(1, 3))]
        rest: Any = self._rng.choice([False, False, {"type": "integer"}])
        return {"type": "array", "prefixItems": parts, "items": rest, "minItems": self._rng.randint(0, len(parts))}

    def _object(self, depth: int) -> Schema:
        self._count("object")
        names = self._rng.sample(NAMES, self._rng.randint(1, 4 if depth > 2 else 3))
        properties = {name: self._any(depth - 1) for name in names[1:]}
        first = self._rng.choice(self._nested)(depth - 1) if depth > 1 else self._any(0)
        properties = {names[0]: first, **properties}
        required = [name for name in names if self._rng.random() < 0.6]
        if len(required) < len(names):
            self._count("optional keys")
        closed = self._rng.choice([{"additionalProperties": False}, {"additionalProperties": False}, {}])
        return {"type": "object", "properties": properties, "required": required, **closed}

    def _map(self, depth: int) -> Schema:
        self._count("map")
        value = self._any(depth - 1)
        if self._rng.random() < 0.4:
            return {
                "type": "object",
                "patternProperties": {self._rng.choice(KEY_PATTERNS): value},
                "additionalProperties": False,
            }
        limits = self._rng.choice([{}, {}, {"minProperties": 1}, {"minProperties": 1, "maxProperties": 2}])
        return {"type": "object", "additionalProperties": value, **limits}

    def _union(self, depth: int) -> Schema:
        self._count("anyOf")
        return {"anyOf": [self._any(depth - 1) for _ in range(self._rng.randint(2, 3))]}

    def _one_of(self, depth: int) -> Schema:
        self._count("oneOf")
        kinds = self._rng.sample(["circle", "box", "線", "p q"], self._rng.randint(2, 3))
        branches: list[Schema] = []
        for kind in kinds:
            parts = {"kind": {"const": kind}, self._rng.choice(["r", "größe"]): self._any(depth - 2)}
            required = {"required": list(parts), "additionalProperties": False}
            branches.append({"type": "object", "properties": parts, **required})
        return {"oneOf": branches}

    def _all_of(self, depth: int) -> Schema:
        self._count("allOf")
        first, second = self._any(depth - 2), self._any(depth - 2)
        parts = [
            {"type": "object", "properties": {"one": first}, "required": ["one"]},
            {"properties": {"zwei": second}, "required": self._rng.choice([[], ["zwei"]])},
        ]
        return {"allOf": parts, "type": "object"}

    def _reference(self, depth: int) -> Schema:
        self._count("$ref")
        known = [name for name in self._definitions if name not in self._open]
        if known and self._rng.random() < 0.5:
            return {"$ref": f"#/$defs/{self._rng.choice(known)}"}
        return self._define(lambda _: self._any(depth - 1))

    def _recursive(self, depth: int) -> Schema:
        self._count("recursion")

        def tree(me: Schema) -> Schema:
            value, many = self._any(depth - 2), {"type": "array", "items": me}
            inner: Any = self._rng.choice([many, {"anyOf": [me, {"type": "null"}]}, {"anyOf": [{"type": "null"}, me]}])
            parts = {"value": value, "children": inner}
            required = self._rng.choice([[], ["value"], ["value", "children"]])
            return {"type": "object", "properties": parts, "required": required, "additionalProperties": False}

        return self._define(tree)

    def _nullable(self, depth: int) -> Schema:
        self._count("nullable union")
        return {"anyOf": [self._any(depth - 1), {"type": "null"}]}

    def _define(self, make: Callable[[Schema], Schema]) -> Schema:
        name = f"d{len(self._definitions)}"
        self._definitions[name] = {}
        self._open.append(name)
        reference: Schema = {"$ref": f"#/$defs/{name}"}
        self._definitions[name] = make(reference)
        self._open.remove(name)
        return reference


def generated(n: int = 200, seed: int = 0) -> dict[str, Schema]:
    """`n` schemas by name; each promises nothing but what can be enforced while sampling."""
    found: dict[str, Schema] = {}
    i = 0
    while len(found) < n:
        schema = Generator(f"{seed}/{i}").schema()
        i += 1
        if len(json.dumps(schema)) <= MOST_CHARS and all(
            finding.status == "enforced" for finding in schema_report(schema)
        ):
            found[f"s{len(found):03}"] = schema
    return found


def outcomes(
    model: ChatModel, schemas: dict[str, Schema], n: int, temperature: float, seed: int, state: Path | None = None
) -> Iterator[Outcome]:
    """Outcomes of `n` requests, those of an earlier run with the same `state` first."""
    known = [Outcome(**json.loads(line)) for line in state.read_text("utf-8").splitlines()] if _is(state) else []
    yield from known
    for outcome in run(model, schemas, plan(schemas, n, seed, skip=len(known)), temperature):
        if state:
            with state.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        yield outcome


def _is(path: Path | None) -> bool:
    return path is not None and path.exists()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path)
    parser.add_argument("-t", "--threads", type=int)
    given = parser.parse_args()
    schemas = generated(given.schemas, given.seed)
    started, done = time.perf_counter(), list[Outcome]()
    with ChatModel.load(given.model, config=EngineConfig(n_ctx=8192, n_threads=given.threads)) as model:
        for outcome in outcomes(model, schemas, given.calls, given.temperature, given.seed, given.state):
            done.append(outcome)
            if outcome.fault:
                print(json.dumps(asdict(outcome), ensure_ascii=False), file=sys.stderr)
            if len(done) % 100 == 0:
                print(f"{len(done)} requests, {sum(bool(o.fault) for o in done)} faults", file=sys.stderr)
    print(f"{'feature':16}{'schemas':>8}{'requests':>10}{'calls':>8}{'cut':>6}{'faults':>8}")
    features = [Counter(_keywords(schema)) for schema in schemas.values()]
    by_schema = dict(zip(schemas, features, strict=True))
    for keyword in sorted(set().union(*features)):
        rows = [o for o in done if keyword in by_schema[o.schemas[0]]]
        cut = sum(o.finish_reason == "length" for o in rows)
        print(
            f"{keyword:16}{sum(keyword in f for f in features):8}{len(rows):10}{sum(o.n_calls for o in rows):8}{cut:6}"
            f"{sum(bool(o.fault) for o in rows):8}"
        )
    faults = Counter(o.fault.split(":")[0] for o in done if o.fault)
    result = {
        "benchmark": "generated_schemas", "model": given.model, "requests": len(done), "schemas": len(schemas),
        "calls": sum(o.n_calls for o in done), "faults": sum(faults.values()), "by_fault": dict(faults),
        "cut_on_purpose": sum(o.finish_reason == "length" for o in done), "temperature": given.temperature,
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip
    print(json.dumps(result))
    return int(bool(faults))


def _keywords(schema: Any) -> Iterator[str]:
    """Names of the keywords that are used, as the report finds them."""
    for finding in schema_report(schema):
        yield finding.keyword


if __name__ == "__main__":
    sys.exit(main())
