"""`Tool`: what an agent can do, as a value; `@tool` makes one from a function. It knows no models and no
messages.

A tool never raises for what a model or its own function does wrong: `Tool.invoke` turns unknown or missing
arguments, bad JSON, exceptions and timeouts into a `ToolResult` with `is_error`, whose text the model can
correct itself from. Authors' mistakes (a bad name, an invalid schema) raise at once, where the tool is made.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, overload

from .arguments import ParsedArguments, parse_arguments
from .errors import ArgumentsError, RegistryError, SchemaError, ToolError
from .invocation import DeadlineError, GivenUpError, error_line, given_up, run_to_deadline
from .isolation import ProcessEndedError, ProcessLimits, check_importable, run_isolated
from .result_text import to_text
from .schema import check_parameters, read_function
from .signature import Binder, accepts_any_keyword, read_parameters

EFFECTS = frozenset({"read", "network", "write", "irreversible"})
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave.

    Attributes:
        content: the text for the model.
        is_error: whether `content` tells of a fault.
        value: what the function returned, as it was; None for errors.
        notes: repairs and conversions of the arguments, and remarks of the tool; for logs and traces.
        fault: what ended the call, where it was not the function itself: "arguments", "timeout", "stopped", "died".
    """

    content: str
    is_error: bool = False
    value: Any = None
    notes: tuple[str, ...] = ()
    fault: str = field(default="", compare=False)  # it explains `content`, and never differs alone


