"""Two weeks of made-up runs for lesson 08, as a real run log: ``data/two_weeks.db``.

Ground truth: on 2026-10-30 the rate of ``stopped:steps`` jumps because the TASKS got harder: month end brings
questions that compare several files. Neither the prompt (changed on 2026-10-28) nor the tool is the cause: within one
kind of question the rate stays as it was, and a tool call takes as long as before.

The seed fixes every figure. Why a run ended is not made up: a run is a plan of steps here, and ``agentlib.plan.run``
decides under the limits of its profile; only now and then something from outside ends it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from .. import plan, project
from ..limits import PROFILES
from .log import RunLog
from .store import RunRow, StepRow
from .writer import timestamp

T = TypeVar("T")

SEED = 8
FIRST_DAY = datetime(2026, 10, 19, tzinfo=UTC)  # a Monday
DAYS = 14
NEW_PROMPT = datetime(2026, 10, 28, tzinfo=UTC)
MONTH_END = datetime(2026, 10, 30, tzinfo=UTC)


class Kind(NamedTuple):
    """A kind of question: the steps that it needs, how long one tool call takes, how much there is to read."""

    fewest_steps: int
    most_steps: int
    tool_seconds: float
    tokens: int
    usual_share: int
    month_end_share: int


KINDS = {
    "totals": Kind(2, 3, 0.12, 500, usual_share=52, month_end_share=17),
    "ranking": Kind(2, 5, 0.16, 700, usual_share=36, month_end_share=18),
    "compare-files": Kind(4, 9, 0.30, 2000, usual_share=12, month_end_share=65),
}
PROFILE_SHARES = {"conservative": 20, "standard": 55, "relaxed": 25}
OUTSIDE = {None: 975, "failed:model": 12, "stopped:user": 10, "died": 3}


def make_runs(path: Path | None = None) -> Path:
    """The file with the two weeks, made anew if it is missing or older than this module."""
    path = path or project.databases() / "two_weeks.db"
    if not path.exists() or path.stat().st_mtime < Path(__file__).stat().st_mtime:
        draft = path.with_name(f"{path.stem}.{os.getpid()}.draft.db")
        draft.unlink(missing_ok=True)
        RunLog(draft).add(two_weeks())
        draft.replace(path)  # whole or not at all, also when several kernels do this at once
    return path


def two_weeks() -> Iterator[RunRow | StepRow]:
    """Every run with its steps, in the order of time."""
    dice = random.Random(SEED)
    for number in range(DAYS):
        day = FIRST_DAY + timedelta(days=number)
        runs = dice.randint(60, 70) if day.weekday() >= 5 else dice.randint(95, 120)
        for second in sorted(dice.sample(range(7 * 3600, 19 * 3600), runs)):
            yield from one_run(dice, day, day + timedelta(seconds=second))


def one_run(dice: random.Random, day: datetime, started: datetime) -> Iterator[RunRow | StepRow]:
    """One run: what is asked, which steps that would take, and how far the limits let it come."""
    kind = pick(dice, {k: v.month_end_share if day == MONTH_END else v.usual_share for k, v in KINDS.items()})
    profile = pick(dice, PROFILE_SHARES)
    run = RunRow(f"{dice.getrandbits(64):016x}", started=timestamp(started), seen=timestamp(started))
    run.task_id, run.kind, run.profile = f"task-{run.id[:8]}", kind, profile
    run.prompt = "v4" if day >= NEW_PROMPT else "v3"
    run.model, run.limits = "made-up-model", json.dumps(PROFILES[profile].as_dict())

    steps = list(steps_needed(dice, run.id, KINDS[kind]))
    run.stop_reason, done, _ = plan.run([as_planned(step) for step in steps], PROFILES[profile])
    outside = pick(dice, OUTSIDE)
    if outside:
        run.stop_reason = None if outside == "died" else outside
        done = dice.randint(1, done)
    add_up(run, steps[:done])
    yield run
    yield from steps[:done]


def steps_needed(dice: random.Random, run_id: str, kind: Kind) -> Iterator[StepRow]:
    """The steps that lead to an answer: a tool call in each but the last."""
    last = dice.randint(kind.fewest_steps, kind.most_steps)
    for number in range(1, last + 1):
        step = StepRow(run_id, number, requests=1)
        step.model_seconds = round(dice.lognormvariate(-0.1, 0.35) * pick(dice, {1: 96, 6: 4}), 3)
        step.input_tokens = kind.tokens + 300 * number + dice.randint(0, 200)
        step.output_tokens = dice.randint(60, 200)
        step.usd = (step.input_tokens * 1 + step.output_tokens * 4) / 1_000_000
        if number < last:
            step.tool_seconds = round(kind.tool_seconds * dice.uniform(0.8, 1.2), 3)
            error = pick(dice, {None: 97, "FILE_NOT_FOUND": 3})
            call = {"tool": "analyze_csv", "status": "error" if error else "ok", "code": error}
            step.tools = json.dumps([{**call, "seconds": step.tool_seconds}])
        yield step


def as_planned(step: StepRow) -> plan.PlanStep:
    """A step in the form that the plan loop takes."""
    seconds = round(step.model_seconds + step.tool_seconds, 3)
    return {"name": f"step {step.step}", "seconds": seconds, "usd": step.usd or 0.0}


def add_up(run: RunRow, steps: list[StepRow]) -> None:
    """Write the sums of the steps into the run's row."""
    run.steps = run.requests = len(steps)
    run.tool_calls = sum(len(json.loads(step.tools)) for step in steps)
    run.model_seconds = round(sum(step.model_seconds for step in steps), 3)
    run.tool_seconds = round(sum(step.tool_seconds for step in steps), 3)
    run.seconds = round(run.model_seconds + run.tool_seconds, 3)
    run.usd = round(sum(step.usd or 0.0 for step in steps), 6)


def pick(dice: random.Random, shares: Mapping[T, int]) -> T:
    """One of the keys, each as often as its share says."""
    return dice.choices(list(shares), list(shares.values()))[0]
