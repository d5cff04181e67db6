"""`laploop bench`: how fast this machine is, as llama-bench tells it, and two such files compared.

Reads flags, finds models, prints. How tests are run and written: laploop.scripts.bench.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import background
from .bench.formats import FORMATS
from .bench.plan import Plan
from .bench.ranges import numbers, pair
from .cache_command import as_json_flag
from .options import DEFAULT_MODEL, KV_TYPES, MAX_THREADS, Number, UsageFault, Whole, flag

if TYPE_CHECKING:
    from .bench.compare import Comparison
    from .bench.result import Result

    _ParamType = click.ParamType[list[Any]]
else:
    _ParamType = click.ParamType


_OWN_SPINS = "300000"  # libgomp, env.c: the default where no policy is set


class Listed(_ParamType):
    """What llama-bench takes for a list: several values by commas, ranges, or the flag several times."""

    envvar_list_splitter = "\0"  # the whole variable is one value; a path may hold spaces

    def __init__(self, name: str, read: Callable[[str], list[Any]]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read one value of the flag."""
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def _list_of_numbers(least: int = 0, most: int = 2**31 - 1) -> Listed:
    return Listed("list", lambda text: numbers(text, least=least, most=most))


def _list_of(choices: list[str], short: dict[str, str] | None = None) -> Listed:
    def read(text: str) -> list[str]:
        values = [(short or {}).get(value, value) for value in text.lower().split(",")]
        for value in values:
            if value not in choices:
                raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return values

    return Listed("list", read)


def _models(text: str) -> list[str]:
    return [text] if Path(text).exists() else text.split(",")


_FLASH = _list_of(["on", "off", "auto"], {"1": "on", "0": "off", "-1": "auto"})
_LISTS: list[tuple[tuple[str, ...], Listed, str]] = [
    (("-p", "--n-prompt"), _list_of_numbers(), "Tokens of a prompt. [512]"),
    (("-n", "--n-gen"), _list_of_numbers(), "Tokens generated. [128]"),
    (
        ("-pg", "--prompt-gen", "n_pg"),
        Listed("PP,TG", lambda text: [pair(text)]),
        "A prompt and what is generated behind it, timed together.",
    ),
    (("-d", "--n-depth"), _list_of_numbers(), "Tokens that are in the context before. [0]"),
    (("-b", "--batch-size", "n_batch"), _list_of_numbers(1), "Most tokens in a batch. [2048]"),
    (("-ub", "--ubatch-size", "n_ubatch"), _list_of_numbers(1), "Most tokens computed at once. [512]"),
    (("-ctk", "--cache-type-k", "type_k"), _list_of(KV_TYPES), "Type of the K cache. [f16]"),
    (("-ctv", "--cache-type-v", "type_v"), _list_of(KV_TYPES), "Type of the V cache. [f16]"),
    (("-t", "--threads", "n_threads"), _list_of_numbers(1, MAX_THREADS), "CPU threads. [what the machine allows]"),
    (
        ("-ngl", "--gpu-layers", "--n-gpu-layers", "n_gpu_layers"),
        _list_of_numbers(-1),
        "Layers on the GPU. [-1: all that the build can]",
    ),
    (("-fa", "--flash-attn"), _FLASH, "Flash attention: on, off, auto. [auto]"),
]


def _list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for names, kind, text in reversed(_LISTS):
        command = flag(*names, type=kind, multiple=True, metavar=kind.name.upper(), help=text)(command)
    return command