@dataclass(frozen=True, slots=True, eq=False)  # two tools are the same only if they are one object: functions differ
class Tool:
    """A function with a name, a description and a JSON Schema of its arguments.

    Args:
        name: letters and digits of any script, `_` and `-`, at most 64, not starting with a digit or `-`. OpenAI's own
            API takes no letters but those of ASCII; models in this process and most servers take all.
        description: what it does and what it returns, for the model.
        parameters: JSON Schema (2020-12) of the arguments object.
        function: called with the arguments as keywords, built to its type hints; may be async.
        effects: what it touches, out of "read", "network", "write", "irreversible".
        timeout_s: seconds until a call is given up; None for no limit.
        run_alone: it must not run beside other calls of its round.
        group: a name by which tools can be shown or hidden together.
        needs: parameter → name of the tool whose result supplies it.
        strict: parameters whose values are never repaired or converted (paths, URLs, SQL, commands).
        isolated: each call runs in a process of its own, which is killed at `timeout_s`. The function must be one
            that another process can import: at the top of a module that is not the main script.
        memory_mb: most address space of an isolated call's process; None for no limit.
        preview: called with the arguments of a call that waits for a person's yes; gives what it would change, for
            them to see. It must change nothing.

    Raises:
        RegistryError: the name is not allowed.
        SchemaError: the schema is invalid, or does not go with the function.
        ToolError: another field has a value that is not allowed.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    _: KW_ONLY
    effects: frozenset[str] = frozenset({"read"})
    timeout_s: float | None = 30.0
    run_alone: bool = False
    group: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    strict: frozenset[str] = frozenset()
    isolated: bool = False
    memory_mb: int | None = 1024
    preview: Callable[..., str] | None = None
    _binder: Binder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_parameters(self.name, self.parameters)
        for label in ("effects", "strict"):
            if isinstance(getattr(self, label), str):  # it would be taken for a set of letters
                value = getattr(self, label)
                raise ToolError(f"{self.name}: {label} is {value!r}; expected a set such as {{{value!r}}}")
        own = {
            "parameters": copy.deepcopy(dict(self.parameters)),
            "effects": frozenset(self.effects),
            "needs": dict(self.needs),
            "strict": frozenset(self.strict),
            "_binder": Binder(self.function, strict=False),
        }
        for name, value in own.items():  # the caller's own dicts may change later, a tool may not
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if not isinstance(self.description, str):
            raise ToolError(f"{self.name}: the description must be a string, not {type(self.description).__name__}")
        if not self.effects or not self.effects <= EFFECTS:
            shown = ", ".join(sorted(self.effects)) or "none"
            raise ToolError(f"{self.name}: effects are {shown}; choose from {', '.join(sorted(EFFECTS))}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ToolError(f"{self.name}: timeout_s is {self.timeout_s}; give seconds above 0, or None for no limit")
        if self.memory_mb is not None and not self.memory_mb > 0:
            raise ToolError(f"{self.name}: memory_mb is {self.memory_mb}; give megabytes above 0, or None for no limit")
        if self.isolated:
            check_importable(self.name, self.function)
        known = set(self.parameters.get("properties", {}))
        listed = ", ".join(sorted(known)) or "none"
        for label, names in (("strict", self.strict), ("needs", set(self.needs))):
            if unknown := sorted(names - known):
                raise ToolError(f"{self.name}: {label} names {unknown[0]!r}; its parameters are {listed}")
        if not accepts_any_keyword(self.function):
            taken = {item.name for item in read_parameters(self.function, strict=False)}
            if unknown := sorted(known - taken):
                raise SchemaError(
                    f"{self.name}: the schema has {unknown[0]!r}, which the function does not take; "
                    f"it takes {', '.join(sorted(taken)) or 'none'}"
                )

    def __repr__(self) -> str:
        parameters = ", ".join(self.parameters.get("properties", {}))
        return f"<Tool {self.name}({parameters}), effects: {', '.join(sorted(self.effects))}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself: no parsing, no deadline, exceptions as they come."""
        return self.function(*args, **kwargs)

    def to_openai(self) -> dict[str, Any]:
        """Return the tool as OpenAI's chat completions take it (a copy)."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": copy.deepcopy(self.parameters),
        }
        return {"type": "function", "function": function}

    def checked(self, arguments: Mapping[str, Any] | str) -> ParsedArguments:
        """The arguments as `invoke` would use them; raises ToolError for those that it would refuse.

        Takes at most `timeout_s`: a schema of a few lines can ask for a billion steps.
        """
        try:
            parsed: ParsedArguments = run_to_deadline(
                lambda: parse_arguments(arguments, self.parameters, self.strict),
                self.timeout_s,
                self.name,
                finish=lambda value: value,
            )
        except DeadlineError:
            raise ToolError(f"checking the arguments took longer than {self.timeout_s:g} s") from None
        return parsed

    def previewed(self, arguments: Mapping[str, Any]) -> str:
        """What `preview` says about checked arguments, or why the call would fail; "" where there is none to ask."""
        if self.preview is None:
            return ""
        try:
            return self.preview(**arguments)
        except ToolError as error:
            return f"It would fail: {error}"

    def invoke(self, arguments: Mapping[str, Any] | str, *, stop: threading.Event | None = None) -> ToolResult:
        """Run the tool on `arguments` (JSON text, or an object) and return its result; safe to call from any
        thread.

        Arguments are checked and the function runs in a thread of its own (see `invocation`), or in a process
        (`isolated`); the caller waits at most `timeout_s`, and no longer than until `stop` is set.
        KeyboardInterrupt in the waiting thread passes through.
        """
        notes: tuple[str, ...] = ()

        def work() -> Any:  # checking arguments takes time too
            nonlocal notes
            parsed = parse_arguments(arguments, self.parameters, self.strict)
            notes = parsed.notes
            return self._run_isolated(parsed.value) if self.isolated else self._binder.call(parsed.value)

        try:
            result: ToolResult = run_to_deadline(work, self.timeout_s, self.name, finish=as_result, stop=stop)
        except DeadlineError:
            how = "its process was killed" if self.isolated else "the call was given up"
            text = f"timed out after {self.timeout_s:g} s; {how} and its result, if any, is lost"
            return failure(f"{self.name}: {text}", notes, "timeout")
        except GivenUpError:
            how = "its process was killed" if self.isolated else "nobody waits for it any more"
            return failure(f"{self.name}: stopped before it returned; {how}", notes, "stopped")
        except ToolError as error:
            fault = {ArgumentsError: "arguments", ProcessEndedError: "died"}.get(type(error), "")
            return failure(f"{self.name}: {' '.join(str(error).split())}", notes, fault)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is an answer for the model
            return failure(error_line(error), notes)
        return ToolResult(result.content, result.is_error, result.value, (*notes, *result.notes), result.fault)

    def _run_isolated(self, arguments: Mapping[str, Any]) -> ToolResult:
        stop = given_up()
        assert stop is not None, "run_to_deadline sets it"
        fields = run_isolated(self.function, arguments, ProcessLimits(self.memory_mb, self.timeout_s), stop)
        return ToolResult(**{**fields, "notes": tuple(fields["notes"])})


def as_result(value: Any) -> ToolResult:
    """What a function returned, as a result."""
    return value if isinstance(value, ToolResult) else ToolResult(to_text(value), value=value)


def failure(text: str, notes: tuple[str, ...], fault: str = "") -> ToolResult:
    """A result that tells of a fault."""
    return ToolResult(to_text(text), is_error=True, notes=notes, fault=fault)


def check_name(name: str) -> None:
    """Raise RegistryError unless `name` is one that templates, grammars and the text protocol can write: Python's rule
    for names (Unicode UAX 31), and `-`."""
    if not isinstance(name, str) or not (name[:1] + name[1:].replace("-", "_")).isidentifier():
        problem = "use letters, digits, '_' and '-', and start with a letter or '_'"
    elif len(name) > _MAX_NAME_CHARS:
        problem = f"use at most {_MAX_NAME_CHARS} characters"
    else:
        return
    raise RegistryError(f"tool name {name!r} is not allowed; {problem}")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effects: frozenset[str] | set[str] = ...,
    timeout_s: float | None = ...,
    run_alone: bool = ...,
    group: str = ...,
    needs: Mapping[str, str] = ...,
    strict: frozenset[str] | set[str] = ...,
    isolated: bool = ...,
    memory_mb: int | None = ...,
    preview: Callable[..., str] | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effects: frozenset[str] | set[str] = frozenset({"read"}),
    timeout_s: float | None = 30.0,
    run_alone: bool = False,
    group: str = "",
    needs: Mapping[str, str] | None = None,
    strict: frozenset[str] | set[str] = frozenset(),
    isolated: bool = False,
    memory_mb: int | None = 1024,
    preview: Callable[..., str] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a function: `@tool`, or `@tool(effects={"read", "network"}, …)`.

    Name, description and schema come from the function (see `schema_from_function`); the description also
    says what the docstring says about the result. Parameters typed as a path or a URL are strict without
    being named.

    Raises:
        ToolError: as `Tool` and `schema_from_function`.
    """
    if function is None:
        return functools.partial(
            tool, name=name, description=description, effects=effects, timeout_s=timeout_s,
            run_alone=run_alone, group=group, needs=needs or {}, strict=strict, isolated=isolated, memory_mb=memory_mb,
            preview=preview,
        )  # fmt: skip
    if isinstance(function, Tool):
        raise ToolError(f"{function.name} is a Tool already; use it as it is")
    if not callable(function):
        raise ToolError(f"a tool is made from a function, not from {type(function).__name__} {function!r}")
    read = read_function(function)
    return Tool(
        name or read.name,
        read.description if description is None else description,
        read.parameters,
        function,
        effects=effects,  # type: ignore[arg-type]  # Tool makes any set its own, and refuses a text
        timeout_s=timeout_s,
        run_alone=run_alone,
        group=group,
        needs=needs or {},
        strict=frozenset(strict) | read.strict,
        isolated=isolated,
        memory_mb=memory_mb,
        preview=preview,
    )
