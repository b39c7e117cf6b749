"""What turns the events of a run into rows of the run log."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..history import SYSTEM
from ..journal import Event
from ..limits import PROFILES
from .store import Row, RunLogError, RunRow, StepRow
from .writer import Writer, timestamp

FLUSH_SECONDS = 0.25
"""The longest that the end of a run waits for its rows to be written."""

_LONGEST_NAME = 100


def fingerprint(prompt: str) -> str:
    """A short name for a prompt: other words, another name."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Labels:
    """What the caller says about the runs, and whether the text of their questions is kept."""

    profile: str | None = None
    kind: str | None = None
    prompt: str | None = None
    keep_question: bool = False


class Listener:
    """Writes one run after the other, each kept up to date with every event, so that a run that dies is not lost."""

    def __init__(self, writer: Writer, labels: Labels) -> None:
        self._writer, self._labels = writer, labels
        self._recording: _Recording | None = None
        self._errors: list[RunLogError] = []

    @property
    def run_id(self) -> str | None:
        """The ``id`` of the run that is under way, or else of the last one."""
        return self._recording.run.id if self._recording else None

    def on_event(self, event: Event) -> None:
        """Called by the loop for every event. Raises ``RunLogError`` at the end of a run that could not be written."""
        if event.kind == "start":
            self._begin(_Recording(event.data, self._labels))
        elif event.kind == "end" and not self._is_open():  # refused before it began: nothing was called
            result = event.data["result"]
            unknown = {"question": None, "model": None}
            start = {"task_id": result["task_id"], "limits": result["summary"]["limits"], **unknown}
            self._begin(_Recording(start, self._labels))
        if self._recording is None or not self._is_open():
            return  # began before this was listening
        self._recording.note(event)
        self._writer.put(self._recording.rows(), self._errors.append)
        if event.kind == "end":
            self._finish(self._recording)

    def _is_open(self) -> bool:
        return self._recording is not None and self._recording.run.stop_reason is None

    def _begin(self, recording: _Recording) -> None:
        self._recording, self._errors = recording, []
        self._writer.opened(recording.run.id, recording)

    def _finish(self, recording: _Recording) -> None:
        self._writer.closed(recording.run.id)
        if not self._writer.flush(FLUSH_SECONDS):
            raise RunLogError("LATE", self._writer.path)
        if self._errors:
            raise self._errors[0]


class _Recording:
    """One run as far as it has come."""

    def __init__(self, start: Mapping[str, Any], labels: Labels) -> None:
        now = timestamp()
        self.run = RunRow(secrets.token_hex(8), started=now, seen=now, task_id=start["task_id"], model=start["model"])
        self.run.profile, self.run.kind = labels.profile, labels.kind
        self.run.prompt = labels.prompt or fingerprint(SYSTEM)
        self.run.question = start["question"] if labels.keep_question else None
        self.run.host, self.run.pid = platform.node(), os.getpid()
        self._guess_profile = self.run.profile is None
        self._set_limits(start["limits"])
        self._step: StepRow | None = None
        self._calls: list[dict[str, Any]] = []
        self._waits_for_model = False

    def rows(self) -> list[Row]:
        """Copies of the rows as they are now: the run and its step."""
        return [replace(self.run), *([replace(self._step)] if self._step else [])]

    def note(self, event: Event) -> None:
        """Bring the rows up to date with what has happened."""
        if self._step and self._waits_for_model:
            self._step.model_seconds = round(self._step.model_seconds + event.seconds - self.run.seconds, 6)
            self.run.model_seconds = round(self.run.model_seconds + event.seconds - self.run.seconds, 6)
        self.run.seen, self.run.seconds, self.run.usd = timestamp(), event.seconds, event.usd
        if event.kind == "step":
            self._step, self._calls, self._waits_for_model = StepRow(self.run.id, event.step), [], True
        elif event.kind == "end":
            self._note_end(event.data["result"]["summary"])
        elif self._step:
            self._note_in_step(self._step, event)

    def _note_in_step(self, step: StepRow, event: Event) -> None:
        kind, data = event.kind, event.data
        if kind == "request":
            step.requests += 1
            self.run.requests += 1
        elif kind == "reply":
            self._waits_for_model = False
            self.run.steps = event.step
            step.usd, step.input_tokens, step.output_tokens = data["usd"], data["input_tokens"], data["output_tokens"]
        elif kind == "tool_call":
            self.run.tool_calls += 1
            name = data["tool"][:_LONGEST_NAME]
            self._calls.append({"tool": name, "status": None, "code": None, "seconds": None, "id": data["id"]})
        elif kind == "tool_result":
            self._note_result(step, data)
        step.tools = json.dumps([{k: v for k, v in call.items() if k != "id"} for call in self._calls])

    def _note_result(self, step: StepRow, data: Mapping[str, Any]) -> None:
        result = data["result"]
        call = next(call for call in self._calls if call["id"] == data["id"] and call["status"] is None)
        call["status"], call["seconds"] = result["status"], data["seconds"]
        call["code"] = result["error"]["code"] if result["error"] else None
        step.tool_seconds = round(step.tool_seconds + data["seconds"], 6)
        self.run.tool_seconds = round(self.run.tool_seconds + data["seconds"], 6)

    def _note_end(self, summary: Mapping[str, Any]) -> None:
        usage = summary["usage"]
        self.run.stop_reason, self.run.steps = summary["stop_reason"], summary["steps"]
        self.run.tool_calls, self.run.requests = summary["tool_calls_used"], usage["requests"]
        self.run.seconds, self.run.usd = usage["seconds"], usage["usd"]
        self._set_limits(summary["limits"])

    def _set_limits(self, limits: Mapping[str, Any]) -> None:
        self.run.limits = json.dumps(limits)
        if self._guess_profile:
            found = (name for name, profile in PROFILES.items() if profile.as_dict() == limits)
            self.run.profile = next(found, "custom")
