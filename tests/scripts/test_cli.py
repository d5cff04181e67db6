"""The command as a person meets it: what it imports, where arguments go, exit codes, one line per failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from laploop.scripts import cli

HEAVY = "numpy llama_cpp llguidance rich httpx pydantic huggingface_hub jinja2 trafilatura prompt_toolkit jsonschema"


def laploop(*args: str, stdin: str | None = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, without the variables of the test run."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAPLOOP_")}
    return subprocess.run(
        [sys.executable, "-m", "laploop.scripts.cli", *args],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env={**clean, "HF_HUB_OFFLINE": "1", **env},
        timeout=120,
    )


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from laploop.scripts import cli; code = cli.run(['--help']);"
        f"heavy = [m for m in {HEAVY.split()!r} if m in sys.modules]; print('HEAVY', heavy); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=60)
    assert done.stdout.endswith("HEAVY []\n")
    assert done.returncode == 0


def test_help_names_every_command_and_none_that_does_not_exist() -> None:
    done = laploop("--help")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.split("Commands:")[1].splitlines() if line.startswith("  ")]
    assert listed[: len(cli.COMMANDS)] == sorted(cli.COMMANDS)


def test_no_arguments_shows_the_help() -> None:
    assert "Usage: laploop" in laploop().stdout


def test_version() -> None:
    done = laploop("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("laploop ")


@pytest.mark.parametrize(
    ("args", "arranged"),
    [
        (["What is 1+1?"], ["ask", "What is 1+1?"]),
        (["-m", "x", "What is 1+1?"], ["ask", "-m", "x", "What is 1+1?"]),
        (["ask", "models"], ["ask", "models"]),
        (["models", "list"], ["models", "list"]),
        (["-m", "x", "chat"], ["chat", "-m", "x"]),
        (["--offline", "-c", "64", "demo", "--json"], ["demo", "--offline", "-c", "64", "--json"]),
        (["-m", "chat", "hello there"], ["ask", "-m", "chat", "hello there"]),
        (["--", "chat"], ["ask", "--", "chat"]),
        (["-"], ["ask", "-"]),
        (["--help"], ["--help"]),
        (["hello"], ["ask", "hello"]),
        (["what", "tools"], ["ask", "what", "tools"]),
        ([], []),
    ],
)
def test_a_first_argument_that_is_no_command_is_a_question(args: list[str], arranged: list[str]) -> None:
    assert cli.arrange(args) == arranged


def test_a_mistyped_command_is_not_sent_to_a_model() -> None:
    done = laploop("modles")
    assert done.returncode == cli.EXIT_USAGE
    assert done.stderr.startswith('laploop: there is no command "modles"; did you mean "laploop models"?')
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--tmep", "0", "hi"], "--temp"),
        (["--seed", "x", "hi"], "'x' is not a valid integer"),
        (["-c", "-5", "hi"], "-5 is not in the range"),
        (["-fa", "maybe", "hi"], "'on', 'off', 'auto'"),
        (["--root", "no/such/folder", "hi"], "no/such/folder"),
        (["-m", "a", "-hf", "b/c", "hi"], "give one of them"),
        (["ask"], "no question"),
        (["ask", "  "], "no question"),
        (["chat", "--json"], "--json"),
        (["demo", "--question", "6"], "6 is not in the range"),
        (["--foo"], "There is no option --foo. See laploop ask --help."),
        (["--ctx", "64", "hi"], "Did you mean --ctx-size?"),
        (["-m", "x", "modles"], 'did you mean "laploop models"?'),
        (["chat", "hello", "there"], 'start it, then type. For one answer: laploop ask "hello there"'),
        (["models", "list", "x"], "(x). See laploop models list --help."),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(args: list[str], words: str) -> None:
    done = laploop(*args)
    assert done.returncode == cli.EXIT_USAGE
    assert done.stderr.startswith("laploop: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert done.stdout == ""


def test_an_unknown_model_is_one_line_and_exit_code_1() -> None:
    done = laploop("-m", "qwen9-1t", "hi")
    assert done.returncode == cli.EXIT_ERROR
    assert done.stderr.startswith("laploop: ")
    assert done.stderr.count("\n") == 1
    assert "qwen9-1t" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("content", ["just text\n", "version https://git-lfs.github.com/spec/v1\n", ""])
def test_a_file_that_is_no_model_is_one_line_and_exit_code_1(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_text(content)
    done = laploop("-m", str(path), "hi")
    assert done.returncode == cli.EXIT_ERROR
    assert done.stderr.startswith("laploop: ")
    assert done.stderr.count("\n") == 1
    assert "model.gguf" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_flag_beats_its_variable(tmp_path: Path) -> None:
    from_variable = laploop("hi", LAPLOOP_MODEL="model-of-variable")
    from_flag = laploop("-m", "model-of-flag", "hi", LAPLOOP_MODEL="model-of-variable")
    other_flag = laploop("-hf", "owner/repo-of-flag", "hi", LAPLOOP_MODEL="model-of-variable")
    assert "model-of-variable" in from_variable.stderr
    assert "model-of-flag" in from_flag.stderr
    assert "repo-of-flag" in other_flag.stderr
    for done in (from_variable, from_flag, other_flag):
        assert done.returncode == cli.EXIT_ERROR


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LAPLOOP_CTX_SIZE": "many"}, "Invalid value for the variable LAPLOOP_CTX_SIZE: 'many' is not a valid"),
        ({"LAPLOOP_OFFLINE": "maybe"}, "the variable LAPLOOP_OFFLINE: 'maybe' is not a valid boolean. Recognized"),
        ({"LAPLOOP_APPROVE": "x"}, "the variable LAPLOOP_APPROVE: 'x' is not one of read"),
        ({"LAPLOOP_MODEL": "a", "LAPLOOP_HF_REPO": "b/c"}, "the variables LAPLOOP_MODEL and LAPLOOP_HF_REPO both"),
    ],
)
def test_a_bad_variable_is_a_usage_error_that_names_it(variables: dict[str, str], words: str) -> None:
    """Regression: the flag was blamed, which nobody had given."""
    done = laploop("hi", **variables)
    assert (done.returncode, done.stderr.count("\n")) == (cli.EXIT_USAGE, 1)
    assert words in done.stderr
    blamed = laploop("-c", "many", "hi", LAPLOOP_CTX_SIZE="64")
    assert "'-c' / '--ctx-size': 'many'" in blamed.stderr


@pytest.mark.parametrize("arguments", [["--foo"], ["ask", "-c", "x", "?"], ["modles"], ["ask", "  "]])
def test_a_mistake_is_told_before_a_model_is_looked_for(arguments: list[str]) -> None:
    """Regression: scripts/run fetched 1.8 GB first."""
    code = "import sys; from laploop.scripts import default_model; sys.exit(default_model.main(sys.argv[1:]))"
    checked = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, encoding="utf-8")
    assert (checked.returncode, checked.stdout) == (cli.EXIT_USAGE, "")
    assert checked.stderr == laploop(*arguments).stderr


def test_what_is_right_passes_the_check() -> None:
    for arguments in ([], ["What is 1+1?"], ["-"], ["chat"], ["demo", "--json"], ["-m", "x", "hi"], ["--", "-x"]):
        cli.check(arguments)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_while_the_command_is_imported_is_no_traceback() -> None:
    """Regression: in the first fifty milliseconds it was Python's."""
    code = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'laploop.scripts.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from laploop.scripts.entry import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (cli.EXIT_INTERRUPTED, "laploop: interrupted\n")


