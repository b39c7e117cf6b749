"""The thread that writes to a run log, so that a run never waits for a disk or for somebody else's lock."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from weakref import WeakValueDictionary

from ..waiting import HAS_THREADS
from .store import Row, RunLogError, SeenRow, explained, open_to_write, save

BEAT_SECONDS = 5.0
"""A run that goes on gives a sign of life this often."""

_TICK_SECONDS = 0.05
_LINGER_SECONDS = 1.0  # opening and closing the file for each of many short runs would cost more than writing
_EXIT_SECONDS = 1.0


def timestamp(now: datetime | None = None) -> str:
    """A point in time as the log writes it, now if none is given: UTC, to the millisecond."""
    return (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class _Job:
    rows: Sequence[Row]
    failed: Callable[[RunLogError], None]


class Writer:
    """Writes rows in the order in which they are put, from a thread that lives only while there are runs.

    The thread is no daemon: a program that ends waits until the last run is written, if need be a second for a
    file that is locked, and not longer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._jobs: list[_Job] = []
        self._put = self._handled = 0
        self._next_beat = self._linger = self._linger_until = 0.0
        self._ending: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def put(self, rows: Sequence[Row], failed: Callable[[RunLogError], None]) -> None:
        """Have the rows written soon; ``failed`` is called (from the thread) if that cannot be done."""
        with self._changed:
            self._jobs.append(_Job(rows, failed))
            self._put += 1
            self._linger = _LINGER_SECONDS
            self._changed.notify_all()
            if not HAS_THREADS:
                self._work()
            elif self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="agentlib-runlog", daemon=False)
                self._thread.start()

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far is written or has failed; False if that takes longer."""
        with self._changed:
            wanted = self._put
            return self._changed.wait_for(lambda: self._handled >= wanted, timeout)

    def close(self, timeout: float) -> bool:
        """Write what is left and let go of the file; False if that takes longer, or while a run is open."""
        with self._changed:
            self._linger, self._linger_until, thread = 0.0, 0.0, self._thread
            self._changed.notify_all()
        if thread:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def opened(self, run_id: str, owner: object) -> None:
        """From now on the run gives signs of life, as long as its owner exists."""
        with self._changed:
            self._next_beat = time.monotonic() + BEAT_SECONDS
            self._open[run_id] = owner

    def closed(self, run_id: str) -> None:
        """No more signs of life from this run."""
        with self._changed:
            self._open.pop(run_id, None)

    def _work(self) -> None:
        db: sqlite3.Connection | None = None
        most: int | None = None
        while jobs := self._next_jobs(most):
            problem = None
            try:
                db = db or open_to_write(self.path)
                save(db, chain.from_iterable(job.rows for job in jobs))
            except Exception as error:  # whatever it is: it must reach the run, and the thread must go on
                problem = explained(error, self.path)
            if problem and problem.code == "LOCKED" and self._may_wait():
                time.sleep(_TICK_SECONDS)
            elif problem and problem.code == "FAILED" and len(jobs) > 1:
                most = 1  # one of them may be at fault: go on one by one, so that the others are written
            else:
                most = None
                self._finish(jobs, problem)
        if db:
            db.close()

    def _may_wait(self) -> bool:
        """Whether there is time to try a locked file again: always, but for a program that wants to end."""
        if not _program_runs():
            self._ending = self._ending or time.monotonic() + _EXIT_SECONDS
        return self._ending is None or time.monotonic() < self._ending

    def _next_jobs(self, most: int | None) -> list[_Job]:
        """What is to be written now, waiting for it while a run is open. Empty: the thread is to end."""
        with self._changed:
            while not self._jobs:
                wanted = self._open or time.monotonic() < self._linger_until
                if not (HAS_THREADS and wanted and _program_runs()):
                    self._thread = None
                    return []
                self._changed.wait(_TICK_SECONDS)
                if self._open and time.monotonic() >= self._next_beat:
                    self._beat()
            return self._jobs[:most]

    def _beat(self) -> None:
        self._next_beat = time.monotonic() + BEAT_SECONDS
        now = timestamp()
        self._jobs.append(_Job([SeenRow(run_id, now) for run_id in list(self._open)], lambda _: None))
        self._put += 1

    def _finish(self, jobs: list[_Job], problem: RunLogError | None) -> None:
        if problem:
            for job in jobs:
                job.failed(problem)
        with self._changed:
            del self._jobs[: len(jobs)]
            self._handled += len(jobs)
            self._linger_until = time.monotonic() + self._linger
            self._changed.notify_all()


def _program_runs() -> bool:
    return threading.main_thread().is_alive()
