"""The events of a run, told as figures and lines for people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..messages import text
from . import words

if TYPE_CHECKING:
    from ..journal import Event

KEPT_LINES = 200
"""How many lines of the log are kept: a runaway must not fill the page."""

State = Literal["waiting", "ok", "error"]


@dataclass(frozen=True)
class Progress:
    """What the run has used so far. ``usd`` is None when it cannot be told; ``quote_usd`` is for the step under way."""

    steps: int = 0
    seconds: float = 0.0
    usd: float | None = 0.0
    quote_usd: float | None = None
    requests: int = 0
    retries: int = 0
    tool_calls: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class LogLine:
    """One line of the log: a model call, a retry or a tool call, still waiting or with its outcome."""

    step: int
    kind: Literal["model", "retry", "tool"]
    text: str
    state: State


class Story:
    """What has happened in one run: ``progress`` and ``lines``, brought up to date by ``take``."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._lines: dict[object, LogLine] = {}
        self._tools: dict[object, str] = {}

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """The last lines of the log, oldest first."""
        return tuple(self._lines.values())

    def take(self, event: Event) -> None:
        """Add what one event tells."""
        self.progress = replace(self.progress, steps=event.step, seconds=event.seconds, usd=event.usd)
        tell = getattr(self, f"_on_{event.kind}", None)
        if tell:
            tell(event, event.data)

    def _on_step(self, event: Event, data: dict[str, Any]) -> None:
        self._count(quote_usd=data["quote_usd"])
        self._write(event.step, event.step, "model", text("panel.log_model_waits"), "waiting")

    def _on_request(self, event: Event, data: dict[str, Any]) -> None:
        self._count(requests=self.progress.requests + 1)

    def _on_retry(self, event: Event, data: dict[str, Any]) -> None:
        self._count(retries=self.progress.retries + 1)
        why = words.short(f"{data['status'] or ''} {data['message']}", 120)
        told = text("panel.log_retry", why=why, wait=words.seconds(data["wait"]))
        self._write((event.step, "retry", self.progress.retries), event.step, "retry", told, "error")

    def _on_reply(self, event: Event, data: dict[str, Any]) -> None:
        tokens = (data["input_tokens"] or 0) + (data["output_tokens"] or 0)
        self._count(quote_usd=None, tokens=self.progress.tokens + tokens)
        told = text("panel.log_reply", seconds=words.seconds(data["seconds"]), usd=words.money(data["usd"]))
        self._write(event.step, event.step, "model", told, "ok")

    def _on_tool_call(self, event: Event, data: dict[str, Any]) -> None:
        self._count(tool_calls=self.progress.tool_calls + 1)
        key = (event.step, data["id"])
        self._tools[key] = words.call(data["tool"], data["arguments"])
        self._write(key, event.step, "tool", self._tools[key], "waiting")

    def _on_tool_result(self, event: Event, data: dict[str, Any]) -> None:
        key, result = (event.step, data["id"]), data["result"]
        called = self._tools.pop(key, data["tool"])
        self._write(key, event.step, "tool", f"{called} {words.outcome(result)}", result["status"])

    def _on_end(self, event: Event, data: dict[str, Any]) -> None:
        summary = data["result"]["summary"]
        usage = summary["usage"]
        self._count(steps=summary["steps"], seconds=usage["seconds"], usd=usage["usd"], quote_usd=None)
        for key, line in self._lines.items():
            if line.state == "waiting":
                self._lines[key] = replace(line, text=f"{line.text} {text('panel.log_cut')}", state="error")

    def _count(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)

    def _write(self, key: object, step: int, kind: Any, told: str, state: State) -> None:
        self._lines[key] = LogLine(step, kind, told, state)
        if len(self._lines) > KEPT_LINES:
            del self._lines[next(iter(self._lines))]
