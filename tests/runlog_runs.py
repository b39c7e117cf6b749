"""Runs made of events, as the loop sends them, and the processes that the run log's tests start."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentlib.journal import Event
from agentlib.limits import PROFILES, Limits
from agentlib.results import ok, task_result
from agentlib.runlog import RunLog, RunLogError


def beginning(limits: Limits = PROFILES["standard"], question: str = "How much?") -> Event:
    data = {"task_id": "task-1", "question": question, "model": "m", "limits": limits.as_dict(), "offline": True}
    return Event("start", 0, 0.0, 0.0, data)


def tool_step(step: int, usd: float | None = 0.001, result: Any = None) -> list[Event]:
    """A step of one second: a model call of 0.75 s, a tool call of 0.25 s."""
    t, paid = step - 1.0, None if usd is None else step * usd
    reply = {"text": None, "finish_reason": "tool_calls", "calls": 1, "input_tokens": 100, "output_tokens": 20}
    call = {"id": f"call-{step}", "tool": "analyze_csv"}
    return [
        Event("step", step, t, paid, {"quote_usd": None, "max_tokens": 100}),
        Event("request", step, t, paid, {"attempt": 1}),
        Event("reply", step, t + 0.75, paid, {**reply, "usd": usd, "estimated": False, "seconds": 0.75}),
        Event("tool_call", step, t + 0.75, paid, {**call, "arguments": '{"relative_path": "secret-name.csv"}'}),
        Event("tool_result", step, t + 1, paid, {**call, "result": result or ok({"secret": "data"}), "seconds": 0.25}),
    ]


def ending(reason: str, steps: int, usd: float | None = 0.001, limits: Limits = PROFILES["standard"]) -> Event:
    usage = {
        "seconds": float(steps),
        "usd": None if usd is None else steps * usd,
        "requests": steps,
        "estimated": False,
    }
    summary = {
        "stop_reason": reason,
        "steps": steps,
        "tool_calls_used": steps,
        "usage": {**usage, "input_tokens": 100 * steps, "output_tokens": 20 * steps},
        "limits": limits.as_dict(),
    }
    return Event("end", steps, float(steps), usage["usd"], {"result": task_result("task-1", summary, [])})


def whole_run(reason: str = "done", steps: int = 2) -> list[Event]:
    return [beginning(), *(event for step in range(1, steps + 1) for event in tool_step(step)), ending(reason, steps)]


def play(to: Any, events: list[Event]) -> None:
    for event in events:
        to.on_event(event)


def write_runs(path: Path, count: int) -> None:
    one = RunLog(path).listener(kind=str(os.getpid()))
    for _ in range(count):
        try:
            play(one, whole_run(steps=2))
        except RunLogError as late:  # a busy file: not lost, written a moment later
            assert late.code == "LATE"


def write_until_killed(path: Path, finished: Any) -> None:
    one = RunLog(path).listener()
    while True:
        with suppress(RunLogError):  # on a busy computer a run may be late
            play(one, whole_run(steps=2))
            finished.send(one.run_id)


def die_in_the_second_step(path: Path) -> None:
    runlog = RunLog(path)
    play(runlog, [beginning(), *tool_step(1), *tool_step(2)[:4]])
    runlog.flush()
    os._exit(9)
