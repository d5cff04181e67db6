"""The parts of a recorded run, playing their part again: model, tools, approvals and the clock. They know the records.

Each does what its records say at the moment when they say it, so that parallel calls end in the order in which they
ended, and time is over where it was over.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laploop.models import Model, ModelError
from laploop.models.requests.request import Request
from laploop.tools import Tool, ToolResult

from .approval import ApprovalRequest, Approvals, Decision
from .json_text import dumps
from .redaction import Redaction
from .stop import Stop
from .tokens import count_key

Record = Mapping[str, Any]

#: What differs from run to run although the same happened, or is compared in another record.
_VOLATILE = ("t_s", "seconds", "started_at", "usage", "timings", "settings", "system_prompt", "error", "notes")
_CALLS = ("call_started", "call_finished")
_WAIT_S = 0.02


def comparable(record: Record) -> dict[str, Any]:
    """What of a record is the same in each replay."""
    kept = {name: value for name, value in record.items() if name not in _VOLATILE}
    value: dict[str, Any] = json.loads(dumps(Redaction().value(kept)))
    return value


class RecordedStop(Stop):
    """Time is over, or the run cancelled, when the records say so."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""

    def say(self, reason: str) -> None:
        """Stop for this reason."""
        self._reason = reason

    @property
    def reason(self) -> str:
        """As in Stop."""
        return self._reason or super().reason

    def grant(self, seconds: float | None) -> None:
        """The final answer has as much time as it had."""
        self._reason, self.is_granted = "", True


