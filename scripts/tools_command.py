"""`laploop tools`: what the agent can do, as its own registry tells it. It loads no model."""

from __future__ import annotations

import click

from .options import flag


@click.command(context_settings={"max_content_width": 100})
@flag("--json", "as_json", is_flag=True, default=False, help="Print the tools as JSON, in OpenAI form.")
def tools(as_json: bool) -> None:
    """List the built-in tools."""
    from laploop.tools import builtin_tools

    from .terminal import clean, json_text

    found = builtin_tools()
    if as_json:
        click.echo(json_text([{**t.to_openai(), "effects": sorted(t.effects), "group": t.group} for t in found]))
        return
    for tool in found:
        names = ", ".join(tool.parameters.get("properties", {}))
        click.echo(f"{tool.name}({names})  [{', '.join(sorted(tool.effects))}]")
        click.echo(f"    {clean(' '.join(tool.description.split()))}")
