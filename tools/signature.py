"""A Python function's parameters as a tool sees them, and the call made from JSON values. It knows no JSON
Schema.

Left out of view: `*args` and `**kwargs` (a model cannot name them) and arguments fixed by `functools.partial`
(an API key put there must not appear in a schema).
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentsError, SchemaError

MISSING: Any = inspect.Parameter.empty
_JSON_TYPES = (bool, int, float, str, list, dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its resolved type hint (with `Annotated` kept) and default (`MISSING` if there is
    none)."""

    name: str
    hint: Any
    default: Any
    positional_only: bool
    description: str | None

    @property
    def required(self) -> bool:
        """Whether a call must name it."""
        return self.default is MISSING


def read_parameters(function: Callable[..., Any], *, strict: bool = True) -> tuple[Parameter, ...]:
    """Return the parameters of `function` that a model can set, in order.

    Args:
        function: function, bound method, partial, or object with `__call__`.
        strict: raise for a parameter with no usable hint; otherwise give it the hint `Any` (for tools whose
            schema was
            written by hand).

    Raises:
        SchemaError: no signature, no annotation, or an annotation that cannot be resolved; names the
            parameter.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        if not strict:
            return ()
        raise SchemaError(f"{describe(function)}: no readable signature ({error}); wrap it in a `def`") from error
    fixed = fixed_by_partial(function)
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in fixed:
            continue
        found.append(_read(function, parameter, strict))
    return tuple(found)


def accepts_any_keyword(function: Callable[..., Any]) -> bool:
    """Whether the function takes `**kwargs`, or has no signature that could be checked."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError):
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def describe(function: Callable[..., Any]) -> str:
    """Return the function's name for messages."""
    return str(getattr(innermost(function), "__name__", type(function).__name__))


def innermost(function: Any) -> Any:
    """Return the function inside partials and decorators that set `__wrapped__`."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def fixed_by_partial(function: Any) -> frozenset[str]:
    """Return the keyword arguments that partials have fixed."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names.update(function.keywords)
        function = function.func
    return frozenset(names)


def _read(function: Callable[..., Any], parameter: inspect.Parameter, strict: bool) -> Parameter:
    where = f"{describe(function)}: parameter '{parameter.name}'"
    default = parameter.default
    try:
        hint = _hint(function, parameter, where)
    except SchemaError:
        if strict:
            raise
        hint = Any
    description = _annotated_text(hint)
    if default is None:
        hint = typing.Optional[hint]  # noqa: UP045 - built at run time: `ref: str = None` takes null as well
    if _is_field(default):  # FastAPI's spelling: `n: int = Field(3, ge=1)`
        hint, default = typing.Annotated[hint, default], _field_default(default)
    return Parameter(
        parameter.name,
        modern_typed_dicts(hint),
        default,
        parameter.kind is parameter.POSITIONAL_ONLY,
        description,
    )


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    annotation = parameter.annotation
    if annotation is MISSING:
        if type(parameter.default) in _JSON_TYPES:
            return type(parameter.default)
        if parameter.name in ("self", "cls"):
            raise SchemaError(f"{where} has no type; give the bound method of an object, not the class's function")
        raise SchemaError(f"{where} has no type annotation; write for example `{parameter.name}: str`")
    inner = innermost(function)
    if not hasattr(inner, "__globals__"):
        inner = innermost(getattr(inner, "__call__", inner))  # noqa: B004 - an object with __call__
    names = getattr(inner, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        return typing.get_type_hints(holder, names, _closure(inner), include_extras=True)[parameter.name]
    except Exception as error:
        raise SchemaError(
            f"{where}: the annotation {annotation!r} cannot be resolved ({error}); "
            "define or import its names at module level"
        ) from error


def _closure(function: Any) -> dict[str, Any]:
    """Names of the enclosing functions that the body uses; annotations may use them as well."""
    function = getattr(function, "__func__", function)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # noqa: PERF203 - an empty cell: not assigned yet
            continue
    return found


def _annotated_text(hint: Any) -> str | None:
    if typing.get_origin(hint) is typing.Annotated:
        for item in hint.__metadata__:
            if isinstance(item, str):
                return item
    return None


def _is_field(default: Any) -> bool:
    return type(default).__name__ == "FieldInfo" and type(default).__module__.startswith("pydantic")


def _field_default(field: Any) -> Any:
    return MISSING if field.is_required() else field.get_default(call_default_factory=True)


def modern_typed_dicts(hint: Any) -> Any:
    """Replace `typing.TypedDict` classes, which pydantic refuses before Python 3.12, by `typing_extensions`
    ones."""
    if sys.version_info >= (3, 12):
        return hint
    if isinstance(hint, type) and typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        return _rebuilt_typed_dict(hint)
    origin: Any = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is None or origin is typing.Literal or not arguments:
        return hint
    if origin is typing.Annotated:
        inner = modern_typed_dicts(arguments[0])
        annotated: Any = typing.Annotated
        parts = (inner, *hint.__metadata__)
        return annotated[parts]
    changed = tuple(modern_typed_dicts(item) for item in arguments)
    if changed == arguments:
        return hint
    if getattr(origin, "__name__", "") in ("Union", "UnionType"):
        return typing.Union[changed]  # noqa: UP007 - built at run time
    return origin[changed]


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint)


