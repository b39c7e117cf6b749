"""The agent loop: ask the model, run the tools it asks for, and stop before a cap is broken."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from decimal import localcontext
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from . import strictjson
from .guard import Attempt, Guard
from .history import SYSTEM, History, portable
from .journal import Ended, Event, Journal, Listener, Watcher, capped
from .limits import EXACT, MAX_STEPS, Limits, LimitsSource, Stop, exact
from .messages import text
from .model import Model, ModelFault, Reply, read, tokens
from .results import TaskResult
from .settings import SettingsError
from .toolrun import run_tools
from .tools import TOOLBOX, Tool
from .waiting import RealClock, run_to_end

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LONGEST_WAIT = 60.0
"""The longest ``Retry-After`` that is obeyed when there is no time cap, in seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is made: see ``arun_task``."""

    toolbox: Mapping[str, Tool]
    wrap_up: bool
    retries: int

    def __post_init__(self) -> None:
        if not isinstance(self.retries, int):
            raise Ended("failed:config", text("loop.bad_retries"))


async def steps(guard: Guard, options: Options) -> str:
    """The loop: ask, run what is asked for, ask again.

    Returns the final answer; any other ending is raised.
    """
    while True:
        last = options.wrap_up and guard.journal.used.steps > 0 and guard.on_last_step()
        reply = await ask(guard, options.retries, last)
        if last:
            raise wrapped_up(guard, reply)
        if not reply.calls:
            return reply.text
        await run_tools(guard, reply, options.toolbox)


async def ask(guard: Guard, retries: int, last: bool) -> Reply:
    """The model call of one step. The caps are checked before each of its attempts."""
    journal, step = guard.journal, guard.journal.used.steps + 1
    if last:
        guard.history.add_user(text("loop.wrap_up"))
    for number in count(1):
        attempt = guard.check(with_tools=not last)
        if number == 1:
            most = {"quote_usd": attempt.quote_usd, "max_tokens": attempt.max_tokens}
            journal.note("step", step, **most)
        journal.used.requests += 1
        journal.note("request", step, attempt=number)
        began = journal.clock.now()
        try:
            payload = await guard.in_time(guard.model.send(attempt.body), attempt)
        except ModelFault as fault:
            if fault.billed:
                guard.charge(None, attempt)
            if number > retries:
                raise Ended(fault.reason, str(fault)) from None
            await back_off(guard, fault, number)
        else:
            reply = take(guard, attempt, payload, journal.clock.now() - began)
            if not last:
                judge(guard, attempt, reply)
            return reply
    raise AssertionError("a count has no end")


async def back_off(guard: Guard, fault: ModelFault, number: int) -> None:
    """Wait before the next attempt; ends the run where trying again is of no use, or the wait does not fit."""
    wait = 0.5 * 2 ** (number - 1) if fault.wait is None else fault.wait
    too_long = guard.limits().max_seconds is None and wait > LONGEST_WAIT
    if not fault.retryable or too_long or not guard.may_wait(wait):
        raise Ended(fault.reason, str(fault))
    step = guard.journal.used.steps + 1
    guard.journal.note("retry", step, status=fault.status, message=str(fault), wait=wait)
    await guard.in_time(guard.journal.clock.sleep(wait))


def take(guard: Guard, attempt: Attempt, payload: Mapping[str, Any], seconds: float) -> Reply:
    """A reply has arrived: pay for it first, then look at what it says."""
    journal = guard.journal
    journal.used.steps += 1
    journal.lines.append(text("loop.line_reply", step=journal.used.steps))
    before, counted = journal.used.usd, tokens(payload)
    guard.charge(counted, attempt)
    figures = {
        "input_tokens": counted.input if counted else None,
        "output_tokens": counted.output if counted else None,
        "usd": float(journal.used.usd - before) if journal.used.usd_known else None,
        "estimated": counted is None,
        "seconds": round(seconds, 3),
    }
    try:
        reply = read(payload)
    except ModelFault as fault:
        nothing = dict.fromkeys(("text", "thinking", "finish_reason"))
        journal.note("reply", journal.used.steps, **nothing, calls=0, **figures)
        raise Ended(fault.reason, str(fault)) from None
    words = {"text": reply.text, "thinking": reply.thinking or None, "finish_reason": reply.finish_reason}
    journal.note("reply", journal.used.steps, **words, calls=len(reply.calls), **figures)
    return reply


def judge(guard: Guard, attempt: Attempt, reply: Reply) -> None:
    """Raises ``Ended`` for a reply that neither answers nor asks for a tool."""
    spoken, journal = bool(reply.text.strip()), guard.journal
    if spoken and (reply.calls or reply.finish_reason in {"length", "content_filter"}):
        journal.interim = reply.text
    if reply.finish_reason == "content_filter":
        raise Ended("failed:filtered", text("loop.filtered"))
    if reply.finish_reason == "length":
        cap = attempt.limits.max_usd
        if cap is not None and attempt.max_tokens < guard.model.settings.max_tokens:
            raise capped(Stop("stopped:budget", "max_usd", cap, journal.used.usd, attempt.quote.usd))
        why = "loop.truncated" if spoken or reply.calls else "loop.truncated_thinking"
        raise Ended("failed:truncated", text(why, tokens=attempt.max_tokens))
    if not spoken and not reply.calls:
        if reply.refusal.strip():
            raise Ended("failed:refused", text("loop.refused", words=reply.refusal.strip()))
        raise Ended("failed:no_answer", text("loop.no_answer"))


def wrapped_up(guard: Guard, reply: Reply) -> Ended:
    """The ending after a last word, whatever it says: the step cap all the same, for the task was not finished."""
    guard.journal.interim = reply.text.strip() or guard.journal.interim
    done = guard.journal.used.steps
    return capped(Stop("stopped:steps", "max_steps", done, exact(done), None))


class Keywords(TypedDict, total=False):
    """The keywords of ``arun_task``, which ``run_task`` and ``events`` hand on to it."""

    limits: LimitsSource | None
    client: Model | AsyncOpenAI | None
    toolbox: Mapping[str, Tool]
    wrap_up: bool
    retries: int
    stop: Callable[[], bool] | None
    on_event: Watcher | None
    runlog: Listener | None


def run_task(task_input: str, task_id: str | None = None, **options: Unpack[Keywords]) -> TaskResult:
    """Run the agent on one question and return what came of it; the keywords are those of ``arun_task``.

    Works in a script and where an event loop is running already (a notebook cell). The kernel's
    interrupt ends the run with ``stopped:user`` and the partial result. ``on_event`` is called from
    another thread than the caller's.
    """
    pressed, stop = threading.Event(), options.get("stop")
    options["stop"] = lambda: pressed.is_set() or bool(stop and stop())
    return run_to_end(arun_task(task_input, task_id, **options), interrupt=pressed.set)


async def arun_task(
    task_input: str,
    task_id: str | None = None,
    *,
    limits: LimitsSource | None = None,
    client: Model | AsyncOpenAI | None = None,
    toolbox: Mapping[str, Tool] = TOOLBOX,
    wrap_up: bool = False,
    retries: int = 2,
    stop: Callable[[], bool] | None = None,
    on_event: Watcher | None = None,
    runlog: Listener | None = None,
) -> TaskResult:
    """Run the agent on one question. What a model, a server, a tool or a setting does wrong is in the result.

    ``limits``: a ``Limits``, or a callable that is asked anew at every check; ``client``: a ``Model``, a client,
    or None for the endpoint in ``.env``; ``wrap_up``: the last permitted step asks for the best answer without
    tools; ``retries``: further attempts per step after a passing fault; ``stop``: asked all the time, True ends
    the run with ``stopped:user``. A fault in ``on_event`` or ``runlog`` becomes a warning in the result. The run
    stands still while it calls one of these functions, so they must be quick.
    """
    clock = client.clock if isinstance(client, Model) else RealClock()
    watchers = [watcher for watcher in (on_event, runlog and runlog.on_event) if watcher]
    name = f"task-{uuid.uuid4().hex[:8]}" if task_id is None else portable(str(task_id))
    journal = Journal(name, clock, watchers)
    source = Limits(max_steps=MAX_STEPS) if limits is None else limits
    guard, answer, ended = None, "", Ended("done")
    with localcontext(EXACT):  # the caller's code may have set another precision
        try:
            guard = begin(journal, task_input, source, client, toolbox, stop)
            answer = await steps(guard, Options(toolbox, wrap_up, retries))
        except Ended as ending:
            ended = ending
        finally:
            if client is None and guard:
                await guard.model.close()
        in_force = guard.limits() if guard else source if isinstance(source, Limits) else Limits(max_steps=MAX_STEPS)
        result = journal.result(ended, answer, in_force)
        journal.note("end", journal.used.steps, result=result)
    return result


def begin(
    journal: Journal,
    question: str,
    source: LimitsSource,
    client: Model | AsyncOpenAI | None,
    toolbox: Mapping[str, Tool],
    stop: Callable[[], bool] | None,
) -> Guard:
    """Everything that can be wrong before a model is asked ends the run with ``failed:config``."""
    if not isinstance(question, str) or not question.strip():
        raise Ended("failed:config", text("loop.no_question"))
    question = portable(question)
    try:
        if any(name != tool.name for name, tool in toolbox.items()):  # the model is told the one, and asks for it
            raise ValueError(list(toolbox))
        history = History(SYSTEM, question, [strictjson.copy(tool.schema) for tool in toolbox.values()])
    except (AttributeError, TypeError, ValueError):
        raise Ended("failed:config", text("loop.bad_toolbox")) from None
    try:
        model = Model.of(client)
    except SettingsError as exc:
        raise Ended("failed:config", str(exc)) from None
    guard = Guard(journal, model, history, source, stop)
    facts = {"task_id": journal.task_id, "question": question, "model": model.settings.model}
    journal.note("start", 0, **facts, limits=guard.limits().as_dict(), offline=model.offline)
    return guard


async def events(task_input: str, task_id: str | None = None, **options: Unpack[Keywords]) -> AsyncIterator[Event]:
    """What happens in a run, as it happens; the last event is ``end`` and holds the result.

    The keywords are those of ``arun_task``. Leaving the iteration early cancels the run.
    """
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    watcher = options.get("on_event")

    def put(event: Event) -> None:
        queue.put_nowait(event)
        if watcher:
            watcher(event)

    options["on_event"] = put
    task = asyncio.ensure_future(arun_task(task_input, task_id, **options))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