class Script:
    """The records in order, and how far the replay has come. It is the replay's sink: each record that is added is
    compared with the one that was expected.

    Attributes:
        divergence: the place in `records`, the record there, and what came in its place; None while all is the same.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.all = list(records)
        self.records = [r for r in records if r["type"] != "tokens_counted"]
        self.at = 0
        self.divergence: tuple[int, Record | None, Record | None] | None = None
        self.stop = RecordedStop()
        self._met: set[int] = set()
        self._moved = threading.Condition()
        self._played: set[int] = set()

    # --- as a sink

    def write(self, record: Record) -> None:
        """Compare with what was recorded, and go on."""
        if record["type"] == "tokens_counted":
            return
        with self._moved:
            if self.divergence is None and not self.is_over:
                index = self._place_of(record)
                if comparable(self.records[index]) != comparable(record):
                    self.divergence = (index, self.records[index], record)
                self._met.add(index)
                while self.at in self._met:
                    self.at += 1
                if record["type"] != "round_started" and (reason := self._reason_now()):
                    self.stop.say(reason)
            self._moved.notify_all()

    def close(self) -> None:
        """Nothing is kept open."""

    def _place_of(self, record: Record) -> int:
        """Calls of one round may end in any order."""
        index = self.at
        while record["type"] in _CALLS and index < len(self.records) and self.records[index]["type"] in _CALLS:
            expected = self.records[index]
            if index not in self._met and all(expected[k] == record[k] for k in ("type", "call_id")):
                return index
            index += 1
        return self.at

    # --- what comes

    @property
    def is_over(self) -> bool:
        """Whether all that was recorded has happened again."""
        return self.at >= len(self.records)

    @property
    def next(self) -> Record:
        """The record that comes now; {} behind the last."""
        return {} if self.is_over else self.records[self.at]

    def is_stopped(self, record: Record) -> bool:
        """Whether the record tells that the whole run had to stop."""
        if record.get("type") == "guard_fired":
            return bool(record["guard"] == "timeout")
        return bool(record.get("type") == "run_finished" and record["stop_reason"] == "cancelled")

    def reason_after(self, index: int) -> str:
        """Why the run had to stop, where that is what the records from `index` on lead to before another reply."""
        for record in self.records[index:]:
            if self.is_stopped(record):
                return "timeout" if record["type"] == "guard_fired" else "cancelled"
            if record["type"] in ("round_started", "round_finished"):
                break
        return ""

    def _reason_now(self) -> str:
        follows = self.next
        was_given_up = follows.get("type") == "call_finished" and follows.get("fault") == "stopped"
        return self.reason_after(self.at) if was_given_up or self.is_stopped(follows) else ""

    def take(self, kind: str, **values: Any) -> tuple[int, Record] | None:
        """The first record of this type and with these values that nobody has played yet; from where the replay is."""
        with self._moved:
            for index in range(self.at, len(self.records)):
                record = self.records[index]
                fits = record["type"] == kind and all(record.get(k) == v for k, v in values.items())
                if fits and index not in self._played:
                    self._played.add(index)
                    return index, record
        return None

    def wait_for(self, index: int, given_up: threading.Event | None) -> None:
        """Wait until everything before the record has happened again, or nothing is as it was."""
        with self._moved:
            while self.divergence is None and self.at < index and not (given_up and given_up.is_set()):
                self._moved.wait(_WAIT_S)


class RecordedModel(Model):
    """Gives the recorded replies, whole, and counts tokens as the model did."""

    def __init__(self, script: Script) -> None:
        start = script.records[0]
        self.name = str(start["model"])
        self._script = script
        self._counts = {r["key"]: r["n"] for r in script.all if r["type"] == "tokens_counted"}
        self.n_ctx = start["settings"]["n_ctx"]
        if self._counts:
            self.count_tokens = self._count

    def _count(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> int:
        estimate = sum(len(dumps(dict(m))) for m in messages) // 4
        return int(self._counts.get(count_key(messages, bool(tools)), estimate))

    def _stream(self, request: Request) -> Iterator[dict[str, Any]]:
        return self._aside() if request.response_format else self._reply()

    def _aside(self) -> Iterator[dict[str, Any]]:
        if self._script.next.get("type") != "aside_finished":
            raise ModelError(str(self._script.next.get("detail") or "no summary was recorded"))
        record = self._script.next
        yield _chunk(self.name, {"content": record["content"]}, record, {})

    def _reply(self) -> Iterator[dict[str, Any]]:
        record = self._script.next
        if record.get("type") == "round_finished":
            message = record["message"]
            calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls") or ())]
            delta = {k: message.get(k) for k in ("role", "content", "reasoning_content") if message.get(k) is not None}
            extra = {k: record.get(k) for k in ("invalid_tool_calls", "raw_output", "prompt_sha256")}
            yield _chunk(self.name, {**delta, **({"tool_calls": calls} if calls else {})}, record, extra)
        elif reason := self._script.reason_after(self._script.at):
            end = next((r for r in self._script.records[self._script.at :] if r["type"] == "run_finished"), {})
            following = [r["type"] for r in self._script.records[self._script.at :]]
            text = end.get("answer") if "round_started" not in following and not end.get("answered") else ""
            yield _chunk(self.name, {"content": text or ""}, {}, {})
            self._script.stop.say(reason)
            yield _chunk(self.name, {}, {}, {})
        else:
            raise ModelError(str(record.get("message") or "the recorded run has no further reply"))


def _chunk(name: str, delta: Mapping[str, Any], record: Record, extra: Mapping[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "delta": dict(delta), "finish_reason": record.get("finish_reason"), **extra}
    costs = {k: record[k] for k in ("usage", "timings") if record.get(k)}
    return {"model": name, "choices": [choice], **costs}


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTool(Tool):
    """Gives the recorded results of its calls, each when its turn has come."""

    script: Script | None = None

    def invoke(self, arguments: Any, stop: threading.Event | None = None) -> ToolResult:
        """The recorded result; one that says so where there is none."""
        assert self.script is not None, "recorded_tools gives one"
        values = {"arguments": arguments} if isinstance(arguments, str) else {}
        taken = self.script.take("call_finished", name=self.name, executed=True, **values)
        if taken is None:
            return ToolResult(f"Not recorded: {self.name} was not called so.", is_error=True, fault="not_recorded")
        index, record = taken
        self.script.wait_for(index, stop)
        if record.get("fault") == "stopped" and self.script.reason_after(index) and stop is not None:
            stop.wait()
        content = record["content"]
        answered = [r for r in self.script.records if r["type"] == "approval_answered"]
        if any(r["call_id"] == record["call_id"] and r["arguments"] is not None for r in answered):
            content = content.partition("\n")[2]  # the loop says again that the arguments were changed
        return ToolResult(content, record["is_error"], notes=tuple(record["notes"]), fault=record.get("fault", ""))


def recorded_tools(script: Script) -> list[Tool]:
    """The tools of the run."""
    facts = script.records[0]["settings"]["tools"]
    tools: list[Tool] = []
    for entry in script.records[0]["tools"]:
        function = entry["function"]
        known = facts[function["name"]]
        tools.append(
            RecordedTool(
                function["name"],
                function["description"],
                function["parameters"],
                _not_called,
                effects=frozenset(known["effects"]),
                run_alone=known["run_alone"],
                script=script,
            )
        )
    return tools


def _not_called(**_: Any) -> None:
    raise AssertionError("a recorded tool gives what was recorded")


@dataclass
class RecordedApprovals(Approvals):
    """Gives the answers that were given."""

    script: Script | None = None

    def remembered(self, request: ApprovalRequest) -> bool | None:
        """What was answered without asking."""
        record = self._answer(request)
        return bool(record["allowed"]) if record.get("by") == "remembered" else None

    def answer(self, request: ApprovalRequest) -> Decision:
        """What the person answered."""
        record = self._answer(request)
        edited = record.get("arguments")
        return Decision(bool(record.get("allowed")), None if edited is None else json.loads(edited))

    def _answer(self, request: ApprovalRequest) -> Record:
        assert self.script is not None, "recorded_approvals gives one"
        answers = (r for r in self.script.records[self.script.at :] if r["type"] == "approval_answered")
        return next((r for r in answers if r["call_id"] == request.call_id), {})


def recorded_approvals(script: Script) -> RecordedApprovals:
    """The policy of the run, and its answers; nobody can be asked where nobody was."""
    approvals = RecordedApprovals(script.records[0]["settings"]["approvals"], script=script)
    if any(r["type"] == "approval_asked" for r in script.records):
        approvals.ask = approvals.answer
    return approvals
