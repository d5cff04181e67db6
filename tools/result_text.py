"""Any value that a tool returned → the text that the model reads. It knows nothing of tools or messages.

A string stays as it is. Everything else becomes JSON with non-ASCII characters kept, because models read
their own language better than escapes. What JSON lacks has one fixed form each (see `to_json_value`), so that
no result is lost or turns into `<object at 0x…>`.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

_MAX_BASE64_BYTES = 3_000  # more than a small model can use anyway


def to_text(value: Any) -> str:
    """Return the text for a tool message: `value` itself if it is a string, else JSON.

    `None` gives `null`, `0` gives `0`, `[]` gives `[]`: a falsy result is still an answer. Lone surrogates,
    which no UTF-8 message can carry, become U+FFFD.

    Raises:
        ValueError: an integer of more digits than Python prints (4,300 by default).
    """
    text = value if type(value) is str else json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(text) else text


def to_json_value(value: Any) -> Any:
    """Return `value` made of dict, list, str, int, float, bool and None only.

    NaN and infinities → "NaN", "Infinity", "-Infinity"; sets → sorted lists; dates and times → ISO 8601;
    durations → "1:02:03"; bytes → their UTF-8 text, or {"base64": …, "size_bytes": …}; enums → their value;
    dataclasses, named tuples, pydantic models and plain objects → objects of their public fields; numpy
    arrays and scalars → lists and numbers; paths, UUIDs and decimals → strings; generators → lists; a value
    inside itself → "<cycle>".
    """
    return _convert(value, frozenset())


def _convert(value: Any, parents: frozenset[int]) -> Any:
    if value is None or (isinstance(value, (bool, str, int, float)) and not isinstance(value, enum.Enum)):
        return _scalar(value)
    if isinstance(value, enum.Enum):
        return _convert(value.value, parents)
    simple = _simple(value)
    if simple is not None:
        return simple
    if id(value) in parents:
        return "<cycle>"
    return _container(value, parents | {id(value)})


def _scalar(value: Any) -> Any:
    """Built-in scalars, with subclasses (such as numpy.float64) brought back to the plain type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _simple(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (datetime.timedelta, PurePath, uuid.UUID, decimal.Decimal, complex)):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(value))
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return None


def _bytes(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        shown = base64.b64encode(data[:_MAX_BASE64_BYTES]).decode("ascii")
        cut = {"cut": f"first {_MAX_BASE64_BYTES} bytes"} if len(data) > _MAX_BASE64_BYTES else {}
        return {"base64": shown, "size_bytes": len(data), **cut}


def _container(value: Any, parents: frozenset[int]) -> Any:
    if isinstance(value, Mapping):
        return _mapping(value, parents)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _mapping(value._asdict(), parents)
    if isinstance(value, (set, frozenset)):
        return sorted((_convert(item, parents) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _mapping(fields, parents)
    if hasattr(value, "model_dump"):  # pydantic, without importing it
        return _convert(value.model_dump(mode="json"), parents)
    if type(value).__module__.split(".")[0] == "numpy" and hasattr(value, "tolist"):
        return _convert(value.tolist(), parents)
    if isinstance(value, Iterable) and not isinstance(value, type):
        return [_convert(item, parents) for item in value]
    return _object(value, parents)


def _mapping(value: Mapping[Any, Any], parents: frozenset[int]) -> Any:
    pairs = [(_key(key), _convert(item, parents)) for key, item in value.items()]
    converted = dict(pairs)
    # {1: …, "1": …} has two keys that JSON would make one: give pairs rather than lose a value.
    return converted if len(converted) == len(pairs) else [[key, item] for key, item in pairs]


def _key(key: Any) -> str:
    plain = _convert(key, frozenset())
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _object(value: Any, parents: frozenset[int]) -> Any:
    cls: Any = type(value)
    if (cls.__str__, cls.__repr__) != (object.__str__, object.__repr__):
        return str(value)
    public = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return _mapping(public, parents) if public else f"<{cls.__name__}>"


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
