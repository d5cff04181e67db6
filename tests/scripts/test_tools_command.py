"""`laploop tools` lists what ask and chat would have, with advice on words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from laploop.scripts.tools_command import tools


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def double(x: int) -> int:\n    'Double stuff.'\n    return 2 * x\n")
    monkeypatch.chdir(tmp_path)


def test_advice_stands_below_its_tool() -> None:
    lines = CliRunner().invoke(tools, ["-T", "mine.py"], catch_exceptions=False).output.splitlines()
    own = lines[lines.index("double(x)  [read]") :]
    assert '    advice: x: no description; describe it, with an example: "The x, e.g. 42"' in own
    assert any(line.startswith("    advice: says no more than the name; ") for line in own)


def test_as_json_each_has_its_report_and_its_advice() -> None:
    result = CliRunner().invoke(tools, ["--json", "--write", "-T", "mine.py"], catch_exceptions=False)
    by_name = {item["function"]["name"]: item for item in json.loads(result.output)}
    assert {"get_weather", "write_file", "edit_file", "double"} <= set(by_name)
    assert by_name["write_file"]["effects"] == ["read", "write"] and by_name["double"]["schema_report"]
    assert {advice["place"] for advice in by_name["double"]["advice"]} == {"", "x"}
    assert by_name["get_weather"]["advice"] == []