def _rebuilt_typed_dict(hint: Any) -> Any:
    import typing_extensions as te

    fields: dict[str, Any] = {}
    for name, item in te.get_type_hints(hint, include_extras=True).items():
        wrapper: Any = te.Required if name in hint.__required_keys__ else te.NotRequired
        while (marker := _origin(item)) in (te.Required, te.NotRequired):
            wrapper = marker  # postponed annotations hide it from __required_keys__
            (item,) = te.get_args(item)
        fields[name] = wrapper[modern_typed_dicts(item)]
    make: Any = te.TypedDict  # the functional form, with names from data, is beyond type checkers
    rebuilt = make(hint.__name__, fields)
    rebuilt.__doc__ = hint.__doc__
    return rebuilt


class Binder:
    """Builds the Python objects (enums, dataclasses, dates …) that a function's hints ask for, and calls
    it."""

    def __init__(self, function: Callable[..., Any], *, strict: bool) -> None:
        self._function = function
        self._parameters = {item.name: item for item in read_parameters(function, strict=strict)}
        self._adapters: dict[str, Any] = {}

    def call(self, values: Mapping[str, Any]) -> Any:
        """Call the function with JSON `values`, which the schema has accepted already.

        Raises:
            ArgumentsError: a value that the schema takes but the Python type refuses (such as an own
                validator).
        """
        built = {name: self._build(name, value) for name, value in values.items()}
        positional = []
        for parameter in self._parameters.values():
            if parameter.name not in built and _is_lifted_default(parameter):
                built[parameter.name] = parameter.default  # the function's own default is a pydantic FieldInfo
            if parameter.positional_only:
                if parameter.name not in built and parameter.required:
                    raise ArgumentsError([f"missing argument '{parameter.name}'"])
                positional.append(built.pop(parameter.name, parameter.default))
        return self._function(*positional, **built)

    def _build(self, name: str, value: Any) -> Any:
        parameter = self._parameters.get(name)
        if parameter is None or parameter.hint is Any:
            return value
        from pydantic import TypeAdapter, ValidationError
        from pydantic.errors import PydanticUserError

        if name not in self._adapters:
            try:
                self._adapters[name] = TypeAdapter(parameter.hint)
            except (PydanticUserError, TypeError, NameError):
                self._adapters[name] = None  # a hand-written schema over a type that pydantic does not know
        adapter = self._adapters[name]
        if adapter is None:
            return value
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise ArgumentsError(
                ["/" + "/".join(map(str, (name, *item["loc"]))) + f": {item['msg']}" for item in error.errors()]
            ) from error


def _is_lifted_default(parameter: Parameter) -> bool:
    return (
        not parameter.required
        and typing.get_origin(parameter.hint) is typing.Annotated
        and any(_is_field(item) for item in parameter.hint.__metadata__)
    )
