"""Asks on the terminal whether a call may run, and shows exactly what would be run. It decides nothing itself.

Where there is no terminal nobody is asked, and what needs a yes is denied (laploop.agent.approval).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from . import background
from .visible import clean, one_line

if TYPE_CHECKING:
    from laploop.agent import ApprovalRequest, Approvals, Decision

CHOICES = "[y]es, [n]o, [e]dit the arguments, [a]lways, ne[v]er: "
PATTERN = "for arguments like (* is anything, {} any arguments): "
ReadLine = Callable[[str, str], str]  # prompt, what stands there already → the line; EOFError, KeyboardInterrupt


def make_approvals(rules: Mapping[str, str] | None = None) -> Approvals:
    """Approvals that ask on the terminal, where there is one; `rules` are those of --approve."""
    from laploop.agent import Approvals

    has_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return Approvals(rules or {}, ApprovalPrompt(read_line) if has_terminal else None)


class ApprovalPrompt:
    """Answers requests by asking the user, in the main thread, whatever thread it is called in."""

    def __init__(self, read: ReadLine) -> None:
        self._read = read

    def __call__(self, request: ApprovalRequest) -> Decision:
        """The user's decision; no, where the terminal is not (or no longer) to be asked."""
        from laploop.agent import Decision

        try:
            return background.in_main(lambda: self.ask(request))
        except background.NobodyWaitsError:
            return Decision(False)

    def ask(self, request: ApprovalRequest) -> Decision:
        """Show the call and ask until there is an answer; the end of input is a no."""
        from laploop.agent import Decision

        click.echo(call_to_approve(request), err=True)
        try:
            return self._answer(request)
        except EOFError:
            return Decision(False)

    def _answer(self, request: ApprovalRequest) -> Decision:
        from laploop.agent import Decision

        while True:
            answer = self._read(CHOICES, "").strip().lower()
            if answer in ("y", "yes"):
                return Decision(True)
            if answer in ("n", "no"):
                return Decision(False)
            if answer in ("e", "edit"):
                return Decision(True, arguments=self._object("arguments: ", request.arguments))
            if answer in ("a", "always", "v", "never"):
                return Decision(answer[0] == "a", remember=self._pattern(request))

    def _pattern(self, request: ApprovalRequest) -> dict[str, str]:
        from laploop.agent import exact_pattern

        while True:
            pattern = self._object(PATTERN, exact_pattern(request.arguments))
            strange = [name for name in pattern if name not in request.arguments]
            if not strange and all(isinstance(wanted, str) for wanted in pattern.values()):
                return pattern
            click.echo(f"  patterns are texts for {', '.join(request.arguments) or 'no argument'}", err=True)

    def _object(self, prompt: str, value: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps(dict(value), ensure_ascii=False)
        while True:
            line = self._read(prompt, line)
            try:
                read = json.loads(line)
            except ValueError as error:
                click.echo(f"  not JSON: {error}", err=True)
                continue
            if isinstance(read, dict):
                return read
            click.echo("  one JSON object is needed", err=True)


def as_lines(approvals: Approvals) -> list[str]:
    """The rules, and what was answered for good."""
    from laploop.agent.approval import EFFECTS

    lines = [f"{effect}: {approvals.rule(frozenset({effect}))}" for effect in EFFECTS]
    if approvals.ask is None:
        lines.append("There is no terminal: what is to be asked about is denied.")
    for name, pattern, allowed in approvals.answers():
        where = clean(json.dumps(dict(pattern), ensure_ascii=False)) if pattern else "any arguments"
        lines.append(f"{'always' if allowed else 'never'}: {one_line(name)} with {where}")
    return lines


def call_to_approve(request: ApprovalRequest) -> str:
    """The call as it would be run: every argument whole, control characters visible."""
    lines = [f"? {one_line(request.name)} ({', '.join(sorted(request.effects))}) waits for your yes:"]
    lines += [
        f"    {one_line(name)} = {clean(json.dumps(value, ensure_ascii=False))}"
        for name, value in request.arguments.items()
    ]
    lines += [f"  | {clean(line)}" for line in request.preview.splitlines()]
    return "\n".join([*lines, f"  {clean(request.problem)}"] if request.problem else lines)


def read_line(prompt: str, default: str) -> str:
    """A line from the terminal, on stderr: stdout may be a pipe."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
    return session.prompt(f"  {prompt}", default=default)
