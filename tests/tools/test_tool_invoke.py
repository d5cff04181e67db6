"""`Tool.invoke` never raises for a tool's faults: the case file, and threads, deadlines, coroutines,
objects."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import gc
import json
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from laploop.tools import RegistryError, SchemaError, Tool, ToolError, ToolRegistry, ToolResult, tool

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parents[1] / "data" / "tool.jsonl").read_text("utf-8").splitlines())
}
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def made_from(source: str, name: str = "f") -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    function: Callable[..., Any] = scope[name]
    return function


def returning(value: Any) -> Tool:
    return Tool("f", "d", NO_PARAMETERS, lambda: value)


@pytest.mark.parametrize("case_id", ["C117"])
def test_falsy_results(case_id: str) -> None:
    case = CASES[case_id]
    for value, allowed in zip(case["input"]["results"], case["expected"]["tool_content_one_of"], strict=True):
        result = returning(value).invoke({})
        assert result.content in allowed and not result.is_error


@pytest.mark.parametrize("case_id", ["C118"])
def test_none_result(case_id: str) -> None:
    result = returning(CASES[case_id]["input"]["results"][0]).invoke({})
    assert result.content == "null" and not result.is_error


@pytest.mark.parametrize("case_id", ["C121"])
@pytest.mark.parametrize("inside_loop", [False, True], ids=["no event loop", "inside a running loop"])
def test_async_and_wrapped_async(case_id: str, inside_loop: bool) -> None:
    case = CASES[case_id]
    made = tool(made_from(case["input"]["function"]))

    async def inside() -> ToolResult:
        return made.invoke(case["input"]["arguments"])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = asyncio.run(inside()) if inside_loop else made.invoke(case["input"]["arguments"])
        gc.collect()
    assert result.content == case["expected"]["tool_content"] and not result.is_error
    assert not [item for item in caught if "never awaited" in str(item.message)]


@pytest.mark.parametrize("case_id", ["C122"])
def test_hanging_tool_is_given_up(case_id: str) -> None:
    case = CASES[case_id]
    result = tool(timeout_s=case["input"]["timeout_s"])(made_from(case["input"]["function"])).invoke("{}")
    assert result.is_error and "timed out" in result.content and "0.2 s" in result.content


@pytest.mark.parametrize("case_id", ["C125"])
def test_list_as_json_string(case_id: str) -> None:
    case, calls = CASES[case_id], []
    made = Tool("f", "d", case["input"]["schema"], lambda kinds: calls.append({"kinds": kinds}))
    for arguments, expected in zip(case["input"]["arguments"], case["expected"]["called_with"], strict=True):
        calls.clear()
        result = made.invoke(arguments)
        assert ("error" if result.is_error else calls[0]) == expected


@pytest.mark.parametrize("case_id", ["C126"])
def test_unknown_and_missing_arguments(case_id: str) -> None:
    case = CASES[case_id]
    made = tool(made_from(case["input"]["function"]))
    expected = case["expected"]
    for arguments, outcome, mentions in zip(
        case["input"]["arguments"], expected["outcome"], expected["error_mentions"], strict=True
    ):
        result = made.invoke(json.dumps(arguments))
        assert result.is_error == (outcome == "error")
        assert all(word in result.content for word in mentions) and "Traceback" not in result.content


@pytest.mark.parametrize("case_id", ["C127"])
def test_exception_is_one_line(case_id: str) -> None:
    result = tool(made_from(CASES[case_id]["input"]["function"])).invoke("{}")
    assert result == ToolResult("ValueError: bad zone: Mars", is_error=True)


@pytest.mark.parametrize("case_id", ["C128"])
def test_two_tools_of_one_name(case_id: str) -> None:
    names = CASES[case_id]["input"]["names"]
    with pytest.raises(RegistryError, match=names[0]):
        ToolRegistry([Tool(name, "d", NO_PARAMETERS, lambda: 1) for name in names])


def test_every_case_of_the_file_has_a_test() -> None:
    text = Path(__file__).read_text("utf-8")
    assert all(f'["{case_id}"]' in text for case_id in CASES)


def raising(error: BaseException) -> Tool:
    def f() -> None:
        raise error

    return Tool("f", "d", NO_PARAMETERS, f)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError(), "ValueError: (no message)"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (KeyError("x"), "KeyError: 'x'"),
        (OSError(2, "No such file", "/home/someone/secret/notes.txt"),
         "FileNotFoundError: [Errno 2] No such file: 'notes.txt'"),
        (ValueError(r"in C:\Users\someone\notes.txt"), "ValueError: in notes.txt"),
        (ValueError("see https://example.com/a/b and 3/4 km/h"),
         "ValueError: see https://example.com/a/b and 3/4 km/h"),
        (Mute(), "Mute: (no message)"),
        (SystemExit(3), "RuntimeError: the tool stopped itself (SystemExit: 3)"),
        (KeyboardInterrupt(), "RuntimeError: the tool stopped itself (KeyboardInterrupt: (no message))"),
        (asyncio.CancelledError(), "RuntimeError: the tool stopped itself (CancelledError: (no message))"),
        (ToolError("give a topic"), "f: give a topic"),
        (ValueError("x" * 2000), "ValueError: " + "x" * 499 + "…"),
    ],
)  # fmt: skip
def test_exceptions(error: BaseException, content: str) -> None:
    assert raising(error).invoke({}) == ToolResult(content, is_error=True)


def test_result_that_cannot_be_printed_is_an_error_too() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("broken")

    result = returning(Bad()).invoke({})
    assert result.is_error and result.content == "RuntimeError: broken"


def test_arguments_become_python_objects() -> None:
    @dataclass
    class Trip:
        city: str
        days: int = 1

    class Mode(enum.Enum):
        TRAIN = "train"

    def book(trips: list[Trip], mode: Mode = Mode.TRAIN) -> str:
        return f"{trips[0].city} {trips[0].days} {mode.name} {type(trips[0]) is Trip} {mode is Mode.TRAIN}"

    made = tool(book)
    assert (
        made.invoke('{"trips": [{"city": "Rome", "days": "2"}], "mode": "train"}').content == "Rome 2 TRAIN True True"
    )
    assert made.invoke('{"trips": [{"city": "Rome"}]}').content == "Rome 1 TRAIN True True"


def test_notes_tell_of_conversions_and_of_the_tool() -> None:
    made = Tool(
        "f",
        "d",
        {"type": "object", "properties": {"n": {"type": "integer"}}},
        lambda n: ToolResult("x", notes=("own",)),
    )
    assert made.invoke('{"n": "3"}').notes == ('/n: "3" read as 3', "own")


def test_async_tool_is_cancelled_at_its_deadline() -> None:
    stopped = threading.Event()

    @tool(timeout_s=0.1)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    assert "timed out" in slow.invoke({}).content
    assert stopped.wait(20)


def test_coroutine_made_after_the_deadline_leaves_no_warning() -> None:
    """A slow wrapper that returned its coroutine only after the call was given up left it never awaited."""
    late, made = threading.Event(), threading.Event()

    async def answer() -> str:
        return "too late"

    def slow_wrapper() -> Any:
        late.wait(20)
        made.set()
        return answer()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "timed out" in Tool("f", "d", NO_PARAMETERS, slow_wrapper, timeout_s=0.05).invoke({}).content
        late.set()
        assert made.wait(20)
        for thread in threading.enumerate():
            if thread.name == "laploop-tool-f":
                thread.join(20)
        gc.collect()
    assert not [item for item in caught if "never awaited" in str(item.message)]


def test_async_generator_is_collected() -> None:
    @tool
    async def count() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    assert count.invoke({}).content == "[0, 1, 2]"


def test_context_variables_reach_the_tool() -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    def who() -> str:
        return user.get()

    user.set("somebody")
    assert who.invoke({}).content == "somebody"


def test_many_threads_may_call_one_tool() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    results: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: double.invoke({"n": n}).value})) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 2 * n for n in range(16)}


def test_tool_is_still_callable_and_its_schema_cannot_be_changed_from_outside() -> None:
    @tool
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    assert double(4) == 8
    double.to_openai()["function"]["parameters"]["properties"].clear()
    assert list(double.to_openai()["function"]["parameters"]["properties"]) == ["n"]


@pytest.mark.parametrize("name", ["", "1a", "-a", "a b", "a.b", "北 京", "“天气”", "a" * 65, "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(RegistryError, match="not allowed"):
        Tool(name, "d", NO_PARAMETERS, lambda: 1)


def test_bad_settings_name_the_valid_choices() -> None:
    def f(x: str) -> None:
        """F."""

    for settings, said in (
        ({"effects": {"fly"}}, "irreversible"),
        ({"effects": set()}, "none"),
        ({"strict": {"y"}}, "its parameters are x"),
        ({"needs": {"y": "g"}}, "its parameters are x"),
        ({"timeout_s": 0}, "above 0"),
    ):
        with pytest.raises(ToolError, match=said):
            tool(**settings)(f)  # type: ignore[call-overload]
    with pytest.raises(ToolError, match="from a function"):
        tool(3)  # type: ignore[call-overload]
    with pytest.raises(RegistryError, match="<lambda>"):
        tool(lambda: 1)


def test_registry_keeps_order_and_takes_functions() -> None:
    def b(x: str) -> str:
        """B."""
        return x

    def a() -> str:
        """A."""
        return ""

    registry = ToolRegistry([b])
    registry.add(a)
    assert registry.names() == ["b", "a"] == [item["function"]["name"] for item in registry.to_openai()]
    assert len(registry) == 2 and "a" in registry and "c" not in registry
    assert registry.get("b") is next(iter(registry)) and registry.get("c") is None


def test_an_array_as_the_type_of_a_schema_is_no_schema() -> None:
    """Regression: numpy's own ValueError came out."""
    import numpy as np

    with pytest.raises(SchemaError, match='of type "object"'):
        Tool("a", "Do a.", {"type": np.array([1, 2])}, lambda: "")


def test_one_effect_as_a_text_is_told_how_to_write() -> None:
    """Regression: the message named the letters of the word."""
    with pytest.raises(ToolError, match=r"effects is 'write'; expected a set such as \{'write'\}"):
        Tool("a", "Do a.", {"type": "object"}, lambda: "", effects="write")  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="expected a set such as"):

        @tool(effects="write")  # type: ignore[call-overload,untyped-decorator]
        def put(text: str) -> str:
            """Put."""
            return text
