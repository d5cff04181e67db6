"""What is said of wrong usage: click's own words, where they do not mislead. It runs nothing."""

from __future__ import annotations

import difflib

import click
from click.core import ParameterSource

from .options import UsageFault


def usage_message(error: click.UsageError) -> str:
    """One line: what was wrong, and where the valid choices stand; faults of our own say that themselves."""
    if error.ctx is None or isinstance(error, UsageFault):
        return error.format_message()
    return f"{_fault(error, error.ctx)} See {error.ctx.command_path} --help."


def _fault(error: click.UsageError, ctx: click.Context) -> str:
    if isinstance(error, click.NoSuchOption):
        near = _near(error.option_name, [name for p in ctx.command.get_params(ctx) for name in p.opts])
        return f"There is no option {error.option_name}." + (f" Did you mean {near}?" if near else "")
    if isinstance(error, click.BadParameter) and (variable := variable_of(error.param, ctx)):
        error.param_hint = f"the variable {variable}"
    # click lists "" among what a switch takes
    message = error.format_message().replace("Recognized values: , ", "Recognized values: ")
    return message if message.endswith(".") else f"{message}."


def variable_of(parameter: click.Parameter | None, ctx: click.Context) -> str | None:
    """The environment variable that a parameter's value came from; None where it came from elsewhere."""
    if parameter is None or parameter.name is None or not isinstance(parameter.envvar, str):
        return None
    return parameter.envvar if ctx.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT else None


def _near(name: str, known: list[str]) -> str:
    """The one name that was probably meant: that begins so, or is spelled nearly so; "" for none."""
    begun = [other for other in known if len(name) > len("--x") and other.startswith(name)]
    return next(iter(begun or difflib.get_close_matches(name, known, n=1, cutoff=0.75)), "")
