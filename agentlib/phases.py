"""The phase map: which cap ends a plan, for every pair of a step cap and a money cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .charts import number, sums_of
from .drawing import LOOKS, Drawing, Grid, every
from .limits import Limits, exact
from .messages import text
from .plan import PlanStep, run
from .results import TaskResult

_NO_CAPS = Limits(None, None, None, None, None, None)


@dataclass(frozen=True)
class PhaseMap:
    """``reasons[i][j]`` ends the plan under ``usd_axis[i]`` and ``steps_axis[j]``, after ``steps[i][j]`` steps."""

    steps_axis: tuple[int | None, ...]
    usd_axis: tuple[float | None, ...]
    max_seconds: float | None
    reasons: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[int, ...], ...]

    def counts(self) -> dict[str, int]:
        """How many cells each reason has, the most frequent first."""
        return dict(Counter(reason for row in self.reasons for reason in row).most_common())


def phase_map(
    plan: Iterable[PlanStep],
    steps_axis: Sequence[int | None],
    usd_axis: Sequence[float | None],
    max_seconds: float | None = None,
) -> PhaseMap:
    """What ``run(plan, Limits(max_steps, max_seconds, max_usd))`` says in each cell, without running each cell.

    The caps do not touch each other: each forbids its first step alone, whatever the others say. So the plan runs once
    per value on an axis, and in a cell the cap that stops earliest wins; of two at the same step, the one that
    ``decide`` looks at first.
    """
    plan = list(plan)

    def alone(order: int, limits: Limits) -> tuple[int, int, str]:
        reason, steps, _ = run(plan, limits)
        return steps, order if reason != "done" else 3, reason

    by_steps = [alone(0, _NO_CAPS.change(max_steps=value)) for value in steps_axis]
    by_time = alone(1, _NO_CAPS.change(max_seconds=max_seconds))
    by_usd = [alone(2, _NO_CAPS.change(max_usd=value)) for value in usd_axis]
    cells = [[min(a, by_time, b) for a in by_steps] for b in by_usd]
    return PhaseMap(
        tuple(steps_axis),
        tuple(usd_axis),
        max_seconds,
        tuple(tuple(reason for _, _, reason in row) for row in cells),
        tuple(tuple(steps for steps, _, _ in row) for row in cells),
    )


def plan_of(result: TaskResult) -> list[PlanStep]:
    """The steps that a recorded run took, as a plan: what each used in seconds and dollars.

    Nothing is known of the steps after the last: a map of a stopped run says ``done`` where all recorded steps fit.
    Raises ``ValueError`` where a cost is unknown, for the unknown is not zero.
    """
    plan, seconds, usd = list[PlanStep](), 0.0, 0.0
    for step, line in enumerate(sums_of(result), start=1):
        if line.max_usd is None:
            raise ValueError(text("phases.no_cost", step=step))
        name = text("phases.step", step=step)
        plan.append({"name": name, "seconds": _minus(line.max_seconds, seconds), "usd": _minus(line.max_usd, usd)})
        seconds, usd = line.max_seconds, line.max_usd
    return plan


def _minus(a: float, b: float) -> float:
    return float(exact(a) - exact(b))


def phase_map_chart(phases: PhaseMap) -> Drawing:
    """The map as a picture; its numbers are a sample of the cells, one letter each."""
    counts = phases.counts()
    cells = sum(counts.values())
    x = tuple(_axis(value) for value in phases.steps_axis)
    y = tuple(_axis(value) for value in phases.usd_axis)
    columns, rows = every(len(x), 20), every(len(y), 12)
    seconds = _axis(phases.max_seconds)
    items = text("charts.comma").join(
        text("phases.item", reason=reason, share=f"{count / cells:.0%}") for reason, count in counts.items()
    )
    return Drawing(
        Grid(
            text("phases.title", seconds=seconds),
            "max_steps",
            "max_usd",
            x,
            y,
            phases.reasons,
            tuple((r, r) for r in LOOKS if r in counts),
        ),
        text("phases.alt", items=items, steps=f"{x[0]}–{x[-1]}", usd=f"{y[0]}–{y[-1]}", seconds=seconds),
        (r"max_usd \ max_steps", *(x[j] for j in columns)),
        tuple((y[i], *(_letter(phases.reasons[i][j]) for j in columns)) for i in reversed(rows)),
    )


def _axis(value: float | None) -> str:
    return text("charts.no_limit") if value is None else number(value)


def _letter(reason: str) -> str:
    return reason.removeprefix("stopped:")[0].upper()
