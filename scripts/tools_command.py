"""`laploop tools`: what the agent can do, as its own registry tells it. It loads no model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from .folder_config import with_folder
from .options import collect, flag, source_options

if TYPE_CHECKING:
    from laploop.models.schemas.schema import Finding

STATUSES = {
    "enforced": "while the model writes a call, it cannot write anything that breaks these rules.",
    "validated": "checked when a call is whole; what breaks them is told to the model, and the tool does not run.",
    "rejected": "these make no valid schema; no agent is built with such a tool.",
}


@click.command(context_settings={"max_content_width": 100})
@flag("--json", "as_json", is_flag=True, default=False, help="Print the tools as JSON, in OpenAI form.")
@source_options
@click.pass_context
def tools(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """List the tools that ask and chat have here, what of their schemas a call cannot break, and advice.

    Advice is on words that small models stumble over. For programs, --json gives the tools as OpenAI's API has them,
    and what holds for each keyword of their schemas:

    \b
    [{"type": "function", "function": {"name": "get_weather", …},
      "schema_report": [{"pointer": "/properties/city", "keyword": "type", "status": "enforced"}, …], …}, …]
    """
    from laploop.models import schema_report
    from laploop.tools.description_lint import lint_description

    from .loading import chosen_tools
    from .visible import clean, json_text

    chosen = chosen_tools(with_folder(collect(ctx, values)))
    found = [(tool, schema_report(tool.parameters)) for tool in chosen]
    if as_json:
        click.echo(
            json_text(
                [
                    {
                        **tool.to_openai(),
                        "effects": sorted(tool.effects),
                        "group": tool.group,
                        "schema_report": [finding._asdict() for finding in report],
                        "advice": [advice._asdict() for advice in lint_description(tool)],
                    }
                    for tool, report in found
                ]
            )
        )
        return
    for tool, report in found:
        names = ", ".join(tool.parameters.get("properties", {}))
        click.echo(f"{tool.name}({names})  [{', '.join(sorted(tool.effects))}]")
        click.echo(f"    {clean(' '.join(tool.description.split()))}")
        for status in STATUSES:
            if places := _places(report, status):
                click.echo(f"    {status}: {clean(places)}")
        for advice in lint_description(tool):
            where = f"{advice.place}: " if advice.place else ""
            click.echo(f"    advice: {clean(f'{where}{advice.problem}; {advice.suggestion}')}")
    if found:
        click.echo()
        for status, meaning in STATUSES.items():
            click.echo(f"{status}: {meaning}")


def _places(report: Iterable[Finding], status: str) -> str:
    """The keywords of one status by the place where they stand: "type, required of the whole; type of city"."""
    by_place: dict[str, list[str]] = {}
    for finding in report:
        if finding.status == status:
            place = finding.pointer.removeprefix("/properties/").replace("/properties/", "/") or "the whole"
            by_place.setdefault(place, []).append(finding.keyword)
    return "; ".join(f"{', '.join(keywords)} of {place}" for place, keywords in by_place.items())
