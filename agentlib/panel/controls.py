"""The controls that both panels share: one row per cap, and the profiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ipywidgets as w

from ..messages import text
from . import html, words
from .model import LimitsModel

MONEY = (0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.012, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The stops of the money slider: fine where an agent's step is paid for, and 0 among them."""

WIDE = {"width": "auto"}


class Panel(w.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A box of controls over a model. ``close`` takes the handlers off the model and every widget off the page."""

    def __init__(self, model: LimitsModel) -> None:
        super().__init__()
        self.model = model
        self._watched: list[tuple[Callable[[Any], None], list[str]]] = []
        self.add_class("agentlab-panel")
        self.add_class(f"al-{type(self).__name__}")

    def watch(self, handler: Callable[[Any], None], *names: str) -> None:
        """Call ``handler`` now and whenever one of the model's traits changes. What goes wrong in it is shown."""
        safe = self.guarded(handler)
        self.model.observe(safe, names=list(names))
        self._watched.append((safe, list(names)))
        safe(None)

    def guarded(self, handler: Callable[[Any], object]) -> Callable[[Any], None]:
        """The handler, its exceptions turned into the model's ``error``: widgets would swallow them."""

        def safe(change: Any) -> None:
            try:
                handler(change)
            except Exception as broken:
                self.model.error = text("panel.crashed", kind=type(broken).__name__, message=broken)

        return safe

    def __repr__(self) -> str:
        """What stands on a page without a kernel, where nothing moves."""
        return text("panel.saved")

    def close(self) -> None:
        """Leave nothing behind."""
        for handler, names in self._watched:
            self.model.unobserve(handler, names=names)
        self._watched.clear()
        for widget in reversed(list(_tree(self))):
            if widget is not self:
                widget.close()
        super().close()


def _tree(widget: w.Widget) -> Iterator[w.Widget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _tree(child)
    for part in ("style", "layout"):
        if isinstance(getattr(widget, part, None), w.Widget):
            yield getattr(widget, part)


class Quiet:
    """``with quiet``: this thread is setting a widget itself; while ``quiet`` is true, no person did what is heard."""

    _thread: int | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._thread = None

    def __bool__(self) -> bool:
        return self._thread == threading.get_ident()


def cap_row(panel: Panel, name: str) -> w.HBox:
    """A switch that bears the cap's name, and a slider for its value; without its tick there is no such limit."""
    label, slider, quiet = text(f"panel.{name}"), _slider(name), Quiet()
    switch = w.Checkbox(description=label, indent=False, tooltip=text("panel.switch_tip", name=name))
    slider.tooltip = name

    def moved(change: Any) -> None:
        if not quiet:
            setattr(panel.model, name, slider.value if switch.value else None)
            show(None)

    def show(change: Any) -> None:
        value = getattr(panel.model, name)
        with quiet:
            switch.value, slider.disabled = value is not None, value is None
            if value is not None:
                _set(slider, value)

    slider.observe(panel.guarded(moved), names="value")
    switch.observe(panel.guarded(moved), names="value")
    panel.watch(show, name)
    row = w.HBox([switch, slider])
    for widget, part in ((row, "al-cap"), (slider, f"al-{name}"), (switch, f"al-{name}-on")):
        widget.add_class(part)
    return row


def push(
    panel: Panel, name: str, action: Callable[[], object], down: Callable[[], bool], **look: Any
) -> w.ToggleButton:
    """A button that does something, and stays pressed as long as ``down`` says so.

    Not a ``Button``: JupyterLab delivers its clicks on another way than the values of all other controls,
    so that a click may overtake the value that was set before it.
    """
    button, quiet = w.ToggleButton(description=text(f"panel.{name}"), **look), Quiet()

    def pressed(change: Any) -> None:
        if not quiet:
            action()
            show(None)

    def show(change: Any) -> None:
        with quiet:
            button.value = down()

    button.observe(panel.guarded(pressed), names="value")
    panel.watch(show, "status")
    button.add_class(f"al-{name}")
    return button


def _slider(name: str) -> w.Widget:
    if name == "max_usd":
        return w.SelectionSlider(options=_stops(MONEY))
    if name == "max_seconds":
        return w.FloatSlider(min=0, max=60, step=0.5, readout_format=".1f")
    return w.IntSlider(min=0, max=12 if name == "max_steps" else 16)


def _stops(values: Sequence[float]) -> list[tuple[str, float]]:
    return [(words.money(value), value) for value in values]


def _set(slider: Any, value: float) -> None:
    """Show ``value``, making room for it where the slider has no such place."""
    if isinstance(slider, w.SelectionSlider):
        values = [stop for _, stop in slider.options]
        if value not in values:
            slider.options = _stops(sorted([*values, value]))
    elif value > slider.max:
        slider.max = value
    slider.value = value


def choice(panel: Panel, name: str, options: Sequence[str]) -> w.ToggleButtons:
    """A button for each value that a trait may have; none is pressed while it has another.

    Not a drop-down list: JupyterLab takes the arrow keys away from one.
    """
    labels = [(text(f"panel.{name}_{option.replace('-', '_')}"), option) for option in options]
    buttons = w.ToggleButtons(options=labels, style={"button_width": "auto"})
    buttons.observe(panel.guarded(lambda change: setattr(panel.model, name, change["new"] or "")), names="value")
    panel.watch(lambda change: setattr(buttons, "value", _one_of(options, getattr(panel.model, name))), name)
    buttons.add_class(f"al-{name}")
    return buttons


def _one_of(options: Sequence[str], value: str) -> str | None:
    return value if value in options else None


def bound(panel: Panel, widget: Any, name: str) -> Any:
    """The widget, its ``value`` tied to a trait of the model both ways."""
    widget.observe(panel.guarded(lambda change: setattr(panel.model, name, change["new"])), names="value")
    panel.watch(lambda change: setattr(widget, "value", getattr(panel.model, name)), name)
    widget.add_class(f"al-{name}")
    return widget


def label(key: str, kind: str = "hint") -> w.HTML:
    """A sentence above a group of controls; ``kind`` "heading" for a whole column."""
    return w.HTML(html.note(text(f"panel.{key}"), kind))
