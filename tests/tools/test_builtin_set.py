"""The built-in tools as a set: names, effects, size of their list in a prompt, imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import laploop.tools
import pytest
from jsonschema import Draft202012Validator
from laploop.tools import Tool, ToolRegistry, builtin_tools

TOOLS = builtin_tools()


def test_names_and_order() -> None:
    assert ToolRegistry(TOOLS).names() == [
        "get_weather", "get_news", "read_url", "get_time", "calculator", "list_files", "search_files",
        "read_file",
    ]  # fmt: skip


def test_the_whole_list_costs_little_prompt() -> None:
    assert len(json.dumps(ToolRegistry(TOOLS).to_openai(), ensure_ascii=False)) < 3_200


@pytest.mark.parametrize("item", TOOLS, ids=lambda item: item.name)
def test_each_tool_is_well_described(item: Tool) -> None:
    Draft202012Validator.check_schema(item.parameters)
    assert ("Returns" in item.description and item.description.isascii()) or item.name == "calculator"
    assert item.parameters["additionalProperties"] is False
    assert item.parameters["properties"], "every built-in takes something"
    for name in item.parameters["required"]:
        schema = item.parameters["properties"][name]
        assert schema.get("description"), f"{item.name}: {name} needs a description with an example"


def test_effects_needs_and_strict_are_declared() -> None:
    by_name = {item.name: item for item in TOOLS}
    network = {name for name, item in by_name.items() if item.effects == {"read", "network"}}
    assert network == {"get_weather", "get_news", "read_url"}
    assert all(item.effects == {"read"} for name, item in by_name.items() if name not in network)
    assert dict(by_name["read_url"].needs) == {"url": "get_news"} and by_name["read_url"].strict == {"url"}
    assert all(by_name[name].strict == {"path"} for name in ("list_files", "search_files", "read_file"))


def test_public_names_are_all_there_and_nothing_else() -> None:
    for name in laploop.tools.__all__:
        assert getattr(laploop.tools, name) is not None
    assert dir(laploop.tools) == sorted(laploop.tools.__all__) == laploop.tools.__all__
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = laploop.tools.nothing_such


def test_decorator_survives_imports_in_any_order() -> None:
    """A module named `tool` beside the decorator `tool` would take its place as soon as somebody imported
    it."""
    code = (
        "import laploop.tools.registry, laploop.tools.builtin.clock\n"
        "from laploop.tools import tool, Tool\n"
        "assert isinstance(tool(lambda: 1) if False else tool(name='f')(lambda: 1), Tool)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom laploop.tools import Tool, ToolRegistry, ToolResult, WebConfig, tool\n"
        "heavy = {'pydantic', 'httpx', 'trafilatura', 'lxml', 'jsonschema', 'feedparser', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_model_reads_of_them_is_as_measured() -> None:
    """Every word of names, descriptions and schemas was tried on small models; a change is seen here, and is for the
    benchmark (scripts/benchmarks/demo_runs.py) to judge. Written anew with `to_openai()`, one tool a line."""
    golden = (Path(__file__).parents[1] / "data" / "builtin_tools.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in golden] == ToolRegistry(TOOLS).to_openai()


def test_a_text_that_must_say_something_cannot_be_empty() -> None:
    """The grammar then never lets a model write `""` there, which only cost a round."""
    by_name = {item.name: item for item in TOOLS}
    for name, parameter in (("calculator", "expression"), ("search_files", "query")):
        assert by_name[name].parameters["properties"][parameter]["minLength"] == 1
        assert "at least 1" in by_name[name].invoke({parameter: ""}).content
