"""Waiting that ends in time: clocks, threads that hold nobody up, and the synchronous door to the loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal, Protocol, TypeVar

from .inline import run_inline

T = TypeVar("T")

HAS_THREADS = sys.platform != "emscripten"
"""False where Python runs inside a web page: tools then run inline and cannot be cut."""


class Clock(Protocol):
    """What tells a run how late it is. ``look`` is how often, in seconds, a waiting run looks at its limits."""

    look: float

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for that long, by this clock."""

    async def wait(self, task: asyncio.Future[Any], seconds: float) -> None:
        """Return when the task is done or that much time has passed, whichever comes first."""


class RealClock:
    """The computer's monotonic clock: changes of the time of day do not move it."""

    look = 0.05

    def now(self) -> float:
        """Seconds since some moment before the program began."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for that long."""
        await asyncio.sleep(seconds)

    async def wait(self, task: asyncio.Future[Any], seconds: float) -> None:
        """Return when the task is done or the time is over."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        timer = loop.call_later(seconds, wake)
        task.add_done_callback(wake)
        try:
            await over
        finally:
            timer.cancel()
            task.remove_done_callback(wake)


async def finish(
    clock: Clock, task: asyncio.Future[Any], seconds_left: Callable[[], float | None], halted: Callable[[], bool]
) -> Literal["done", "late", "halted"]:
    """Wait for ``task``, asking anew every moment how much time is left and whether to halt.

    A task that is not done in time, or when the waiting itself is cancelled, is cancelled and left behind.
    """
    try:
        while not task.done():
            left, halt = seconds_left(), halted()
            if halt or (left is not None and left <= 0):
                _leave(task)
                await asyncio.wait({task}, timeout=0.02)  # the moment that it takes to close a connection
                return "halted" if halt else "late"
            await clock.wait(task, clock.look if left is None else min(left, clock.look))
        return "done"
    finally:
        _leave(task)


def _leave(task: asyncio.Future[Any]) -> None:
    if task.cancel():
        task.add_done_callback(lambda late: late.cancelled() or late.exception())


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a blocking function in a daemon thread: neither the event loop nor the process waits for it at the end.

    Raises ``RuntimeError`` when the system has no thread left.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            settle = partial(future.set_result, context.run(function))
        except BaseException as exc:
            settle = partial(future.set_exception, exc)
        with contextlib.suppress(RuntimeError):  # the event loop is over, and with it whoever waited
            loop.call_soon_threadsafe(lambda: future.done() or settle())

    if HAS_THREADS:
        _hand_over(work)
    else:
        work()
    return future


_idle: list[SimpleQueue[Callable[[], None]]] = []
"""The inboxes of the threads that have nothing to do. One that hangs is not among them, and holds no other up."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process has none of its parent's threads


def _hand_over(work: Callable[[], None]) -> None:
    """Have an idle thread do it, or a new one if none is idle: starting one takes as long as a quick tool."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        start_new_thread(_serve, (inbox,))  # threading.Thread would have the event loop wait until the thread runs
    inbox.put(work)


def _serve(inbox: SimpleQueue[Callable[[], None]]) -> None:
    home = os.getpid()
    while os.getpid() == home:  # in a process that a tool forked, this thread is the only one, and has to end
        inbox.get()()
        _idle.append(inbox)


def run_to_end(work: Coroutine[Any, Any, T], interrupt: Callable[[], None]) -> T:
    """Run a coroutine from ordinary code, also where an event loop is already running (a notebook cell).

    The kernel's interrupt calls ``interrupt`` and goes on waiting for the coroutine to wind up;
    a second interrupt gives up and raises ``KeyboardInterrupt``. Whatever else a signal handler raises,
    a time limit of the caller's own for instance, cancels the coroutine and is raised at once.
    """
    if not HAS_THREADS:
        return run_inline(work)
    loop = _background_loop()
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError("run_task was called from inside a run's own event loop: await arun_task there")
    interrupts = 0
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except BaseException:  # of a signal handler: the coroutine may be running already
        interrupt()
        raise
    while True:
        try:
            while not future.done():
                # A wait without a timeout cannot be interrupted on Windows.
                concurrent.futures.wait([future], timeout=0.2)
            return future.result()
        except KeyboardInterrupt:
            interrupt()
            interrupts += 1
            if interrupts > 1:
                future.cancel()
                raise
        except BaseException:  # of a signal handler: nobody waits for the coroutine any more
            future.cancel()
            raise


_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_making = threading.Lock()


def _background_loop() -> asyncio.AbstractEventLoop:
    """One loop in one daemon thread for all synchronous runs, so that a client's connections stay usable."""
    global _loop, _thread
    with _making:
        if _loop is None or _thread is None or not _thread.is_alive():
            _loop = asyncio.new_event_loop()
            _loop.set_default_executor(_DaemonExecutor())
            _thread = threading.Thread(target=_run_for_ever, args=(_loop,), daemon=True, name="agentlib-loop")
            _thread.start()
        return _loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """An exit that a listener raises ends its own run; the loop goes on for the others."""
    while True:
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()


class _DaemonExecutor(concurrent.futures.ThreadPoolExecutor):
    """For look-ups of host names: a stuck one must not keep the process from ending."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as exc:
                    future.set_exception(exc)

        threading.Thread(target=work, daemon=True, name="agentlib-lookup").start()
        return future
