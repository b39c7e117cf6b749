"""Running the tool calls of one reply: each in a thread of its own, under its own time and the run's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import DefaultContext, localcontext
from typing import TYPE_CHECKING

from .guard import Guard
from .history import Call
from .limits import exact, tool_call_fits
from .messages import text
from .model import Reply
from .results import ToolResult, error
from .tools import ArgumentsError, Tool, check_arguments, describe, execute_tool
from .waiting import HAS_THREADS, finish, in_thread

if TYPE_CHECKING:
    from .isolated import Child


async def run_tools(guard: Guard, reply: Reply, toolbox: Mapping[str, Tool]) -> None:
    """Run what the model asked for, and hand each result back under the id of its call.

    Every call is answered, also those that were not run: services refuse a history with a gap.
    """
    journal, step, done = guard.journal, guard.journal.used.steps, list[str]()
    ids = guard.history.add_reply(reply.content, reply.calls, reply.reasoning)
    for number, (call, call_id) in enumerate(zip(reply.calls, ids, strict=True)):
        journal.note("tool_call", step, id=call_id, tool=call.name, arguments=call.arguments)
        began, limits = journal.clock.now(), guard.limits()
        if tool_call_fits(limits, number):
            result = await run_tool(guard, call, toolbox)
        else:
            result = error("TOOL_LIMIT", text("loop.tool_limit", most=limits.max_tool_calls))
        guard.history.add_result(call_id, result)
        journal.tool_done(call.name, result)
        seconds = round(journal.clock.now() - began, 3)
        journal.note("tool_result", step, id=call_id, tool=call.name, result=result, seconds=seconds)
        done.append(f"{shortened(call.name)}({shortened(call.arguments)}) → {code_of(result)}")
    journal.lines[-1] = text("loop.line", step=step, tools="; ".join(done))


def shortened(words: str) -> str:
    """What a model wrote, on one line and not longer than a line."""
    line = " ".join(words[:200].split())
    return line if len(line) <= 80 else line[:80] + "…"


def code_of(result: ToolResult) -> str:
    """How a tool run ended, in one word."""
    return result["error"]["code"] if result["error"] else "ok"


async def run_tool(guard: Guard, call: Call, toolbox: Mapping[str, Tool]) -> ToolResult:
    """One tool run. When its time is up it is left behind, not waited for; a child process is killed."""
    clock = guard.journal.clock
    began = clock.now()

    def left() -> float | None:
        own, run = guard.limits().max_tool_seconds, guard.time_left()
        mine = None if own is None else float(exact(own) - (exact(clock.now()) - exact(began)))
        return min((seconds for seconds in (mine, run) if seconds is not None), default=None)

    at_once = left()
    if guard.halted() or (at_once is not None and at_once <= 0):
        return error("TOOL_TIMEOUT", text("loop.tool_not_run"))
    guard.journal.used.tool_calls += 1
    tool = toolbox.get(call.name)
    apart = InChild(tool, call.arguments) if tool and tool.isolated and HAS_THREADS else None

    def here() -> ToolResult:
        with localcontext(DefaultContext):  # the run's own sums round upwards, those of a tool do not
            return execute_tool(call.name, call.arguments, toolbox)

    try:
        work = in_thread(apart.run if apart else here)
        outcome = await finish(clock, work, left, guard.halted)
    except RuntimeError as problem:
        return failed(problem)
    finally:
        if apart:
            apart.kill()
    if outcome == "done":
        return result_of(work)
    if outcome == "halted":
        return error("TOOL_FAILED", text("loop.tool_halted"))
    return error("TOOL_TIMEOUT", text("loop.tool_timeout", seconds=f"{clock.now() - began:.3g}"))


def result_of(work: asyncio.Future[ToolResult]) -> ToolResult:
    """What a finished run gave. A ``KeyboardInterrupt`` in it is the tool's own: a person's reaches the main thread."""
    try:
        return work.result()
    except (Exception, KeyboardInterrupt) as problem:
        return failed(problem)


def failed(problem: BaseException) -> ToolResult:
    """The answer to a call whose run broke down."""
    return error("TOOL_FAILED", text("tools.failed", problem=describe(problem)))


class InChild:
    """A tool run in a child process, which ends when it is killed, whatever it is doing."""

    def __init__(self, tool: Tool, arguments: str) -> None:
        self.tool, self.arguments = tool, arguments
        self._child: Child | None = None
        self._killed = False

    def run(self) -> ToolResult:
        """Start the process and wait for its result."""
        from .isolated import start

        try:
            arguments = check_arguments(self.tool, self.arguments)
        except ArgumentsError as problem:
            return error("INVALID_ARGUMENTS", str(problem))
        try:
            with start(self.tool, arguments) as self._child:
                # Either this sees that it was killed meanwhile, or kill() sees the child: no lock is needed.
                return error("TOOL_TIMEOUT", text("loop.tool_not_run")) if self._killed else self._child.result()
        except ValueError as problem:
            return error("TOOL_FAILED", str(problem))

    def kill(self) -> None:
        """End the process if there is one, and let none go on."""
        self._killed = True
        if self._child and self._child.poll() is None:
            self._child.kill()