@click.group(invoke_without_command=True, context_settings={"max_content_width": 100})
@flag("-m", "--model", type=Listed("model", _models), multiple=True, help=f"A model, as for ask. [{DEFAULT_MODEL}]")
@flag(
    "-hf",
    "--hf-repo",
    type=Listed("repo", lambda text: text.split(",")),
    multiple=True,
    help="A repository on Hugging Face.",
)
@flag(
    "--synthetic",
    type=Listed("name:quant", lambda text: text.split(",")),
    multiple=True,
    help="A model of this shape with random weights, such as qwen3-1.7b:q4_k_m: as fast, and nothing is fetched.",
)
@_list_options
@flag("-r", "--repetitions", type=Whole(min=1, max=1000), default=5, help="Samples of each test. [5]")
@flag("-o", "--output", type=click.Choice(FORMATS), default="md", help="What is printed on standard output. [md]")
@flag("-oe", "--output-err", type=click.Choice(FORMATS), default="none", help="What on standard error. [none]")
@flag("--delay", type=Number(min=0), default=0.0, metavar="SECONDS", help="Rest before each sample. [0]")
@flag("--no-warmup", is_flag=True, default=False, help="Run no test untimed first.")
@flag("--no-interleave", is_flag=True, default=False, help="All samples of a test at once, as llama-bench does.")
@flag("--progress", is_flag=True, default=False, help="Say on standard error what runs.")
@flag("--offline", is_flag=True, default=False, help="Never use the network to find a model.")
@click.pass_context
def bench(ctx: click.Context, /, **values: Any) -> None:
    """Measure tokens per second as llama-bench does: same tests, names, fields and method.

    A list is several values by commas, a range (1-8, 256-1024+256, 1-16*2), or the flag several times; each combination
    is a test. The tests take turns: first sample of all, second sample of all, …
    """
    if ctx.invoked_subcommand is not None:
        typed = [name for name in values if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
        if typed:
            raise UsageFault(f"flags of a measurement have no meaning for bench {ctx.invoked_subcommand}")
        return
    results = _measured(values)
    from .bench.formats import written

    plan = _plan(values)
    click.echo(written(values["output"], results, plan), nl=False)
    click.echo(written(values["output_err"], results, plan), nl=False, err=True)


def _plan(values: dict[str, Any]) -> Plan:
    lists = {field.name: tuple(item for part in values[field.name] for item in part) for field in fields(Plan)}
    return Plan(**{name: items for name, items in lists.items() if items})


def _measured(values: dict[str, Any]) -> list[Result]:
    from .bench.measure import Method, measure

    plan = _plan(values)
    if not any(plan.n_prompt) and not any(plan.n_gen) and not any(map(any, plan.n_pg)):
        raise UsageFault("no test is left: -p, -n and -pg are all 0")
    method = Method(values["repetitions"], values["delay"], not values["no_warmup"], not values["no_interleave"])
    say = _say if values["progress"] else _say_nothing
    _wait_as_llama_bench()
    results: list[Result] = []
    for model in _models_of(values):
        with model as (path, name):
            results += background.call(partial(measure, path, name, plan, method, say))
    return results


def _wait_as_llama_bench() -> None:
    """Let threads that wait spin as long as OpenMP's own default has it, as in llama-bench; laploop's engine lets them
    sleep sooner, which costs some percent on a quiet machine. Once the library is loaded it is too late, and who sets a
    variable is obeyed."""
    is_set = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    if not is_set and "laploop.engine.native" not in sys.modules:
        os.environ["GOMP_SPINCOUNT"] = _OWN_SPINS


def _say(text: str) -> None:
    from .visible import one_line

    click.echo(f"laploop bench: {one_line(text)}", err=True)


def _say_nothing(_: str) -> None:
    pass


def _models_of(values: dict[str, Any]) -> list[AbstractContextManager[tuple[Path, str]]]:
    """The models that the flags name; each is a file while its `with` block runs."""
    named, repositories, synthetic = (
        [item for part in values[name] for item in part] for name in ("model", "hf_repo", "synthetic")
    )
    specs = [*named, *(f"hf:{name.removeprefix('hf:')}" for name in repositories)]
    if not specs and not synthetic:
        specs = [DEFAULT_MODEL]
    return [*(_found(spec, values["offline"]) for spec in specs), *(_written(spec) for spec in synthetic)]


@contextmanager
def _found(spec: str, offline: bool) -> Iterator[tuple[Path, str]]:
    from laploop.models import resolve_model

    from .progress import progress_printer

    with progress_printer() as progress:
        resolved = background.call(lambda: resolve_model(spec, offline=offline, progress=progress))
    yield resolved.path, str(resolved.path)


@contextmanager
def _written(spec: str) -> Iterator[tuple[Path, str]]:
    """Write it among the caches, for as long as it is measured."""
    from laploop.engine.folders import cache_dir
    from laploop.models.files.synthetic import synthetic_header, write_synthetic

    size_bytes = synthetic_header(spec).size_bytes  # refuses what is not known before a folder is made
    folder = cache_dir() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own:
        if size_bytes > 1e9 and sys.stderr.isatty():
            click.echo(f"Writing {size_bytes / 1e9:.1f} GB of random weights …", err=True)
        path = Path(own) / "synthetic.gguf"
        background.call(lambda: write_synthetic(path, spec))
        yield path, f"synthetic {spec.lower()}"


@bench.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@as_json_flag
def compare_files(first: Path, second: Path, as_json: bool) -> None:
    """How many times as fast SECOND is as FIRST: files of -o json or -o jsonl, llama-bench's too."""
    from .bench.compare import BadResultsError, compare, read_results
    from .visible import json_text

    try:
        found = compare(read_results(first), read_results(second))
    except BadResultsError as error:
        raise click.ClickException(str(error)) from None
    if not found.rows:
        raise click.ClickException(
            f"no test is in both files: {first} has {', '.join(found.only_first)}; "
            f"{second} has {', '.join(found.only_second)}"
        )
    click.echo(json_text(_as_json(found)) if as_json else _as_table(found))


def _as_json(found: Comparison) -> dict[str, Any]:
    return {
        "rows": [
            {"test": name, "first_ts": first, "second_ts": second, **interval._asdict()}
            for name, (first, second, interval) in found.rows.items()
        ],
        "differences": {name: list(both) for name, both in found.differences.items()},
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
    }


def _as_table(found: Comparison) -> str:
    from .visible import one_line

    lines = [f"{one_line(name)}: {one_line(a)} → {one_line(b)}" for name, (a, b) in found.differences.items()]
    lines += [""] * bool(lines)
    width = max(20, *(len(name) for name in found.rows))
    lines.append(f"| {'test':<{width}} | {'first t/s':>10} | {'second t/s':>10} | {'ratio':>7} | {'interval':>24} |")
    lines.append(f"| {'-' * width} | {'-' * 9}: | {'-' * 9}: | {'-' * 6}: | {'-' * 23}: |")
    for name, (first, second, (ratio, low, high, level)) in found.rows.items():
        interval = f"{low:.3f} to {high:.3f} ({level:.0%})"
        lines.append(
            f"| {one_line(name):<{width}} | {first:>10.2f} | {second:>10.2f} | {ratio:>7.3f} | {interval:>24} |"
        )
    lines += [f"only in the first: {one_line(name)}" for name in found.only_first]
    lines += [f"only in the second: {one_line(name)}" for name in found.only_second]
    return "\n".join(lines)
