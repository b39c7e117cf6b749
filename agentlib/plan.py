"""The capped loop with no model in it: a plan of steps, each with its seconds and its dollars.

``python -m agentlib.plan`` prints how six equal steps end under four sets of limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Literal, TypedDict

from .limits import Limits, LimitsSource, Quote, Usage, add, decide, exact
from .messages import suit_the_console, text


class PlanStep(TypedDict):
    """One step that will surely be done like this: no guess, no model."""

    name: str
    seconds: float
    usd: float


class LogLine(TypedDict):
    """A step that was done, with the sums after it."""

    name: str
    steps: int
    seconds: float
    usd: float


def run(plan: Iterable[PlanStep], limits: LimitsSource) -> tuple[str, int, list[LogLine]]:
    """Do the steps of ``plan`` while every cap allows the next one.

    Returns the stop reason, the number of steps done, and for each of them a line with the
    sums so far. ``limits`` may be a callable: it is asked anew before each step. Raises
    ``ValueError`` at a step whose figures are unknown, negative or not finite.
    """
    used, log = Usage(), list[LogLine]()
    for step in plan:
        seconds, usd = _figure(step, "seconds"), _figure(step, "usd")
        now = limits() if callable(limits) else limits
        stop = decide(now, used, Quote(seconds, usd))
        if stop:
            return stop.reason, used.steps, log
        used.steps, used.requests = used.steps + 1, used.requests + 1
        used.seconds, used.usd = add(used.seconds, seconds), add(used.usd, usd)
        took, paid = float(used.seconds), float(used.usd)
        log.append(LogLine(name=step["name"], steps=used.steps, seconds=took, usd=paid))
    return "done", used.steps, log


def _figure(step: PlanStep, key: Literal["seconds", "usd"]) -> Decimal:
    try:
        value = exact(step[key])
    except InvalidOperation:
        value = Decimal("NaN")
    if value.is_finite() and value >= 0:
        return value
    raise ValueError(text("plan.bad_figure", name=step["name"], key=key, value=step[key]))


DEMO_PLAN: list[PlanStep] = [{"name": f"step {n}", "seconds": 5.0, "usd": 0.005} for n in range(1, 7)]
"""Six steps of five seconds and half a cent each."""

DEMO_LIMITS = {
    "default": Limits(),
    "time": Limits(10, 12.0, 1.0),
    "budget": Limits(10, 100.0, 0.012),
    "open": Limits(10, 100.0, 1.0),
}
"""Four sets of limits, each of which ends the demo plan in another way."""


def stop_line(label: str, reason: str, steps: int) -> str:
    """How a run ended, in one line for people."""
    return text("plan.line", label=label, reason=reason, steps=steps)


def main() -> None:
    """Print the four endings of the demo plan."""
    for name, limits in DEMO_LIMITS.items():
        reason, steps, _ = run(DEMO_PLAN, limits)
        print(stop_line(text(f"plan.{name}"), reason, steps))


if __name__ == "__main__":
    from argparse import ArgumentParser

    suit_the_console()
    ArgumentParser(prog="python -m agentlib.plan", description=text("plan.description")).parse_args()
    main()
