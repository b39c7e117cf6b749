"""What the run log costs: per event, at the end of a run, and for a question to 100,000 runs.

Run it with ``python bench/bench_runlog.py``. The ratio compares a question with counting the same rows in Python,
so that it says the same on a slow computer.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from runlog_runs import whole_run  # type: ignore[import-not-found]

from agentlib.limits import PROFILES
from agentlib.runlog import RunLog, RunRow
from agentlib.runlog.store import reading

RUNS = 100_000
MOST_SECONDS = 0.2


def many_runs(count: int) -> Iterator[RunRow]:
    """Four weeks of ended runs."""
    dice = random.Random(1)
    for number in range(count):
        started = f"2026-10-{1 + 28 * number // count:02}T12:00:00.000Z"
        row = RunRow(
            f"{number:08}", started, started, stop_reason=dice.choice(["done", "stopped:steps", "stopped:time"])
        )
        row.profile, row.kind, row.usd = dice.choice(list(PROFILES)), dice.choice(["totals", "ranking"]), dice.random()
        yield row


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The median of a few tries."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return median(once() for _ in range(times))


def counted_in_python(log: RunLog) -> dict[str, Counter[str]]:
    """The same question without SQL: read every run, count in a dictionary."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with reading(log.path) as db:
        for day, reason in db.execute("SELECT day, stop_reason FROM runs"):
            counts[day][reason] += 1
    return counts


def bench_events(log: RunLog) -> None:
    """How long the run itself is held up."""
    one, inside, ends = log.listener(), list[float](), list[float]()
    for _ in range(200):
        for event in whole_run(steps=4):
            taken = seconds(lambda event=event: one.on_event(event), times=1)  # type: ignore[misc]
            (ends if event.kind == "end" else inside).append(taken)
    print(f"an event: {median(inside) * 1e6:.0f} µs; the end of a run, written to disk: {median(ends) * 1e3:.1f} ms")


def main() -> int:
    """Measure and print; 1 if the rates of 100,000 runs take longer than promised."""
    with tempfile.TemporaryDirectory() as folder, RunLog(Path(folder) / "runs.db") as log:
        bench_events(log)
        print(f"{RUNS:,} runs written in {seconds(lambda: log.add(many_runs(RUNS)), times=1):.1f} s")
        base = seconds(lambda: counted_in_python(log))
        questions: dict[str, Callable[[], object]] = {
            'trigger_rates("day", "stopped:steps")': lambda: log.trigger_rates("day", "stopped:steps"),
            'trigger_rates(("day", "profile"))': lambda: log.trigger_rates(("day", "profile")),
            'trigger_rates("kind", "stopped:steps")': lambda: log.trigger_rates("kind", "stopped:steps"),
            'runs(day="2026-10-05", reason="stopped:time")': lambda: log.runs(day="2026-10-05", reason="stopped:time"),
            "averages()": log.averages,
            "cost_to_cap()": log.cost_to_cap,
        }
        taken = {name: seconds(question) for name, question in questions.items()}
        for name, each in taken.items():
            print(f"{name:46} {each * 1e3:6.0f} ms  {each / base:5.2f} × counting in Python")
    return int(max(value for name, value in taken.items() if name.startswith("trigger_rates")) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
