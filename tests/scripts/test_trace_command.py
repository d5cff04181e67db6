"""`laploop trace`: the runs of the command are there afterwards, and nothing in them can do anything to a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from laploop.agent import Trace, TraceFolder
from laploop.models import ScriptedModel
from laploop.scripts.ask import make_agent
from laploop.scripts.options import Options
from laploop.scripts.trace_command import trace
from laploop.tools import tool

CALL = '<tool_call>\n{"name": "look", "arguments": {"what": "door"}}\n</tool_call>'
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e</script>"


@tool
def look(what: str) -> str:
    """Look at a thing.

    Args:
        what: which
    """
    return f"{HOSTILE} the {what} is open"


def shown(*args: str) -> str:
    result = CliRunner().invoke(trace, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_of_the_command_can_be_listed_and_shown() -> None:
    model = ScriptedModel(["<think>\nI look.\n</think>\n\n" + CALL, "It is open."], enable_thinking=True)
    make_agent(model, [look], Options()).run("Is the door open?")
    assert "answer" in shown("list")
    assert "Is the door open?" in shown("list")
    text = shown("show")
    for part in ("Is the door open?", "I look.", 'look({"what": "door"})', "door is open", "It is open.", CALL[:11]):
        assert part in text


def test_with_no_trace_there_is_none(own_data_folder: Path) -> None:
    make_agent(ScriptedModel(["ok"]), [], Options(no_trace=True)).run("hi")
    assert list(own_data_folder.iterdir()) == []
    assert "no traces yet" in CliRunner().invoke(trace, ["list"]).output


def test_hostile_text_reaches_no_terminal() -> None:
    make_agent(ScriptedModel([CALL, HOSTILE]), [look], Options()).run(f"see {HOSTILE}")
    for args in (("list",), ("show",), ("list", "--json"), ("show", "--json")):
        assert not set(shown(*args)) & set("\x1b\x07\u202e")


def test_json_is_the_records_and_a_file_can_be_named(own_data_folder: Path) -> None:
    result = make_agent(ScriptedModel(["ok"]), [], Options()).run("hi")
    path = TraceFolder(own_data_folder / "traces").find()
    assert json.loads(shown("show", str(path), "--json")) == result.trace.records
    row = json.loads(shown("list", "--json"))[0]
    assert (row["question"], row["end"], row["rounds"], row["calls"]) == ("hi", "answer", 1, 0)


def test_a_killed_run_and_a_bad_file_are_named_as_such(own_data_folder: Path) -> None:
    make_agent(ScriptedModel(["ok"]), [], Options()).run("hi")
    path = TraceFolder(own_data_folder / "traces").find()
    path.write_bytes(path.read_bytes()[:-30])
    assert Trace.read(path).is_cut
    assert "killed" in shown("list")
    assert "the trace ends here" in shown("show")
    path.with_name("20000101-bad.jsonl").write_text("{}\n")
    assert "(unreadable)" in shown("list")


@pytest.mark.parametrize("name", ["nothing", ""])
def test_a_trace_that_is_not_there_is_an_error_that_says_so(name: str) -> None:
    result = CliRunner().invoke(trace, ["show", name])
    assert result.exit_code == 1
    assert "there are no traces" in str(result.exception)


def test_a_run_is_replayed_and_a_changed_result_is_shown_with_both_sides(own_data_folder: Path) -> None:
    make_agent(ScriptedModel([CALL, "It is open."]), [look], Options()).run("Is the door open?")
    assert "as they were recorded" in shown("replay")
    path = TraceFolder(own_data_folder / "traces").find()
    lines = path.read_text("utf-8").splitlines()
    record = json.loads(lines[-1])
    lines[-1] = json.dumps({**record, "answer": "It is \x1b[31mclosed."})
    path.write_text("\n".join(lines) + "\n", "utf-8")
    result = CliRunner().invoke(trace, ["replay"], standalone_mode=False)
    assert result.return_value == 1
    assert "differs in answer" in result.output
    assert "closed" in result.output
    assert "It is open." in result.output
    assert "\x1b" not in result.output


def test_a_trace_becomes_a_test_that_passes(own_data_folder: Path, tmp_path: Path) -> None:
    make_agent(ScriptedModel([CALL, "It is open."]), [look], Options()).run("Is the door open?")
    made = Path(shown("to-test", "--into", str(tmp_path / "tests")).strip())
    code: dict[str, object] = {"__file__": str(made)}
    exec(compile(made.read_text(), str(made), "exec"), code)
    code["test_the_loop_does_what_it_did"]()  # type: ignore[operator]
    again = CliRunner().invoke(trace, ["to-test", "--into", str(tmp_path / "tests")])
    assert "is there already" in str(again.exception)
