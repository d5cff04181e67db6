"""`laploop trace`: what happened in each run, as it was written while it went on. It loads no model.

The lines that it prints hold what models, pages and people wrote: all of it is shown with control characters visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .cache_command import as_json_flag, megabytes
from .cli import EXIT_ERROR
from .sessions import local_time

if TYPE_CHECKING:
    from laploop.agent import Trace, TraceFolder

_MOST_LISTED = 20
_TEST = '''"""A recorded run: the loop still does what it did (made by `laploop trace to-test`)."""

from pathlib import Path

from laploop.agent import Trace, replay


def test_the_loop_does_what_it_did() -> None:
    played = replay(Trace.read(Path(__file__).with_suffix(".jsonl")))
    assert played.divergence is None, played.divergence
'''
_INDENT = "    "


def trace_folder() -> TraceFolder:
    """Where the command's own runs leave their traces: in the data folder."""
    from laploop.agent import TraceFolder
    from laploop.engine.folders import data_dir

    return TraceFolder(data_dir() / "traces")


@click.group(context_settings={"max_content_width": 100})
def trace() -> None:
    """Read what happened in earlier runs.

    Each run of ask, chat and demo leaves a trace in laploop's data folder (--no-trace: none), with secrets taken out by
    rule. The oldest go first.
    """


@trace.command("list")
@click.option("--all", "all_of_them", is_flag=True, help=f"All of them, not the latest {_MOST_LISTED} alone.")
@as_json_flag
def list_traces(all_of_them: bool, as_json: bool) -> None:
    """The traces, the latest first."""
    from laploop.agent import Trace, TraceError

    from .visible import json_text, one_line

    paths = trace_folder().traces()
    rows = []
    for path in paths if all_of_them else paths[:_MOST_LISTED]:
        try:
            rows.append(_row(path, Trace.read(path)))
        except TraceError as error:  # noqa: PERF203 - a bad file does not hide the others
            rows.append({"name": path.stem, "path": str(path), "error": str(error)})
    if as_json:
        click.echo(json_text(rows))
        return
    for row in rows:
        if "error" in row:
            click.echo(f"{row['name']}  (unreadable)")
            continue
        click.echo(
            f"{row['name']}  {row['started']}  {row['end']:<12} {row['rounds']:>2} rounds {row['calls']:>2} calls "
            f"{megabytes(row['size_bytes']):>8}  {one_line(row['question'])[:60]}"
        )
    if not paths:
        click.echo("There are no traces yet (each run of ask, chat and demo leaves one).", err=True)
    elif len(rows) < len(paths):
        click.echo(f"… and {len(paths) - len(rows)} older ones (--all)", err=True)


def _row(path: Path, read: Trace) -> dict[str, Any]:
    start = read.records[0] if read.records else {}
    end = read.records[-1] if read.records else {}
    return {
        "name": path.stem,
        "started": local_time(path.stat().st_mtime - float(end.get("t_s") or 0)),
        "question": str(start.get("question", "")),
        "model": start.get("model"),
        "end": how_it_ended(read),
        "rounds": len(read.of_type("round_finished")),
        "calls": len(read.of_type("call_finished")),
        "seconds": end.get("t_s"),
        "size_bytes": path.stat().st_size,
        "path": str(path),
    }


def how_it_ended(read: Trace) -> str:
    """The stop reason; "failed" after an error, "broken off" where the caller left, "killed" where nothing says how."""
    last = read.records[-1] if read.records else {}
    named = {"run_failed": "failed", "run_broken_off": "broken off", "trace_full": "too long"}
    kind = str(last.get("type"))
    return str(last["stop_reason"]) if kind == "run_finished" else named.get(kind, "killed")


@trace.command()
@click.argument("name", default="", metavar="[TRACE]")
@as_json_flag
def show(name: str, as_json: bool) -> None:
    """One run from the question to the answer: TRACE is a file, or the beginning or end of a name; the latest run where
    none is given."""
    from laploop.agent import Trace

    from .visible import clean, json_text

    path = _path_of(name)
    read = Trace.read(path)
    if as_json:
        click.echo(json_text(read.records))
        return
    click.echo(clean(str(path)))
    for line in lines_of(read):
        click.echo(clean(line))


def _path_of(name: str) -> Path:
    return Path(name) if name and Path(name).is_file() else trace_folder().find(name)


