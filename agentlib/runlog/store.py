"""The SQLite file under the run log: its rows, how it is opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path

from .. import project
from ..messages import text

SCHEMA_VERSION = 1
_APPLICATION = 0x41474C42  # "AGLB": tells a run log from anybody else's SQLite file


@dataclass
class RunRow:
    """One run. ``stop_reason`` is None until it has ended; ``usd`` is None when the cost is unknown."""

    id: str
    started: str
    """UTC, ISO 8601: ``2026-10-30T09:14:03.120Z``."""
    seen: str
    """The last sign of life, in the same form."""
    task_id: str | None = None
    profile: str | None = None
    kind: str | None = None
    model: str | None = None
    prompt: str | None = None
    """A short name for the system prompt in force, so that a change of prompt can be seen."""
    stop_reason: str | None = None
    steps: int = 0
    tool_calls: int = 0
    requests: int = 0
    seconds: float = 0.0
    usd: float | None = None
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    limits: str = "{}"
    """The limits in force, as JSON: at the start, and once the run has ended those at its end."""
    question: str | None = None
    host: str | None = None
    pid: int | None = None
    day: str = field(init=False)
    """The day in UTC on which the run started: by this runs are counted."""

    def __post_init__(self) -> None:
        self.day = self.started[:10]


@dataclass
class StepRow:
    """One step of a run, also one that was begun but cut before a reply came (``run.steps`` counts replies).

    ``model_seconds`` is the wait for the model, retries included. Unknown is None, not 0.
    """

    run_id: str
    step: int
    model_seconds: float = 0.0
    usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    requests: int = 0
    tools: str = "[]"
    """JSON: ``{"tool", "status", "code", "seconds"}`` per call; status null: the call never ended."""
    tool_seconds: float = 0.0


@dataclass
class SeenRow:
    """A sign of life of a run that goes on."""

    id: str
    seen: str


Row = RunRow | StepRow | SeenRow

_SCHEMA = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, day TEXT NOT NULL, started TEXT NOT NULL, seen TEXT NOT NULL,
        task_id TEXT, profile TEXT, kind TEXT, model TEXT, prompt TEXT, stop_reason TEXT,
        steps INTEGER NOT NULL, tool_calls INTEGER NOT NULL, requests INTEGER NOT NULL,
        seconds REAL NOT NULL, usd REAL, model_seconds REAL NOT NULL, tool_seconds REAL NOT NULL,
        limits TEXT NOT NULL, question TEXT, host TEXT, pid INTEGER)""",
    """CREATE TABLE steps (
        run_id TEXT NOT NULL, step INTEGER NOT NULL, model_seconds REAL NOT NULL, usd REAL,
        input_tokens INTEGER, output_tokens INTEGER, requests INTEGER NOT NULL,
        tools TEXT NOT NULL, tool_seconds REAL NOT NULL, PRIMARY KEY (run_id, step)) WITHOUT ROWID""",
    "CREATE INDEX runs_counted ON runs (day, stop_reason, profile, kind, model, prompt)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def _upsert(table: str, row: type[RunRow] | type[StepRow], key: str) -> str:
    names = [each.name for each in fields(row)]
    marks, changes = ", ".join(f":{n}" for n in names), ", ".join(f"{n} = excluded.{n}" for n in names)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}"


_SAVE: dict[type[Row], str] = {
    RunRow: _upsert("runs", RunRow, "id"),
    StepRow: _upsert("steps", StepRow, "run_id, step"),
    SeenRow: "UPDATE runs SET seen = :seen WHERE id = :id AND stop_reason IS NULL",
}


class RunLogError(Exception):
    """The run log could not be read or written. ``code`` is for programs, the sentence for people.

    Codes: ``LOCKED``, ``LATE``, ``READ_ONLY``, ``DISK_FULL``, ``NOT_FOUND``, ``NOT_A_RUN_LOG``, ``OTHER_VERSION``,
    ``FAILED``. ``LATE`` alone is no loss: the run is written as soon as the file is free.
    """

    def __init__(self, code: str, path: Path, **values: object) -> None:
        super().__init__(text(f"runlog.{code.lower()}", file=shown(path), **values))
        self.code = code


def shown(path: Path) -> str:
    """The file's name for people: seen from the folder above ``data``, if it lies in there."""
    full, root = path.resolve(), project.databases().parent.resolve()
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else str(path)


_CODES = {
    sqlite3.SQLITE_BUSY: "LOCKED",
    sqlite3.SQLITE_LOCKED: "LOCKED",
    sqlite3.SQLITE_READONLY: "READ_ONLY",
    sqlite3.SQLITE_PERM: "READ_ONLY",
    sqlite3.SQLITE_FULL: "DISK_FULL",
    sqlite3.SQLITE_NOTADB: "NOT_A_RUN_LOG",
    sqlite3.SQLITE_CORRUPT: "NOT_A_RUN_LOG",
}


def explained(error: Exception, path: Path) -> RunLogError:
    """Whatever went wrong with the file, as one of our own errors."""
    if isinstance(error, RunLogError):
        return error
    kind = _kind(error)
    if kind == sqlite3.SQLITE_CANTOPEN and path.parent.is_dir() and not _may_write(path.parent):
        return RunLogError("READ_ONLY", path)
    return RunLogError(_CODES.get(kind, "FAILED"), path, reason=error)


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _kind(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the detail in the high bytes


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open the log, and make it first if the file is new. Readers then do not wait for writers.

    Raises ``RunLogError`` for a file that is something else, and leaves that as it is.
    """
    db = _connect(path, "mode=rwc", wait=0.1)
    try:
        db.execute("PRAGMA synchronous = NORMAL")  # with WAL: a killed process loses nothing that was committed
        if _is_new(db, path):
            db.execute("PRAGMA journal_mode = WAL")
            with transaction(db):
                if _is_new(db, path):  # nobody else has made it in between
                    for statement in _SCHEMA:
                        db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The log, open to be read; every SQLite error leaves as a ``RunLogError``."""
    if not path.exists():
        raise RunLogError("NOT_FOUND", path)
    try:
        with closing(_open_to_read(path)) as db:
            yield db
    except sqlite3.Error as error:
        raise explained(error, path) from error


def save(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write the rows in one short transaction: all of them or none."""
    with transaction(db):
        for kind, alike in groupby(rows, type):
            db.executemany(_SAVE[kind], map(vars, alike))


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """One write transaction, undone if anything in it fails."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _connect(path: Path, options: str, wait: float) -> sqlite3.Connection:
    address = f"{path.resolve().as_uri()}?{options}"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=wait)


def _open_to_read(path: Path) -> sqlite3.Connection:
    db = _connect(path, "mode=rw", wait=2.0)
    try:
        new = _is_new(db, path)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error) and _kind(error) == sqlite3.SQLITE_READONLY:
            return _connect(path, "immutable=1", wait=2.0)  # a folder in which SQLite may not put its side files
        raise
    if new:
        db.close()
        raise RunLogError("NOT_A_RUN_LOG", path)
    db.execute("PRAGMA query_only = ON")
    return db


def _is_new(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is still empty. Raises ``RunLogError`` unless it is that or a log of this version."""
    made_by, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if made_by == _APPLICATION:
        if version != SCHEMA_VERSION:
            raise RunLogError("OTHER_VERSION", path, version=version, known=SCHEMA_VERSION)
        return False
    if made_by or version or db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        raise RunLogError("NOT_A_RUN_LOG", path)
    return True
