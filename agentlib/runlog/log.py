"""``RunLog``: where runs are written to, and the questions that can be asked of them."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from .. import project
from ..journal import Event
from ..messages import text
from .listener import Labels, Listener
from .store import Row, explained, open_to_write, reading, save
from .writer import BEAT_SECONDS, Writer

COLUMNS = ("day", "profile", "kind", "model", "prompt")
"""What runs can be grouped by and chosen by."""

_CAPS = ("stopped:steps", "stopped:time", "stopped:budget")

_INDEXED = "day, stop_reason, profile, kind, model, prompt"  # in the order of the index: counted without sorting

DIED_SECONDS = 3 * BEAT_SECONDS
"""A run that has not ended and gave no sign of life for this long counts as died."""

Answer = list[dict[str, Any]]


class RunLog:
    """One SQLite file (``data/runs.db`` if none is named) with a row per run and a row per step.

    Hand it to ``run_task(..., runlog=log)``, also to several runs at once. Any number of notebooks, threads
    and processes may write to one file. Writing is done by a thread of its own and never holds a run up for
    more than a quarter of a second, at its end; what could not be written is raised then as ``RunLogError``.

    ``profile``, ``kind`` and ``prompt`` describe the runs, see ``listener``. ``keep_question=True`` also keeps
    the text of the question, which is otherwise not stored.

    ``reason`` in the questions below is a stop reason (``"stopped:steps"``) or a family of them
    (``"stopped"``); other keywords choose runs: ``day="2026-10-30"``, ``profile=``, ``kind=``, ``model=``, ``prompt=``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        profile: str | None = None,
        kind: str | None = None,
        prompt: str | None = None,
        keep_question: bool = False,
    ) -> None:
        self.path = Path(path) if path is not None else project.databases() / "runs.db"
        self._labels = Labels(profile, kind, prompt, keep_question)
        self._writer = Writer(self.path)
        self._current: ContextVar[Listener | None] = ContextVar("current run", default=None)

    def listener(self, *, profile: str | None = None, kind: str | None = None, prompt: str | None = None) -> Listener:
        """What ``run_task(..., runlog=)`` takes for one run, or for several one after the other.

        ``profile``: a name for the limits, found by comparing them with ``PROFILES`` if not given;
        ``kind``: the kind of question; ``prompt``: a name for the system prompt in force, if not given its fingerprint.
        """
        own = self._labels
        labels = Labels(profile or own.profile, kind or own.kind, prompt or own.prompt, own.keep_question)
        return Listener(self._writer, labels)

    def on_event(self, event: Event) -> None:
        """Called by the loop. Runs at the same time are told apart by their thread or asyncio task."""
        listener = self._current.get()
        if listener is None or event.kind == "start":
            listener = self.listener()
        self._current.set(None if event.kind == "end" else listener)
        listener.on_event(event)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything is written that can be; False if that takes longer than ``timeout`` seconds."""
        return self._writer.flush(timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is left and let go of the file, which otherwise happens a second after the last run.

        False if that takes longer, or if a run is still open. The log can be used again afterwards.
        """
        return self._writer.close(timeout)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Write ready rows, now and all at once: for runs that come from elsewhere. Raises ``RunLogError``."""
        try:
            with closing(open_to_write(self.path)) as db:
                save(db, rows)
        except sqlite3.Error as error:
            raise explained(error, self.path) from error

    def trigger_rates(self, by: str | Sequence[str] = "day", reason: str | None = None, **where: str | None) -> Answer:
        """How often runs ended for ``reason``, or for each reason there is, per group of ended runs.

        ``by`` is one column or several. Rows: the group, ``reason``, ``runs``, ``fired`` and ``rate`` = fired / runs;
        a group in which the reason did not occur has a row with 0.
        """
        names, (chosen, values) = _names(by), _where(where)
        groups: dict[tuple[Any, ...], Counter[str]] = {}
        counted = (
            f"SELECT {_INDEXED}, COUNT(*) AS runs FROM runs WHERE stop_reason IS NOT NULL {chosen} GROUP BY {_INDEXED}"
        )
        sql = f"SELECT SUM(runs), stop_reason, {names} FROM ({counted}) GROUP BY {names}, stop_reason ORDER BY {names}"
        for runs, found, *group in self._rows(sql, values):
            groups.setdefault(tuple(group), Counter())[found] = runs
        wanted = [reason] if reason else sorted({found for counts in groups.values() for found in counts})
        return [
            {**_named(names, group), "reason": each, **_rate(counts, each)}
            for group, counts in groups.items()
            for each in wanted
        ]

    def cost_to_cap(
        self, by: str | Sequence[str] = "profile", reason: str | None = None, **where: str | None
    ) -> Answer:
        """What runs had used when a cap stopped them: the medians of their seconds and dollars.

        Rows: the group, ``reason`` (the one asked for, or else each cap's), ``runs``, ``seconds`` and ``usd`` (None if
        no run's cost is known).
        """
        names, (chosen, values) = _names(by), _where(where, reason)
        if reason is None:
            chosen, values = chosen + " AND stop_reason IN (?, ?, ?)", values + list(_CAPS)
        sql = (
            f"SELECT seconds, usd, stop_reason, {names} FROM runs WHERE stop_reason IS NOT NULL {chosen} "
            f"ORDER BY {names}, stop_reason"
        )
        groups: dict[tuple[Any, ...], tuple[list[float], list[float]]] = {}
        for seconds, usd, found, *group in self._rows(sql, values):
            all_seconds, known_usd = groups.setdefault((reason or found, *group), ([], []))
            all_seconds.append(seconds)
            if usd is not None:
                known_usd.append(usd)
        return [
            {
                **_named(names, group),
                "reason": each,
                "runs": len(all_seconds),
                "seconds": _median(all_seconds),
                "usd": _median(known_usd),
            }
            for (each, *group), (all_seconds, known_usd) in groups.items()
        ]

    def averages(self, by: str | Sequence[str] = "day", reason: str | None = None, **where: str | None) -> Answer:
        """What ended runs used on average: ``steps``, ``seconds`` and ``usd`` per run (of those whose cost is known),
        ``model_seconds`` per step and ``tool_seconds`` per tool call."""
        names, (chosen, values) = _names(by), _where(where, reason)
        rows = self._ask(
            f"SELECT {names}, COUNT(*) AS runs, AVG(steps) AS steps, AVG(seconds) AS seconds, AVG(usd) AS usd, "
            "SUM(model_seconds) / NULLIF(SUM(steps), 0) AS model_seconds, "
            "SUM(tool_seconds) / NULLIF(SUM(tool_calls), 0) AS tool_seconds "
            f"FROM runs WHERE stop_reason IS NOT NULL {chosen} GROUP BY {names} ORDER BY {names}",
            values,
        )
        return [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows]

    def runs(self, *, reason: str | None = None, limit: int | None = None, **where: str | None) -> Answer:
        """The runs behind a figure, oldest first, with their ``limits`` as a dictionary."""
        chosen, values = _where(where, reason)
        most = -1 if limit is None else limit
        rows = self._ask(f"SELECT * FROM runs WHERE TRUE {chosen} ORDER BY started, rowid LIMIT ?", [*values, most])
        return [_opened(row) for row in rows]

    def unfinished(self) -> Answer:
        """Runs that have begun but not ended, each with its ``state``: ``running`` or ``died``."""
        now = datetime.now(UTC)
        rows = self._ask("SELECT * FROM runs WHERE stop_reason IS NULL ORDER BY started, rowid", [])
        return [{**_opened(row), "state": _state(row, now)} for row in rows]

    def steps(self, run_id: str) -> Answer:
        """The steps of one run, with their ``tools`` as a list."""
        rows = self._ask("SELECT * FROM steps WHERE run_id = ? ORDER BY step", [run_id])
        return [{**row, "tools": json.loads(row["tools"])} for row in rows]

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with reading(self.path) as db:
            return db.execute(sql, values).fetchall()

    def _ask(self, sql: str, values: Sequence[Any]) -> Answer:
        with reading(self.path) as db:
            cursor = db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


def _names(by: str | Sequence[str]) -> str:
    """The columns to group by, checked, since column names cannot be parameters of a query."""
    return ", ".join(_known([by] if isinstance(by, str) else by))


def _named(names: str, group: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names.split(", "), group, strict=True))


def _where(chosen: dict[str, str | None], reason: str | None = None) -> tuple[str, list[Any]]:
    parts, values = [f" AND {name} IS ?" for name in _known(chosen)], list[Any](chosen.values())
    if reason is not None:
        parts.append(" AND (stop_reason = ? OR substr(stop_reason, 1, ?) = ?)")
        values += [reason, len(reason) + 1, f"{reason}:"]
    return "".join(parts), values


def _known(names: Iterable[str]) -> list[str]:
    listed = list(names)
    for name in listed:
        if name not in COLUMNS:
            raise ValueError(text("runlog.no_column", name=name, names=", ".join(COLUMNS)))
    return listed


def _opened(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "limits": json.loads(run["limits"])}


def _rate(counts: Counter[str], reason: str) -> dict[str, float]:
    runs = counts.total()
    fired = sum(count for found, count in counts.items() if found == reason or found.startswith(f"{reason}:"))
    return {"runs": runs, "fired": fired, "rate": fired / runs}


def _median(values: list[float]) -> float | None:
    return round(median(values), 6) if values else None


def _state(run: dict[str, Any], now: datetime) -> str:
    silent = now - datetime.fromisoformat(run["seen"])
    here = run["host"] == platform.node() and run["pid"] is not None
    return "died" if silent > timedelta(seconds=DIED_SECONDS) or (here and _gone(run["pid"])) else "running"


def _gone(pid: int) -> bool:
    """Whether this computer surely has no such process any more. Only POSIX can ask without doing harm."""
    if os.name == "posix":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
    return False
