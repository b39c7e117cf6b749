"""The same pictures without matplotlib, as HTML: a table with bars, or one with coloured cells."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .shapes import INK, LOOKS, WARNING, WIDTH_PX, Bar, Bars, Grid, Look, columns, every, shorten

_PATTERNS = {
    "": "",
    "//": "repeating-linear-gradient(-45deg,transparent 0 6px,LINE 6px 8px)",
    "\\\\": "repeating-linear-gradient(45deg,transparent 0 6px,LINE 6px 8px)",
    "..": "radial-gradient(LINE 1.5px,transparent 2px);background-size:8px 8px",
    "xx": "repeating-linear-gradient(-45deg,transparent 0 6px,LINE 6px 7px),"
    "repeating-linear-gradient(45deg,transparent 0 6px,LINE 6px 7px)",
}
"""The patterns of the looks in CSS, by matplotlib's names for them."""


def drawn(picture: Bars | Grid, alt: str) -> str:
    """The picture as one HTML element with its alternative text."""
    body = _bars(picture) if isinstance(picture, Bars) else _grid(picture)
    style = f"background:white;color:{INK};max-width:{WIDTH_PX}px;padding:12px;font:17px sans-serif"
    title = f'<div style="font-size:21px;padding-bottom:8px">{escape(picture.title)}</div>'
    return f'<div role="img" aria-label="{escape(alt)}" style="{style}">{title}{body}</div>'


def _bars(picture: Bars) -> str:
    legend = _legend(picture.legend)
    if any(bar.limit is not None for bar in picture.bars):
        legend += f'<span style="border-left:4px solid {INK};padding-left:6px">{escape(picture.limit_name)}</span>'
    return _table("".join(_row(bar) for bar in picture.bars)) + legend


def _row(bar: Bar) -> str:
    limit = bar.limit_at()
    boxes = [_box(left, width, LOOKS[s.look], s.label) for left, width, s in bar.spans()]
    if limit is not None:
        line = f"left:{limit:.2%};top:4%;height:92%;border-left:4px solid {INK}"
        boxes = [_box(0, limit, LOOKS["rest"]), *boxes, f'<div style="position:absolute;{line}"></div>']
    warning = f' <span style="color:{WARNING}">◀ {escape(bar.warning)}</span>' if bar.warning else ""
    middle = f'<td style="width:50%;height:36px;position:relative">{"".join(boxes)}</td>'
    return _tr(_td("right", escape(shorten(bar.label))) + middle + _td("left", escape(bar.value) + warning))


def _box(left: float, width: float, look: Look, label: str = "") -> str:
    shown = escape(label) if width > 0.03 + 0.025 * columns(label) else ""
    edge = f"border:1px solid {look.line};" if width > 0.02 else ""
    return (
        f'<div style="position:absolute;left:{left:.2%};width:{width:.2%};top:16%;height:68%;box-sizing:border-box;'
        f'{edge}{_fill(look)};color:{look.ink};display:flex;align-items:center;justify-content:center">{shown}</div>'
    )


def _grid(picture: Grid) -> str:
    xs, ys = every(len(picture.x), 25), every(len(picture.y), 20)
    rows = ""
    for y in reversed(ys):
        cells = (f'<td style="{_fill(LOOKS[picture.cells[y][x]])};min-width:16px;height:18px"></td>' for x in xs)
        rows += _tr(_td("right", escape(picture.y[y])) + "".join(cells))
    named = set(every(len(xs), 12))
    below = (_tick(picture.x[x]) if at in named else "<td></td>" for at, x in enumerate(xs))
    rows += _tr("<td></td>" + "".join(below)) + _tr("<td></td>" + _td("right", escape(picture.x_label), len(xs)))
    return escape(picture.y_label) + _table(rows) + _legend(picture.legend)


def _table(rows: str) -> str:
    style = f"width:100%;table-layout:auto;border:0;border-collapse:collapse;font-size:17px;color:{INK}"
    return f'<table style="{style}">{rows}</table>'


def _tr(cells: str) -> str:
    return f'<tr style="background:white">{cells}</tr>'


def _td(align: str, content: str, span: int = 1) -> str:
    return f'<td colspan="{span}" style="text-align:{align};white-space:nowrap;padding:0 10px">{content}</td>'


def _tick(name: str) -> str:
    return f'<td style="text-align:center;white-space:nowrap;padding:2px 0">{escape(name)}</td>'


def _fill(look: Look) -> str:
    pattern = _PATTERNS[look.hatch].replace("LINE", look.line)
    return f"background-color:{look.color}" + (f";background-image:{pattern}" if pattern else "")


def _legend(names: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<span style="display:inline-block;width:28px;height:14px;border:1px solid {INK};{_fill(LOOKS[look])}"></span>'
        f'<span style="padding:0 18px 0 6px">{escape(name)}</span>'
        for look, name in names
    )
