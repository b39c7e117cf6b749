"""The run behind the live panel: a task on the kernel's loop, and what it shows, as traits. No widgets here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import traitlets as t

from ..journal import Event, Listener
from ..loop import events
from ..messages import text
from ..results import TaskResult
from ..settings import SettingsError, load_settings
from ..waiting import RealClock
from . import words
from .model import LimitsModel
from .story import Progress, Story

LIVE = "live"
"""The scenario that asks the real endpoint of ``.env``; all others are played offline."""

_BEAT = 0.1  # seconds between two updates: often enough to be live, seldom enough not to flood the browser
_GRACE = 2.0  # seconds that a closed run has to end by itself before it is cancelled


class RunModel(LimitsModel):
    """A run that a person steers: the limits, the question and the scenario in; progress, log and ending out.

    ``start`` begins a run and returns at once; ``stop`` ends it with the partial result (the kernel's interrupt
    does not reach a task); ``await finished()`` gives its TaskResult. All that goes wrong is said in ``error``.
    With ``runlog=RunLog(...)`` every run is written down.
    """

    question = t.Unicode()
    scenario = t.Unicode("runaway")
    pace = t.Float(0.8, min=0.0, help="seconds that an offline model call takes, so that a class can watch")

    status = t.Enum(("idle", "running", "stopping", "finished"), "idle")
    progress = t.Instance(Progress, args=())
    log = t.Tuple(help="LogLines, oldest first")
    reason = t.Unicode(help="the stop reason, empty before the end")
    ending = t.Unicode(help="why the run ended, in one sentence")
    result = t.Any(None, help="the TaskResult, None before the end")

    def __init__(
        self,
        events: Callable[..., AsyncIterator[Event]] = events,
        runlog: Listener | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self.runlog = runlog
        self.question = self.question or text("offline.question")
        self._events = events
        self._loop = _running_loop()
        self._task: asyncio.Task[None] | None = None
        self._hook: Callable[[Event], object] | None = None
        self._story = Story()

    @staticmethod
    def scenarios() -> list[str]:
        """What can be run here: the offline scenarios, and ``"live"`` where the settings name an endpoint."""
        from ..offline import SCENARIOS  # here: it loads the openai client, which takes a second

        try:
            load_settings()
        except SettingsError:
            return list(SCENARIOS)
        return [*SCENARIOS, LIVE]

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self.status in ("running", "stopping")

    def start(self, *, client: Any = None, on_event: Callable[[Event], object] | None = None) -> bool:
        """Begin a run. False, with ``error`` saying why, if one is under way or nothing can be started.

        ``client`` is used instead of the scenario's. ``on_event`` is called with every event, in order.
        May be called from any thread; the run is always a task of the loop that the model was built in.
        """
        with self._lock:
            if self.running:
                return self._refuse(text("panel.already_running"))
            loop = self._loop if self._loop and self._loop.is_running() else _running_loop()
            if loop is None:
                return self._refuse(text("panel.no_loop"))
            try:
                source = self._source(client)
            except Exception as broken:
                return self._refuse(_crash(broken))
            self._loop, self._hook, self._story = loop, on_event, Story()
            self.error = self.reason = self.ending = ""
            self.result, self.log, self.progress = None, (), Progress()
            self._at = time.monotonic()
            self.status = "running"
        if loop is _running_loop():
            self._spawn(source)
        else:
            loop.call_soon_threadsafe(self._spawn, source)
        return True

    def stop(self) -> None:
        """Ask the run to end with ``stopped:user``. It keeps what was done."""
        if self.status == "running":
            self.status = "stopping"

    async def finished(self) -> TaskResult | None:
        """Wait until no run is under way; the result of the last one."""
        while self.running:
            await asyncio.sleep(0.01)
        result: TaskResult | None = self.result
        return result

    def close(self) -> None:
        """Stop the run, and cancel it if it has not ended soon after: nothing is left behind."""
        if self.running and self._loop:
            self.stop()
            self._loop.call_soon_threadsafe(self._cancel_later, self._loop)

    def _refuse(self, why: str) -> bool:
        self.error = why
        return False

    def _source(self, client: Any) -> AsyncIterator[Event]:
        if client is None and self.scenario != LIVE:
            from ..offline import scenario

            client = scenario(self.scenario, clock=RealClock(), pace=self.pace)
        return self._events(
            self.question,
            limits=lambda: self.limits,
            stop=lambda: self.status == "stopping",
            client=client,
            runlog=self.runlog,
        )

    def _spawn(self, source: AsyncIterator[Event]) -> None:
        self._task = asyncio.ensure_future(self._run(source))

    def _cancel_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._task and not self._task.done():
            loop.call_later(_GRACE, self._task.cancel)

    async def _run(self, source: AsyncIterator[Event]) -> None:
        result: TaskResult | None = None
        beat = asyncio.ensure_future(self._beat())
        try:
            async with aclosing(source) as events:  # type: ignore[type-var]
                async for event in events:
                    self._take(event)
                    result = event.data.get("result") if event.kind == "end" else None
        except Exception as broken:
            self._refuse(_crash(broken))
        finally:
            beat.cancel()
            self._end(result)

    def _take(self, event: Event) -> None:
        self._at = time.monotonic()
        self._story.take(event)
        try:
            if self._hook:
                self._hook(event)
        except Exception as broken:
            self._refuse(_crash(broken))

    async def _beat(self) -> None:
        """Show what is new, ten times a second; between two events the seconds go on."""
        while True:
            await asyncio.sleep(_BEAT)
            if self.status == "running":
                self._show(self._story.progress.seconds + time.monotonic() - self._at)

    def _show(self, seconds: float) -> None:
        self.log = self._story.lines
        self.progress = replace(self._story.progress, seconds=seconds)

    def _end(self, result: TaskResult | None) -> None:
        self._show(self._story.progress.seconds)
        if result:
            self.error = ""
            self.result = result
            self.reason, self.ending = result["summary"]["stop_reason"], words.ending(result)
        self.status = "finished"


def _crash(broken: Exception) -> str:
    return text("panel.crashed", kind=type(broken).__name__, message=broken)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