@trace.command()
@click.argument("name", default="", metavar="[TRACE]")
def replay(name: str) -> int:
    """Run the loop again over the recorded replies and results, without a model: does it still do what it did?

    Exit code 1 where it does not; the first event that differs is shown with both sides.
    """
    from laploop.agent import Trace, replay

    from .visible import clean, json_text

    path = _path_of(name)
    played = replay(Trace.read(path))
    if played.divergence is None:
        click.echo(f"{clean(path.stem)}: {len(played.trace.records)} events, as they were recorded")
        return 0
    found = played.divergence
    click.echo(f"{clean(path.stem)}: event {found.index} differs in {', '.join(found.fields)}")
    for label, side in (("recorded", found.recorded), ("replayed", found.replayed)):
        click.echo(f"{label}: {json_text(side)}")
    return EXIT_ERROR


@trace.command("to-test")
@click.argument("name", default="", metavar="[TRACE]")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder of the test. [the current one]",
)
def to_test(name: str, into: Path) -> None:
    """Make a trace a regression test: a copy of it, and a file for pytest that replays it."""
    from laploop.agent import Trace, TraceError

    from .visible import clean

    path = _path_of(name)
    if Trace.read(path).is_cut:
        raise TraceError(f"{path} ends in the middle of an event; a test needs a whole trace")
    slug = re.sub(r"[^0-9a-zA-Z]+", "_", path.stem).strip("_").lower()
    target = into / f"test_trace_{slug}.py"
    into.mkdir(parents=True, exist_ok=True)
    for file, content in ((target.with_suffix(".jsonl"), path.read_bytes()), (target, _TEST.encode())):
        if file.exists():
            raise TraceError(f"{file} is there already; remove it, or name another folder with --into")
        file.write_bytes(content)
    click.echo(clean(str(target)))


def lines_of(read: Trace) -> Iterator[str]:
    """The run in lines of text, as far as it got; not yet safe to show."""
    for record in read.records:
        yield from _RECORDS.get(record["type"], _other)(record)
    if read.is_cut or how_it_ended(read) == "killed":
        yield "(the trace ends here: the process was killed, or still runs)"


def _at(record: Mapping[str, Any]) -> str:
    return f"[{record.get('t_s') or 0:8.3f} s]"


def _block(label: str, text: object) -> Iterator[str]:
    if text:
        yield f"{_INDENT}{label}:"
        yield from (f"{_INDENT * 2}{line}" for line in str(text).split("\n"))


def _start(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_at(record)} {record.get('started_at')}  model {record.get('model')}, {record.get('request')}"
    yield from _block("system prompt", record.get("system_prompt"))
    names = [tool["function"]["name"] for tool in record.get("tools") or ()]
    yield f"{_INDENT}tools: {', '.join(names) or 'none'}"
    yield from _block("question", record.get("question"))


def _round(record: Mapping[str, Any]) -> Iterator[str]:
    usage, timings = record.get("usage") or {}, record.get("timings") or {}
    n_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    counts = (
        f"{usage.get('prompt_tokens')} prompt tokens ({n_cached} reused), {usage.get('completion_tokens')} generated"
        if usage
        else "no counts"
    )
    if timings:
        counts += f", {timings.get('prompt_ms', 0) / 1000:.2f} s + {timings.get('predicted_ms', 0) / 1000:.2f} s"
    yield f"{_at(record)} round {record.get('round')} → {record.get('finish_reason')}: {counts}"
    message = record.get("message") or {}
    yield from _block("thought", message.get("reasoning_content"))
    yield from _block("said", message.get("content"))
    yield from _block("raw", record.get("raw_output"))
    for fault in record.get("invalid_tool_calls") or ():
        yield f"{_INDENT}not a call: {fault}"


def _call(record: Mapping[str, Any]) -> Iterator[str]:
    state = "error" if record.get("is_error") else "result"
    how = f"{record.get('seconds')} s" if record.get("executed", True) else "not run"
    yield f"{_at(record)} {record.get('name')}({record.get('arguments')}) → {state}, {how}"
    yield from _block("content", record.get("content"))
    yield from (f"{_INDENT}note: {note}" for note in record.get("notes") or ())


def _end(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_at(record)} end: {record.get('stop_reason')}, {record.get('rounds')} rounds"
    yield from _block("answer", record.get("answer"))


def _other(record: Mapping[str, Any]) -> Iterator[str]:
    values = ", ".join(f"{k}={v!r}" for k, v in record.items() if k not in ("type", "t_s"))
    yield f"{_at(record)} {record['type']}: {values}"


_RECORDS: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "run_started": _start,
    "round_finished": _round,
    "call_finished": _call,
    "run_finished": _end,
    "round_started": lambda record: iter(()),
    "tokens_counted": lambda record: iter(()),
    "call_started": lambda record: iter((f"{_at(record)} {record.get('name')} starts",)),
}
