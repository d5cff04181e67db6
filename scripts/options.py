"""The flags that several sub-commands share, and what they stand for. Names follow llama.cpp where it has
one.

Every flag has a variable (`--ctx-size` is LAPLOOP_CTX_SIZE) that the flag beats; a flag that is not set
leaves the default of the model or the engine. This module imports neither: values are handed on as they are,
and checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_MODEL = "qwen3-1.7b"
MAX_THREADS = 512  # ggml.h, GGML_MAX_N_THREADS; OpenMP ends the process if it cannot start so many
MAX_SEED = 2**32 - 1  # llama.h: a uint32_t; a larger one would be another seed than the one that was asked for
EFFECTS = ("read", "network", "write", "irreversible")
RULES = ("auto", "ask", "deny")
KV_TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]


class UsageFault(click.UsageError):
    """Wrong usage that we found ourselves; its message names the way out."""


def flag(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option whose variable is LAPLOOP_ and the long name."""
    long_name = next(n for n in names if n.startswith("--")).split("/")[0]
    variable = "LAPLOOP_" + long_name.lstrip("-").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


class Whole(click.IntRange):
    """A whole number; click's own name, "integer range", reads badly in "'x' is not a valid …"."""

    name = "integer"


class Number(click.FloatRange):
    """A number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert, and refuse what no range can hold: nan."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def rules_of(value: str) -> dict[str, str]:
    """Effects of tools, each with a rule, out of "network=ask,write=auto".

    Raises:
        BadParameter: what is not known, or is named twice.
    """
    rules: dict[str, str] = {}
    for part in value.split(","):
        effect, _, rule = (side.strip() for side in part.partition("="))
        if effect not in EFFECTS or rule not in RULES or effect in rules:
            raise click.BadParameter(
                f"{part.strip()!r} is not one of {', '.join(EFFECTS)}, each once, with one of {', '.join(RULES)}; "
                "e.g. network=ask,write=auto."
            )
        rules[effect] = rule
    return rules


_MODEL = [
    flag(
        "-m",
        "--model",
        metavar="MODEL",
        help=f"Short name, path, or hf:owner/repo[:quant]. [{DEFAULT_MODEL}]",
    ),
    flag("-hf", "--hf-repo", metavar="REPO", help="A repository on Hugging Face: owner/repo[:quant]."),
    flag(
        "-c", "--ctx-size", type=Whole(min=0), help="Context length in tokens; 0: the model's own. [8192, or what fits]"
    ),
    flag("-t", "--threads", type=Whole(min=1, max=MAX_THREADS), help="CPU threads."),
    flag("-b", "--batch-size", type=Whole(min=1), help="Most tokens in a batch."),
    flag("-ub", "--ubatch-size", type=Whole(min=1), help="Most tokens computed at once."),
    flag("-ngl", "--gpu-layers", type=Whole(min=0), help="Layers on the GPU. [all that the build can]"),
    flag("-fa", "--flash-attn", type=click.Choice(["on", "off", "auto"]), help="Flash attention."),
    flag("-ctk", "--cache-type-k", type=click.Choice(KV_TYPES), help="Type of the K cache."),
    flag("-ctv", "--cache-type-v", type=click.Choice(KV_TYPES), help="Type of the V cache."),
    flag(
        "--draft-max",
        "--draft",
        type=Whole(min=0),
        help="Most tokens drafted from the context; 0: none. [15, where it pays]",
    ),
    flag(
        "--prefix-cache",
        type=Whole(min=0),
        metavar="MB",
        help="Most megabytes of saved system prompts on disk; 0: none are saved or loaded. [2000]",
    ),
    flag("--offline", is_flag=True, default=False, help="Never use the network to find a model."),
]
_SAMPLING = [
    flag(
        "-n",
        "--n-predict",
        type=Whole(min=1),
        help="Most tokens of one reply, thinking not counted.",
    ),
    flag("-s", "--seed", type=Whole(min=0, max=MAX_SEED), help="Seed of the sampling."),
    flag("--temp", type=Number(min=0), help="Temperature; 0 is greedy."),
    flag("--top-k", type=Whole(min=0), help="Keep the k likeliest tokens; 0: all."),
    flag("--top-p", type=Number(min=0, max=1, min_open=True), help="Keep this share of probability."),
    flag("--min-p", type=Number(min=0, max=1), help="Drop tokens below this share of the likeliest."),
    flag("--reasoning", type=click.Choice(["on", "off", "auto"]), default="auto", help="Thinking. [auto]"),
    flag(
        "--reasoning-budget",
        type=Whole(min=-1),
        default=2048,
        help="Most tokens of one thought; -1: no limit. [2048]",
    ),
]
_SOURCES = [
    flag(
        "--root",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="The folder that the file tools may read. [the current one]",
    ),
    flag("-T", "--tool", multiple=True, metavar="SOURCE", help="More tools: module:function, module, or file.py."),
    flag("--write", is_flag=True, default=False, help="Tools that write files in that folder; each call asks first."),
    flag(
        "--db",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A SQLite file to ask, read only.",
    ),
    flag(
        "--docs", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A folder of documents to search."
    ),
    flag(
        "--mcp",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Tools of MCP servers: a file with mcpServers as JSON.",
    ),
]
_TOOLS = [
    flag("--max-rounds", type=Whole(min=1), default=5, help="Most tool rounds per question. [5]"),
    flag("--max-calls", type=Whole(min=1), help="Most calls per question. [any number]"),
    flag("--timeout", type=Number(min=0, min_open=True), metavar="SECONDS", help="Most seconds per question."),
    flag(
        "--approve",
        type=rules_of,
        metavar="EFFECT=RULE,…",
        help="Which calls run (auto), wait for your yes (ask), or never run (deny). "
        "[reading and the network run, the rest asks]",
    ),
    *_SOURCES,
    flag("--no-tools", is_flag=True, default=False, help="Ask the model alone."),
    flag("--no-trace", is_flag=True, default=False, help="Write no trace of the run (laploop trace lists them)."),
]


@dataclass(frozen=True, slots=True)
class Options:
    """The shared flags, as given; None: not set."""

    model: str | None = None
    hf_repo: str | None = None
    ctx_size: int | None = None
    threads: int | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    gpu_layers: int | None = None
    flash_attn: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    prefix_cache: int | None = None
    draft_max: int | None = None
    offline: bool = False
    n_predict: int | None = None
    seed: int | None = None
    temp: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    reasoning: str = "auto"
    reasoning_budget: int = 2048
    max_rounds: int = 5
    max_calls: int | None = None
    timeout: float | None = None
    approve: Mapping[str, str] | None = None
    root: Path | None = None
    tool: tuple[str, ...] = ()
    write: bool = False
    db: tuple[Path, ...] = ()
    docs: Path | None = None
    mcp: Path | None = None
    no_tools: bool = False
    no_trace: bool = False
    folder: Path | None = None  # of a trusted laploop.toml, which is relative to it, and
    servers: Mapping[str, Any] | None = None  # the MCP servers that it names

    @property
    def spec(self) -> str:
        """The model as resolve_model takes it."""
        if self.hf_repo is not None:
            return f"hf:{self.hf_repo.removeprefix('hf:')}"
        return DEFAULT_MODEL if self.model is None else self.model

    def engine_settings(self) -> dict[str, Any]:
        """Arguments of EngineConfig; only what was set."""
        values = {
            "n_ctx": self.ctx_size,
            "n_threads": self.threads,
            "n_batch": self.batch_size,
            "n_ubatch": self.ubatch_size,
            "n_gpu_layers": self.gpu_layers,
            "flash_attn": self.flash_attn,
            "type_k": self.cache_type_k,
            "type_v": self.cache_type_v,
            "prefix_cache_bytes": None if self.prefix_cache is None else self.prefix_cache * 1_000_000,
            "draft_max": self.draft_max,
        }
        return {k: v for k, v in values.items() if v is not None}

    def agent_settings(self) -> dict[str, Any]:
        """Arguments of Agent: sampling."""
        return {
            "max_tokens": self.n_predict,
            "seed": self.seed,
            "temperature": self.temp,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "enable_thinking": {"on": True, "off": False, "auto": None}[self.reasoning],
            "thinking_budget": None if self.reasoning_budget < 0 else self.reasoning_budget,
        }

    def limits(self) -> dict[str, Any]:
        """Arguments of Limits."""
        return {"max_rounds": self.max_rounds, "max_calls": self.max_calls, "timeout_s": self.timeout}


def shared_options(*, tools: bool = True) -> Callable[[F], F]:
    """Give a command the shared flags; `collect` turns their values into Options."""

    def decorate(command: F) -> F:
        for option in reversed([*_MODEL, *_SAMPLING, *(_TOOLS if tools else ())]):
            command = option(command)
        return command

    return decorate


def source_options(command: F) -> F:
    """Give a command the flags that say where tools come from."""
    for option in reversed(_SOURCES):
        command = option(command)
    return command


def collect(ctx: click.Context, values: dict[str, Any]) -> Options:
    """Options out of a command's parameters.

    -m and -hf both name the model: as flags they exclude each other; a flag beats the other one's variable.
    """
    known = {f.name for f in fields(Options)}
    given = {k: v for k, v in values.items() if k in known}
    if given.get("model") and given.get("hf_repo"):
        typed = [n for n in ("model", "hf_repo") if _is_flag(ctx, n)]
        if len(typed) != 1:
            both = "-m and -hf" if typed else "the variables LAPLOOP_MODEL and LAPLOOP_HF_REPO"
            raise UsageFault(f"{both} both name the model; give one of them")
        given["hf_repo" if typed == ["model"] else "model"] = None
    return Options(**given)


def _is_flag(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
