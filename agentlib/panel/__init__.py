"""Turn the limits live: a panel for a running agent, and a what-if view of the plan loop.

In a notebook::

    from agentlib.panel import plan_panel, run_panel

    plan_panel()        # sliders over the plan loop: the stop line and the bars change at once
    run_panel()         # Start, move a limit while the agent runs, Stop

The models behind them are plain Python and work without any widget, for instance in a cell whose
output must be exact. Here a "hand" lowers the step cap when the second step begins::

    from agentlib.offline import TurnableClock, scenario
    from agentlib.panel import RunModel

    model = RunModel(question="Which category has the highest revenue?", max_steps=6)

    def hand(event):
        if event.kind == "step" and event.step == 2:
            model.max_steps = 3

    model.start(client=scenario("runaway", clock=TurnableClock()), on_event=hand)
    result = await model.finished()
    print(result["summary"]["stop_reason"], model.ending)

One rule for running a cell twice: **the newest panel wins**. Building a run panel closes the one before
it and stops its run. A refused value keeps the old one and says why in ``model.error``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .model import LimitsModel, PlanModel
from .run import RunModel
from .story import LogLine, Progress

if TYPE_CHECKING:
    from .view import PlanPanel, RunPanel

__all__ = ["LimitsModel", "LogLine", "PlanModel", "Progress", "RunModel", "plan_panel", "run_panel"]


def run_panel(model: RunModel | None = None, **traits: Any) -> RunPanel:
    """The live panel of a running agent, for ``model`` or a new ``RunModel(**traits)``."""
    from .view import RunPanel

    return RunPanel(model or RunModel(**traits))


def plan_panel(plan: Any = None, **traits: Any) -> PlanPanel:
    """The what-if view of the plan loop: ``plan`` is a list of steps, a ``PlanModel``, or None for the usual six."""
    from .view import PlanPanel

    if isinstance(plan, PlanModel):
        return PlanPanel(plan)
    return PlanPanel(PlanModel(**traits) if plan is None else PlanModel(plan=plan, **traits))
