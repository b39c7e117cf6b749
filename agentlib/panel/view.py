"""The two panels as widgets: what a class sees and what an instructor turns."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import ipywidgets as w

from ..charts import caps_chart
from ..limits import PROFILES, Limits
from ..messages import text
from ..results import TaskResult
from ..waiting import HAS_THREADS
from . import html, words
from .controls import WIDE, Panel, bound, cap_row, choice, label, push
from .model import CAPS, PlanModel
from .run import RunModel


def _columns(left: list[w.Widget], right: list[w.Widget]) -> w.Box:
    one, two = w.VBox(left), w.VBox(right)
    one.add_class("al-left")
    two.add_class("al-right")
    box = w.Box([one, two])
    box.add_class("al-columns")
    return box


class PlanPanel(Panel):
    """What if: the plan loop under limits that move. The stop line and the bars follow at once."""

    model: PlanModel

    def __init__(self, model: PlanModel) -> None:
        super().__init__(model)
        self.line, self.bars, self.why, self.error = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        left = [
            label("title_limits", "heading"),
            *(cap_row(self, name) for name in CAPS[:3]),
            choice(self, "profile", list(PROFILES)),
            label("plan_hint"),
            bound(self, w.Textarea(rows=6, layout=WIDE), "plan_text"),
            self.error,
        ]
        right = [label("title_plan", "heading"), self.line, self.bars, self.why]
        self.children = [w.HTML(html.style()), _columns(left, right)]
        self.watch(self._draw, "limits", "plan")
        self.watch(self._warn, "error", "plan_error")

    def _draw(self, change: Any) -> None:
        plan, limits = self.model.plan, self.model.limits
        reason, steps, log = self.model.outcome
        self.line.value = html.note(self.model.line, "line")
        self.bars.value = html.plan_bars(plan, limits, reason, steps)
        self.why.value = html.note(words.plan_ending(plan, limits, reason, log), "why")

    def _warn(self, change: Any) -> None:
        self.error.value = html.note(self.model.plan_error or self.model.error, "error")


class RunPanel(Panel):
    """The live panel of a running agent. The newest one wins: it closes the one before it and stops its run."""

    model: RunModel
    _newest: ClassVar[RunPanel | None] = None

    def __init__(self, model: RunModel) -> None:
        if RunPanel._newest:
            RunPanel._newest.close()
        super().__init__(model)
        RunPanel._newest = self
        self.bars, self.counter, self.lines, self.ending = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        self.status, self.error, self.chart = w.HTML(), w.HTML(), w.HTML()
        self.lines.add_class("al-scroll")
        self.chart.add_class("al-chart")
        right = [label("title_run", "heading"), self.bars, self.ending, self.counter, self.lines]
        self.children = [w.HTML(html.style()), _columns(self._controls(), right), self.chart]
        self.watch(self._draw_bars, "progress", "limits", "status")
        self.watch(self._draw_log, "log")
        self.watch(self._draw_ending, "status")
        self.watch(self._draw_chart, "status")
        self.watch(self._draw_status, "status", "error")

    def _controls(self) -> list[w.Widget]:
        model = self.model
        start = push(self, "start", model.start, lambda: model.running, icon="play", button_style="primary")
        stop = push(self, "stop", model.stop, lambda: model.status == "stopping", icon="stop", button_style="warning")
        buttons = w.HBox([start, stop])
        buttons.add_class("al-buttons")
        return [
            label("title_limits", "heading"),
            *(cap_row(self, name) for name in CAPS),
            choice(self, "profile", list(PROFILES)),
            label("scenario"),
            choice(self, "scenario", model.scenarios()),
            label("question"),
            bound(self, w.Textarea(rows=2, layout=WIDE), "question"),
            buttons,
            self.status,
            self.error,
        ]

    def _draw_bars(self, change: Any) -> None:
        model = self.model
        summary = (model.result or {}).get("summary")
        limits = Limits(**summary["limits"]) if summary else model.limits  # a finished run keeps those it ended under
        self.bars.value = html.run_bars(model.progress, limits, summary and summary.get("stop"))
        self.counter.value = html.counter(model.progress)

    def _draw_log(self, change: Any) -> None:
        self.lines.value = html.log(self.model.log)

    def _draw_ending(self, change: Any) -> None:
        summary = (self.model.result or {}).get("summary", {})
        said = "answer" if "answer" in summary else "interim"
        speech = summary.get("answer") or summary.get("interim_text") or ""
        self.ending.value = html.ending(self.model.reason, self.model.ending, speech, text(f"panel.{said}"))

    def _draw_chart(self, change: Any) -> None:
        """The chart of the finished run. Drawn beside the kernel's loop: the first one takes matplotlib seconds."""
        self.chart.value = ""
        result = self.model.result
        if result and HAS_THREADS:
            threading.Thread(target=self._put_chart, args=(result,)).start()
        elif result:
            self._put_chart(result)

    def _put_chart(self, result: TaskResult) -> None:
        try:
            drawn = caps_chart(result).html
        except Exception as broken:
            drawn = html.note(text("panel.no_chart", why=broken))
        if self.model.result is result:
            self.chart.value = drawn

    def _draw_status(self, change: Any) -> None:
        self.status.value = html.note(text(f"panel.status_{self.model.status}"), "status")
        self.error.value = html.note(self.model.error, "error")

    def close(self) -> None:
        """Stop the run and leave nothing behind."""
        if self.comm is None:  # closed before; as garbage a widget closes itself again, whoever has the model now
            return
        self.model.close()
        if RunPanel._newest is self:
            RunPanel._newest = None
        super().close()
