"""What a panel holds: the limits as validated traits, and the plan loop under them. No widgets here."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import Any

import traitlets as t

from ..limits import PROFILES, Limits
from ..messages import text
from ..plan import DEMO_LIMITS, DEMO_PLAN, LogLine, PlanStep, run, stop_line

CAPS = ("max_steps", "max_seconds", "max_usd", "max_tool_calls")
"""The limits that a panel offers, by the names that ``Limits`` gives them."""


class LimitsModel(t.HasTraits):
    """Limits that a person moves: one trait each, and together one immutable ``limits`` value.

    ``limits`` is swapped whole, so ``limits=lambda: model.limits`` never shows a run a half-set value.
    ``None`` switches a cap off. A value refused later raises nothing: the old one stays and ``error`` says why.
    One refused by the constructor raises ``ValueError``.
    """

    limits = t.Instance(Limits, args=(), help="the limits in force, one immutable value")
    max_steps = t.Any(Limits().max_steps)
    max_seconds = t.Any(Limits().max_seconds)
    max_usd = t.Any(Limits().max_usd)
    max_tool_calls = t.Any(Limits().max_tool_calls)
    profile = t.Any("standard", help="the name of the profile that the limits equal, else empty")
    error = t.Unicode(help="why the last value was refused, else empty")

    def __init__(self, **traits: Any) -> None:
        self._lock = threading.RLock()  # JupyterLab may call the handlers of two widgets from two threads
        caps = {name: traits.pop(name) for name in CAPS if name in traits}
        super().__init__(**traits)
        self.limits = self.limits.change(**caps)

    @t.validate(*CAPS)
    def _check_cap(self, proposal: Any) -> Any:
        name = proposal.trait.name
        try:
            checked = self.limits.change(**{name: proposal.value})
        except ValueError as refused:
            self.error = str(refused)
            return getattr(self.limits, name)
        self.error = ""
        return getattr(checked, name)

    @t.validate("profile")
    def _check_profile(self, proposal: Any) -> Any:
        known = proposal.value == "" or proposal.value in PROFILES
        self.error = "" if known else text("panel.no_profile", name=proposal.value, names=", ".join(PROFILES))
        return proposal.value if known else _profile_of(self.limits)

    @t.observe(*CAPS)
    def _swap_limits(self, change: Any) -> None:
        with self._lock:
            self.limits = self.limits.change(**{change.name: change.new})

    @t.observe("profile")
    def _take_profile(self, change: Any) -> None:
        if change.new:
            self.limits = PROFILES[change.new]

    @t.observe("limits")
    def _spread_limits(self, change: Any) -> None:
        with self._lock:
            for name in CAPS:
                setattr(self, name, getattr(self.limits, name))
            self.profile = _profile_of(self.limits)


def _profile_of(limits: Limits) -> str:
    return next((name for name, profile in PROFILES.items() if profile == limits), "")


class PlanModel(LimitsModel):
    """The plan loop under limits that a person moves; ``reason``, ``steps``, ``log`` and ``line`` follow at once.

    ``plan_text`` is the plan as an instructor edits it, one ``name, seconds, usd`` per line. While it cannot be
    read, ``plan_error`` says where and ``plan`` stays as it was.
    """

    plan_text = t.Unicode()
    plan_error = t.Unicode()
    plan = t.Any((), read_only=True, help="the steps that plan_text describes")

    def __init__(self, plan: Iterable[PlanStep] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        if plan is not None or not self.plan_text:
            self.plan_text = write_plan(demo_plan() if plan is None else plan)

    @t.observe("plan_text")
    def _take_plan(self, change: Any) -> None:
        try:
            plan = read_plan(change.new)
        except ValueError as unreadable:
            self.plan_error = str(unreadable)
        else:
            self.plan_error = ""
            self.set_trait("plan", plan)

    @property
    def outcome(self) -> tuple[str, int, list[LogLine]]:
        """The stop reason, the number of steps done, and a line per step done: what ``agentlib.plan.run`` returns."""
        return run(self.plan, self.limits)

    @property
    def line(self) -> str:
        """The stop line as ``python -m agentlib.plan`` prints it; its four sets of limits have their own labels."""
        reason, steps, _ = self.outcome
        known = (name for name, limits in DEMO_LIMITS.items() if all(self._equals(limits, cap) for cap in CAPS[:3]))
        name = next(known, None)
        return stop_line(text(f"plan.{name}" if name else "panel.plan_label"), reason, steps)

    def _equals(self, limits: Limits, cap: str) -> bool:
        return bool(getattr(limits, cap) == getattr(self.limits, cap))


def demo_plan() -> list[PlanStep]:
    """The plan of ``python -m agentlib.plan``, its steps named in the language in force."""
    return [{**step, "name": text("panel.plan_step", n=n)} for n, step in enumerate(DEMO_PLAN, 1)]


def write_plan(plan: Iterable[PlanStep]) -> str:
    """The plan as lines that a person can edit; ``read_plan`` reads them back."""
    return "\n".join(f"{' '.join(s['name'].split())}, {s['seconds']!r}, {s['usd']!r}" for s in plan)


def read_plan(lines: str) -> list[PlanStep]:
    """The steps of a plan from lines of ``name, seconds, usd``. ``ValueError`` says which line is wrong and why."""
    plan = list[PlanStep]()
    for number, line in enumerate(lines.splitlines(), 1):
        if not line.strip():
            continue
        parts = line.replace("，", ",").rsplit(",", 2)
        if len(parts) != 3:
            raise ValueError(text("panel.plan_fields", line=number))
        name, seconds, usd = (part.strip() for part in parts)
        plan.append({"name": name, "seconds": _figure(seconds, number), "usd": _figure(usd, number)})
    return plan


def _figure(written: str, line: int) -> float:
    try:
        value = float(written.lstrip("$"))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(text("panel.plan_figure", line=line, value=written))
    return value
