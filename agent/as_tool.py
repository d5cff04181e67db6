"""An agent as a tool of another: a question in, its answer out. It knows nothing of the other agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laploop.tools import Tool, ToolResult

if TYPE_CHECKING:
    from .agent import Agent

_SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "A whole question, with all it needs"}},
    "required": ["question"],
    "additionalProperties": False,
}


def agent_tool(agent: Agent, name: str, description: str, timeout_s: float | None) -> Tool:
    """The tool; see `Agent.as_tool`. A run inside a tool call ends with that call (`Stop`)."""

    def ask(question: str) -> ToolResult:
        result = agent.run(question)
        return ToolResult(
            result.answer or f"{name} gave no answer: {result.stop_reason}",
            is_error=not result.answered,
            value=result.answer,
            notes=(f"{name}: {result.rounds} rounds, stop_reason {result.stop_reason}",),
        )

    rules = {tool.effects: agent.approvals.rule(tool.effects) for tool in agent.tools}
    unasked = {effect for effects, rule in rules.items() if rule == "auto" for effect in effects}
    return Tool(name, description, _SCHEMA, ask, effects=frozenset(unasked or {"read"}), timeout_s=timeout_s)
