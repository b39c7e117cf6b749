"""Running a coroutine where Python has no threads: inside a web page (Pyodide)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class _Sleeper:
    """What the loop asks for ready sockets. There are none here, so it only waits."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("an inline run waits for something that nothing here can bring")
        time.sleep(max(0.0, timeout))
        return []


class InlineLoop(asyncio.BaseEventLoop):
    """An event loop without sockets and threads: callbacks and timers only."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleeper()

    def _process_events(self, event_list: list[Any]) -> None:
        """No sockets, so no events."""

    def _write_to_self(self) -> None:
        """Only another thread would have to wake the loop, and there is none."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run the function at once: there is no thread to run it in."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as problem:
            future.set_exception(problem)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor."""


@contextmanager
def _plain_sleep() -> Iterator[None]:
    """Let ``time.sleep`` block. In a page it may hand over to the page's own loop, which stands still here."""
    if sys.platform != "emscripten":
        yield
        return
    webloop: Any = import_module("pyodide.webloop")
    can_switch, webloop.can_run_sync = webloop.can_run_sync, lambda: False
    try:
        yield
    finally:
        webloop.can_run_sync = can_switch


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, also inside a running loop; that loop stands still meanwhile."""
    outer = asyncio._get_running_loop()
    task = asyncio.current_task(outer) if outer else None
    if outer and task:
        asyncio.tasks._leave_task(outer, task)
    asyncio._set_running_loop(None)
    try:
        with _plain_sleep(), asyncio.Runner(loop_factory=InlineLoop) as runner:
            return runner.run(work)
    finally:
        asyncio._set_running_loop(outer)
        if outer and task:
            asyncio.tasks._enter_task(outer, task)
