"""laploop.toml is used once its person has said yes, until it or the files that it names change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from laploop.scripts.folder_config import parse_config, trusted_config, with_folder
from laploop.scripts.loading import chosen_tools
from laploop.scripts.options import Options, UsageFault

TOML = """tools = ["mine.py"]
root = "notes"
write = true
databases = []
documents = "notes"
approve = { network = "ask" }
"""


class Person:
    """Answers with what it is told to, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, question: str) -> str:
        self.asked += 1
        return self.answers.pop(0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAPLOOP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "folder"
    (folder / "notes").mkdir(parents=True)
    (folder / "laploop.toml").write_text(TOML)
    (folder / "mine.py").write_text("def double(x: int) -> int:\n    'Twice a number.'\n    return 2 * x\n")
    monkeypatch.chdir(folder)
    return folder


def test_a_yes_holds_until_something_changes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trusted_config(place, Person("y")) is not None
    shown = capsys.readouterr().err
    assert 'tools = ["mine.py"]' in shown and "has changed" not in shown
    again = Person()
    assert trusted_config(place, again) is not None and again.asked == 0
    for file, more in (("laploop.toml", "# more\n"), ("mine.py", "x = 1\n")):
        with (place / file).open("a") as opened:
            opened.write(more)
        assert trusted_config(place, Person("no")) is None
        assert "has changed since you trusted it" in capsys.readouterr().err
        assert trusted_config(place, Person("yes")) is not None


def test_a_no_is_not_remembered_as_a_yes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for answer in ("n", "", "what?"):
        assert trusted_config(place, Person(answer)) is None
    assert "not used" in capsys.readouterr().err


def test_without_a_terminal_it_is_not_used_and_that_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert with_folder(Options()) == Options()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "is not used: start laploop in a terminal once" in said


def test_a_file_swapped_while_it_is_read_is_not_trusted(place: Path) -> None:
    def swap(question: str) -> str:
        (place / "mine.py").write_text("raise SystemExit\n")
        return "y"

    with pytest.raises(UsageFault, match="changed while you read it"):
        trusted_config(place, swap)
    assert trusted_config(place, Person("n")) is None


def test_a_damaged_memory_asks_again(place: Path, tmp_path: Path) -> None:
    trusted_config(place, Person("y"))
    (store,) = (tmp_path / "data").iterdir()
    for content in ("", "[]", '{"a": 1}', "\x00"):
        store.write_text(content)
        assert trusted_config(place, Person("n")) is None
    trusted_config(place, Person("y"))
    assert len(json.loads(store.read_text())) == 1


def test_a_copy_of_a_trusted_folder_is_asked_about(place: Path, tmp_path: Path) -> None:
    trusted_config(place, Person("y"))
    other = tmp_path / "other"
    other.mkdir()
    for file in ("laploop.toml", "mine.py"):
        (other / file).write_bytes((place / file).read_bytes())
    assert trusted_config(other, Person("n")) is None


def test_what_it_says_is_used_and_flags_win(place: Path, tmp_path: Path) -> None:
    trusted_config(place, Person("y"))
    merged = with_folder(Options())
    assert merged.root == place / "notes" and merged.approve == {"network": "ask"}
    names = [item.name for item in chosen_tools(merged)]
    assert {"double", "write_file", "edit_file", "search_documents"} <= set(names)
    flags = with_folder(Options(root=tmp_path, approve={"network": "auto"}))
    assert flags.root == tmp_path and flags.approve == {"network": "auto"}
    assert with_folder(Options(no_tools=True)) == Options(no_tools=True)


def test_a_folder_without_one_is_nothing_to_talk_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trusted_config(tmp_path) is None and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools = 'x.py'", "expected a list"), ("tools = [1]", "list of texts"), ("root = 1", "expected a str"),
        ("write = 'yes'", "expected a bool"), ("approve = { network = 'maybe' }", "'maybe'"),
        ("approve = { fly = 'ask' }", "'fly'"),
        ("tool = []", "'tool' is not known; known are tools"), ("x", "not valid TOML"),
        ("servers = []", "expected a dict"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_it_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageFault, match=r"laploop\.toml") as caught:
        parse_config(text.encode(), tmp_path)
    assert said in str(caught.value)


def test_control_characters_of_the_file_do_not_reach_the_terminal(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "laploop.toml").write_text(TOML + "# \x1b[2J hidden\n".replace("\x1b", "\u202e"), "utf-8")
    trusted_config(place, Person("n"))
    assert "\u202e" not in capsys.readouterr().err


def test_what_would_be_imported_is_what_is_trusted(place: Path) -> None:
    """Regression: a package named in the file was not looked at, and one that came later took a trusted file's place;
    both ran unasked."""
    (place / "laploop.toml").write_text('tools = ["pack:double", "mine:double"]')
    (place / "pack").mkdir()
    (place / "pack" / "__init__.py").write_text("from .inner import double\n")
    (place / "pack" / "inner.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    assert trusted_config(place, Person("y")) is not None
    assert trusted_config(place, Person()) is not None
    for path in ("pack/inner.py", "mine/__init__.py", "mine.so"):
        (place / path).parent.mkdir(exist_ok=True)
        with (place / path).open("a") as opened:
            opened.write("x = 1\n")
        assert trusted_config(place, Person("n")) is None, path
        assert trusted_config(place, Person("y")) is not None


def test_a_link_to_a_trusted_file_is_of_another_folder(place: Path, tmp_path: Path) -> None:
    """Regression: the tools of the folder in which the link lay ran unasked."""
    trusted_config(place, Person("y"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "laploop.toml").symlink_to(place / "laploop.toml")
    assert trusted_config(other, Person("n")) is None