def test_debug_shows_the_traceback() -> None:
    done = laploop("-m", "qwen9-1t", "hi", LAPLOOP_DEBUG="1")
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_tools_lists_names_effects_descriptions_and_what_is_enforced() -> None:
    text, data = laploop("tools"), laploop("tools", "--json")
    assert text.returncode == data.returncode == 0
    tools = json.loads(data.stdout)
    assert [t["function"]["name"] for t in tools] == [
        "get_weather",
        "get_news",
        "read_url",
        "get_time",
        "calculator",
        "list_files",
        "search_files",
        "read_file",
    ]
    for entry in tools:
        assert entry["function"]["name"] + "(" in text.stdout
        assert entry["effects"]
        assert {(f["pointer"], f["keyword"]) for f in entry["schema_report"]} >= {("", "properties"), ("", "type")}
        assert {f["status"] for f in entry["schema_report"]} == {"enforced"}
    assert text.stdout.count("    enforced: type, ") == len(tools) and "\x1b" not in text.stdout
    lines = text.stdout.splitlines()
    assert "    enforced: type, properties, required, additionalProperties of the whole; type of city" in lines
    assert [line.partition(":")[0] for line in lines[-3:]] == ["enforced", "validated", "rejected"], "what they mean"


def test_a_reader_that_goes_away_is_no_fault() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "laploop.scripts.cli", "tools", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert errors == ""


def test_an_unexpected_error_says_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._message_of(ZeroDivisionError("x")) == (
        "unexpected ZeroDivisionError: x (a fault of laploop; LAPLOOP_DEBUG=1 shows where)"
    )
    assert cli._message_of(FileNotFoundError(2, "No such file", "a.txt")) == "a.txt: No such file"
    cli.complain("two\nlines \x1b[31mred")
    assert capsys.readouterr().err == "laploop: two lines \\x1b[31mred\n"
