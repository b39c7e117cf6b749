"""What happened in a run: the sums, the trace, who is told, and the result that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from .limits import EXACT, Limits, Stop, Usage, exact
from .messages import text
from .results import TaskResult, ToolResult, task_result
from .tools import describe
from .waiting import Clock


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run. ``data`` is strict JSON; its keys depend on ``kind``.

    ``start`` task_id, question, model, limits, offline · ``step`` quote_usd, max_tokens · ``request`` attempt ·
    ``retry`` status, message, wait · ``reply`` text, thinking, finish_reason, calls, input_tokens, output_tokens,
    usd, estimated, seconds · ``tool_call`` id, tool, arguments · ``tool_result`` id, tool, result, seconds ·
    ``end`` result. ``seconds`` and ``usd`` are the sums so far; an unknown cost is None.
    """

    kind: str
    step: int
    seconds: float
    usd: float | None
    data: dict[str, Any]


Watcher = Callable[[Event], object]
"""Anything that is called with each event."""


class Listener(Protocol):
    """Anything with an ``on_event``, such as a run log."""

    def on_event(self, event: Event) -> object:
        """Called with each event, in order."""


class Ended(Exception):
    """A run is over: one stop reason, sentences for people, and the figures of the cap if it was one."""

    def __init__(self, reason: str, *sentences: str, stop: Stop | None = None) -> None:
        super().__init__(reason)
        self.reason, self.sentences, self.stop = reason, sentences, stop


def capped(stop: Stop) -> Ended:
    """The ending at a cap, in words that give the value, the limit and the quote."""
    name = "MAX_STEPS" if stop.limit_name == "max_steps" else stop.limit_name
    sentence = text(f"loop.{stop.limit_name}", name=name, limit=figure(stop.limit))
    if stop.limit_name == "max_usd" and stop.quote is not None:
        left = exact(stop.limit) - stop.used
        sums = text("loop.usd_sums", used=figure(stop.used), quote=figure(stop.quote), left=figure(left))
        return Ended(stop.reason, sentence, sums, stop=stop)
    return Ended(stop.reason, sentence, stop=stop)


def figure(value: float | Decimal) -> str:
    """A number as people write it, all its digits and no more: 30 for 30.0, 0.00001 for 1e-05."""
    return f"{exact(value).normalize(EXACT):f}"


@dataclass(slots=True)
class Journal:
    """The books of one run."""

    task_id: str
    clock: Clock
    watchers: list[Watcher]
    used: Usage = field(default_factory=Usage)
    trace: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    tool_results: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    interim: str = ""
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock.now()

    def tick(self) -> Usage:
        """What has been used up to this moment."""
        self.used.seconds = exact(self.clock.now()) - exact(self.started)
        return self.used

    def note(self, kind: str, step: int, **data: Any) -> None:
        """Write down what happened, and tell everyone who listens."""
        used = self.tick()
        usd = float(used.usd) if used.usd_known else None
        event = Event(kind, step, round(float(used.seconds), 3), usd, data)
        if kind not in {"start", "end"}:
            self.trace.append({name: getattr(event, name) for name in Event.__slots__})
        for watcher in self.watchers:
            try:
                watcher(event)
            except Exception as exc:  # whatever a listener does wrong, the run and its result are kept
                self.warn(text("loop.listener", problem=describe(exc)))

    def warn(self, sentence: str) -> None:
        """Add a sentence to the result's warnings, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def tool_done(self, tool: str, result: ToolResult) -> None:
        """Keep a tool's whole result."""
        self.tool_results.append({"tool": tool, "result": result})

    def result(self, ended: Ended, answer: str, limits: Limits) -> TaskResult:
        """The result of the run: what was done, and why it ended."""
        summary: dict[str, Any] = {
            "stop_reason": ended.reason,
            "steps": self.used.steps,
            "tool_calls_used": self.used.tool_calls,
            "tool_results": self.tool_results,
            "completed_steps": self.lines,
            "usage": self.tick().as_dict(),
            "limits": limits.as_dict(),
        }
        if ended.reason == "done":
            summary["answer"] = answer
        elif self.interim:
            summary["interim_text"] = self.interim
        if ended.stop:
            summary["stop"] = ended.stop.as_dict()
        summary["trace"] = self.trace
        self.warnings[:0] = ended.sentences
        return task_result(self.task_id, summary, self.warnings)
