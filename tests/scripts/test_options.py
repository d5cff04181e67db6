"""The shared flags: each has a variable, each reaches the engine or the agent, none is lost."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from laploop.agent import Agent, Approvals, Limits, approval
from laploop.engine import EngineConfig
from laploop.engine.config import KV_TYPES
from laploop.models import ScriptedModel
from laploop.scripts import options
from laploop.scripts.ask import ask, make_agent
from laploop.scripts.chat import chat
from laploop.scripts.demo import demo

EVERY_FLAG = [
    "-m",
    "x",
    "-c",
    "1024",
    "-t",
    "3",
    "-b",
    "128",
    "-ub",
    "64",
    "-ngl",
    "7",
    "-fa",
    "on",
    "-ctk",
    "q8_0",
    "-ctv",
    "q4_0",
    "--prefix-cache",
    "500",
    "--offline",
    "-n",
    "99",
    "-s",
    "5",
    "--temp",
    "0.5",
    "--top-k",
    "7",
    "--top-p",
    "0.9",
    "--min-p",
    "0.1",
    "--reasoning",
    "off",
    "--reasoning-budget",
    "300",
    "--max-rounds",
    "2",
    "--max-calls",
    "6",
    "--timeout",
    "1.5",
    "--approve",
    "network=ask, write=auto",
    "--no-tools",
    "--no-trace",
]


def collected(*args: str, env: dict[str, str] | None = None) -> options.Options:
    """What a command with the shared flags gets."""
    seen: list[options.Options] = []

    @click.command()
    @options.shared_options()
    @click.pass_context
    def command(ctx: click.Context, **values: Any) -> None:
        seen.append(options.collect(ctx, values))

    result = CliRunner().invoke(command, list(args), env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_every_flag_reaches_the_engine_or_the_agent() -> None:
    given = collected(*EVERY_FLAG)
    assert given.spec == "x"
    assert given.engine_settings() == {
        "n_ctx": 1024,
        "n_threads": 3,
        "n_batch": 128,
        "n_ubatch": 64,
        "n_gpu_layers": 7,
        "flash_attn": "on",
        "type_k": "q8_0",
        "type_v": "q4_0",
        "prefix_cache_bytes": 500_000_000,
    }
    assert given.agent_settings() == {
        "max_tokens": 99,
        "seed": 5,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "enable_thinking": False,
        "thinking_budget": 300,
    }
    assert collected("--reasoning-budget", "-1").agent_settings()["thinking_budget"] is None
    assert given.limits() == {"max_rounds": 2, "max_calls": 6, "timeout_s": 1.5}
    assert given.approve == {"network": "ask", "write": "auto"}
    assert (given.offline, given.no_tools, given.no_trace) == (True, True, True)
    EngineConfig(**given.engine_settings())


def test_the_settings_arrive_in_the_request() -> None:
    model = ScriptedModel(["ok"])
    agent = make_agent(model, [], collected(*EVERY_FLAG))
    agent.run("hi")
    request = model.requests[0]
    assert (request.max_tokens, request.seed, request.temperature, request.enable_thinking) == (
        99,
        5,
        0.5,
        False,
    )
    assert (request.top_k, request.top_p, request.min_p) == (7, 0.9, 0.1)
    assert agent.settings.limits == Limits(max_rounds=2, max_calls=6, timeout_s=1.5)
    assert (agent.approvals.policy, agent.approvals.ask) == ({"network": "ask", "write": "auto"}, None)


def test_nothing_set_leaves_every_default_alone() -> None:
    given = collected()
    assert given.spec == options.DEFAULT_MODEL == "qwen3-1.7b"
    assert given.engine_settings() == {}
    assert {k for k, v in given.agent_settings().items() if v is not None} == {"thinking_budget"}
    assert given.limits() == {f.name: f.default for f in dataclasses.fields(Limits) if f.name in given.limits()}


def test_the_names_are_the_engines_and_the_agents() -> None:
    given = collected(*EVERY_FLAG)
    assert set(given.engine_settings()) <= {f.name for f in dataclasses.fields(EngineConfig)}
    assert set(given.agent_settings()) <= set(inspect.signature(Agent).parameters)
    assert set(given.limits()) <= {f.name for f in dataclasses.fields(Limits)}
    assert list(KV_TYPES) == options.KV_TYPES
    assert approval.EFFECTS == options.EFFECTS
    for effect, rule in itertools.product(options.EFFECTS, options.RULES):
        assert Approvals({effect: rule}).rule(frozenset({effect})) == rule


@pytest.mark.parametrize("written", ["yes", "write", "write=yes", "fly=ask", "write=ask,write=auto", "", "write=ask,"])
def test_rules_that_cannot_be_are_refused(written: str) -> None:
    """What was meant for one effect must not let another one through."""
    result = CliRunner().invoke(_failing(), ["--approve", written])
    assert result.exit_code == 2
    assert "irreversible" in result.output and "e.g. network=ask" in result.output


@pytest.mark.parametrize("command", [ask, chat, demo])
def test_every_option_has_a_variable_of_its_own(command: click.Command) -> None:
    variables = [p.envvar for p in command.params if isinstance(p, click.Option)]
    assert all(isinstance(v, str) and v.startswith("LAPLOOP_") for v in variables)
    assert len(set(variables)) == len(variables)


def test_variables_work_and_flags_win(tmp_path: Path) -> None:
    env = {
        "LAPLOOP_MODEL": "m",
        "LAPLOOP_CTX_SIZE": "512",
        "LAPLOOP_TEMP": "0",
        "LAPLOOP_OFFLINE": "1",
        "LAPLOOP_ROOT": str(tmp_path),
        "LAPLOOP_REASONING": "on",
    }
    from_variables = collected(env=env)
    assert (from_variables.spec, from_variables.ctx_size, from_variables.temp) == ("m", 512, 0.0)
    assert (from_variables.offline, from_variables.root, from_variables.reasoning) == (True, tmp_path, "on")
    assert collected("-c", "64", env=env).ctx_size == 64


@pytest.mark.parametrize("written", ["owner/repo:Q4_K_M", "hf:owner/repo:Q4_K_M"])
def test_hf_names_a_repository(written: str) -> None:
    assert collected("-hf", written).spec == "hf:owner/repo:Q4_K_M"


def test_model_and_repository_exclude_each_other_where_neither_is_a_flag_alone() -> None:
    both = {"LAPLOOP_MODEL": "m", "LAPLOOP_HF_REPO": "o/r"}
    assert collected("-m", "n", env=both).spec == "n"
    assert collected("-hf", "p/q", env=both).spec == "hf:p/q"
    for args, env in ((["-m", "a", "-hf", "b/c"], {}), ([], both)):
        with pytest.raises(click.UsageError, match="give one of them"):
            CliRunner().invoke(_failing(), args, env=env, catch_exceptions=False, standalone_mode=False)


def _failing() -> click.Command:
    @click.command()
    @options.shared_options()
    @click.pass_context
    def command(ctx: click.Context, **values: Any) -> None:
        options.collect(ctx, values)

    return command


@pytest.mark.parametrize("command", [ask, chat, demo])
def test_every_flag_stands_in_the_docs(command: click.Command) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in parameter.opts:
                assert f"`{name}`" in page, name
