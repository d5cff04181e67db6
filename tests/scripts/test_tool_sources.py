"""-T names tools: of a module, of a file; what is wrong with a source is one line that says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from laploop.scripts.loading import chosen_tools
from laploop.scripts.options import Options, UsageFault
from laploop.scripts.tool_sources import named_tools, server_tools
from laploop.tools import RegistryError

FILE = '''
from dataclasses import dataclass
from laploop.tools import tool

@dataclass
class Place:
    name: str

@tool(effects={"write"})
def plant(what: str, where: Place) -> str:
    """Plant something. Returns where it stands."""
    return f"{what} in {where.name}"

def helper(x: int) -> int:
    """No tool."""
    return x
'''
PLAIN = '''
from __future__ import annotations
from pathlib import Path

def double(x: int) -> int:
    """Twice a number."""
    return 2 * x

def triple(x: int) -> int:
    """Three times a number."""
    return 3 * x

def _private(x: int) -> int:
    return x

both = [double, triple]
number = 5
def untyped(x): ...
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "garden.py").write_text(FILE)
    (tmp_path / "plain_numbers.py").write_text(PLAIN.replace("def untyped(x): ...\n", ""))
    (tmp_path / "with_fault.py").write_text(PLAIN)
    (tmp_path / "broken.py").write_text("raise ValueError('on purpose')\n")
    (tmp_path / "wants.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "calendar.py").write_text("def when(x: int) -> int:\n    'When.'\n    return x\n")
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").write_text(PLAIN.replace("def untyped(x): ...\n", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("garden.py", ["plant"]), ("garden.py:helper", ["helper"]), ("{tmp}/garden.py", ["plant"]),
        ("plain_numbers.py", ["double", "triple"]), ("plain_numbers.py:both", ["double", "triple"]),
        ("plain_numbers:double", ["double"]), ("plain_numbers", ["double", "triple"]),
        ("pack.inner:triple", ["triple"]),
        ("calendar.py", ["when"]),
    ],
)  # fmt: skip
def test_sources(place: Path, spec: str, names: list[str]) -> None:
    assert [item.name for item in named_tools(spec.format(tmp=place))] == names


def test_a_file_keeps_its_effects_and_does_not_stand_in_for_pythons_own(place: Path) -> None:
    (plant,) = named_tools("garden.py")
    assert plant.effects == {"write"}
    assert plant.invoke({"what": "leek", "where": {"name": "bed"}}).content == "leek in bed"
    named_tools("calendar.py")
    import calendar

    assert hasattr(calendar, "monthrange")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere.py", "there is no file"), ("nowhere_at_all", "there is no module 'nowhere_at_all'"),
        ("garden.py:none", "has no 'none'; it has"), ("garden:none", "has no 'none'"),
        ("plain_numbers.py:number", "is no function"),
        ("broken.py", "ValueError: on purpose"), ("wants.py", "needs the module 'no_such_module_at_all'"),
        ("empty.py", "there is no tool"), ("with_fault.py", "x"), ("", "no module or file"),
        (":x", "no module"), ("pack.none:x", "no module"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(place: Path, spec: str, said: str) -> None:
    with pytest.raises(UsageFault) as caught:
        named_tools(spec)
    assert said in str(caught.value) and str(caught.value).startswith("-T ")


def test_servers_of_a_file_and_what_is_wrong_with_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mcp")
    server = Path(__file__).parents[1] / "support" / "mcp_server.py"
    file = place / "servers.json"
    file.write_text(
        json.dumps(
            {"mcpServers": {"odd": {"command": sys.executable, "args": [str(server)]}, "bad": {"command": "no-such"}}}
        )
    )
    tools = {item.name: item for item in server_tools(file)}
    assert tools["odd_echo"].invoke({"text": "a"}).content == "a"
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'bad' did not start" in said


def test_flags_and_the_folder_add_to_the_built_in_tools(place: Path) -> None:
    (place / "shop.db").touch()
    options = Options(tool=("garden.py",), write=True, db=(place / "shop.db",), docs=place)
    names = [item.name for item in chosen_tools(options)]
    assert names[8:] == ["write_file", "edit_file", "search_documents", "show_tables", "query_database", "plant"]
    assert chosen_tools(Options(tool=("garden.py",), no_tools=True)) == []


@pytest.mark.parametrize("line", ["import sys; sys.exit(0)", "raise SystemExit(3)", "raise GeneratorExit"])
def test_a_file_that_ends_the_program_does_not(place: Path, line: str) -> None:
    """Regression: sys.exit(0) in a tool file ended laploop silently, as if it had answered."""
    (place / "ends.py").write_text(line)
    with pytest.raises(UsageFault, match=r"importing ends\.py failed: (SystemExit|GeneratorExit)"):
        named_tools("ends.py")


@pytest.mark.parametrize(
    "code",
    [
        "class Odd:\n    def __call__(self): ...\n    def __getattr__(self, name): raise OSError(name)\nodd = Odd()",
        "class Odd:\n    def __repr__(self): raise OSError('no')\nodd = Odd()",
        "odd = []\nodd.append(odd)",
    ],
)
@pytest.mark.parametrize("name", ["", ":odd"])
def test_an_object_that_cannot_be_looked_at_is_the_files_fault(place: Path, code: str, name: str) -> None:
    """Regression: raising attributes and a list in itself ended as "a fault of laploop"."""
    (place / "strange.py").write_text(code + "\n")
    with pytest.raises(UsageFault, match=r"^-T strange\.py"):
        named_tools(f"strange.py{name}")


def test_what_a_tool_file_prints_is_not_the_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: it stood in stdout, before the JSON of `--json`."""
    (place / "talks.py").write_text(PLAIN.replace("def untyped(x): ...", "print('hello')"))
    assert named_tools("talks.py:double")
    assert capsys.readouterr() == ("", "hello\n")


def test_two_databases_have_tools_of_their_own(place: Path) -> None:
    """Regression: --db twice gave two tools of one name."""
    for folder in ("a", "b"):
        (place / folder).mkdir()
        (place / folder / "shop.db").touch()
    (place / "the notes.db").touch()
    paths = (place / "a/shop.db", place / "b/shop.db", place / "the notes.db", place / "a/../a/shop.db")
    names = [item.name for item in chosen_tools(Options(db=paths)) if item.group == "database"]
    assert names[1::2] == ["query_database_shop_1", "query_database_shop_2", "query_database_the_notes"]


def test_two_tools_of_one_name_are_refused_wherever_tools_are_chosen(place: Path) -> None:
    """Regression: `laploop tools` listed what `laploop ask` refused."""
    with pytest.raises(RegistryError, match="double"):
        chosen_tools(Options(tool=("plain_numbers.py:double", "plain_numbers.py:both")))


def test_tools_named_beside_no_tools_are_told_of(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen_tools(Options(tool=("garden.py",), docs=place, no_tools=True)) == []
    assert "--no-tools: -T, --docs are not used" in capsys.readouterr().err
