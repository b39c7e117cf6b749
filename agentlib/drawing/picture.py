"""The pictures as matplotlib draws them. Needs matplotlib; changes none of its settings, knows no ``pyplot``."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .shapes import INK, LOOKS, TRACK, WARNING, Bar, Bars, Grid, columns, every, shorten

FONT = Path(__file__).parent.parent / "fonts" / "agent-lab-sans.otf"
CJK = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Microsoft YaHei", "PingFang SC", "Hiragino Sans GB"),
    *("SimHei", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Noto Sans CJK JP", "Arial Unicode MS"),
)
"""Families of other machines that may draw what our own small font does not hold."""

DPI = 180
STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "font.size": 15,
    "hatch.linewidth": 1.4,
    "text.parse_math": False,
    "figure.facecolor": "white",
}


def png(picture: Bars | Grid) -> bytes:
    """The picture as a PNG file without a date or a version in it."""
    with matplotlib.style.context(["default", {**STYLE, "font.family": list(_families())}]):
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr, call-arg]
        figure.suptitle(_safe(picture.title), x=0.02, ha="left", size=18)
        handles = _bars(figure, picture) if isinstance(picture, Bars) else _grid(figure, picture)
        if handles:
            figure.legend(
                handles=handles, loc="outside lower left", ncols=_in_a_row(handles), frameon=False, fontsize=13
            )
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def _bars(figure: Figure, picture: Bars) -> list[Any]:
    figure.set_size_inches(8, 0.85 + 0.56 * len(picture.bars) + 0.45 * bool(picture.legend))
    axes = figure.add_subplot()
    for y, bar in enumerate(picture.bars):
        _bar(axes, y, bar)
    axes.set(xlim=(0, 1.005), ylim=(len(picture.bars) - 0.45, -0.55), xticks=[])
    axes.set_yticks(range(len(picture.bars)), [_safe(shorten(bar.label)) for bar in picture.bars])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    handles: list[Any] = _patches(picture.legend)
    if any(bar.limit is not None for bar in picture.bars):
        name = _safe(picture.limit_name)
        handles.append(Line2D([], [], color=INK, marker="|", ms=16, mew=3, ls="", label=name))
    return handles


def _bar(axes: Any, y: int, bar: Bar) -> None:
    limit = bar.limit_at()
    if limit is not None:
        axes.barh(y, limit, height=0.62, color=TRACK)
        axes.vlines(limit, y - 0.42, y + 0.42, color=INK, linewidth=3, zorder=3)
    ink = WARNING if bar.warning else INK
    for left, width, segment in bar.spans():
        look = LOOKS[segment.look]
        edge = ink if segment.look == "next" else "white"
        line = min(1.2, 60 * width)  # the lines between many thin segments must not cover them
        axes.barh(y, width, 0.62, left, color=look.color, hatch=look.hatch, edgecolor=edge, linewidth=line)
        if segment.label and width > 0.025 + 0.022 * columns(segment.label):
            axes.text(left + width / 2, y, _safe(segment.label), color=look.ink, ha="center", va="center", size=13)
    end = f"{bar.value}  ◀ {bar.warning}" if bar.warning else bar.value
    axes.text(1.02, y, _safe(end), color=ink, va="center", transform=axes.get_yaxis_transform())


def _grid(figure: Figure, picture: Grid) -> list[Any]:
    figure.set_size_inches(8, 5.6)
    axes = figure.add_subplot()
    for y, row in enumerate(picture.cells):
        for left, width, name in _runs(row):
            look = LOOKS[name]
            axes.barh(y + 0.5, width, 1, left, color=look.color, hatch=look.hatch, edgecolor=look.line, linewidth=0)
    for name, label in picture.legend:
        middle, height_at, width, height = _middle(picture.cells, name)
        if width > 0.02 * columns(label) * len(picture.x) and height > 0.12 * len(picture.y):
            box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.25"}
            axes.text(middle, height_at, _safe(label), ha="center", va="center", bbox=box)
    xs, ys = every(len(picture.x), 10), every(len(picture.y), 7)
    axes.set_xticks([i + 0.5 for i in xs], [_safe(picture.x[i]) for i in xs])
    axes.set_yticks([i + 0.5 for i in ys], [_safe(picture.y[i]) for i in ys])
    axes.set(xlim=(0, len(picture.x)), ylim=(0, len(picture.y)), xlabel=picture.x_label, ylabel=picture.y_label)
    axes.spines[:].set_visible(False)
    return _patches(picture.legend)


def _in_a_row(handles: Sequence[Any]) -> int:
    """How many entries of the legend fit into one row of it, in rows of equal length."""
    rows = -(-sum(columns(handle.get_label()) + 8 for handle in handles) // 88)
    return -(-len(handles) // rows)


def _patches(legend: Sequence[tuple[str, str]]) -> list[Any]:
    return [
        Patch(facecolor=look.color, hatch=look.hatch * 2, edgecolor=look.line, linewidth=0.8, label=_safe(name))
        for look, name in ((LOOKS[key], name) for key, name in legend)
    ]


def _runs(row: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The stretches of equal cells in a row: start, length, look."""
    start = 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i] != row[start]:
            yield start, i - start, row[start]
            start = i


def _middle(cells: Sequence[Sequence[str]], name: str) -> tuple[float, float, int, int]:
    """Where a region's name fits: the middle of the longest stretch through its largest square, and the room there."""
    best, x, y = 0, 0, 0
    above = [0] * len(cells[0])
    for j, row in enumerate(cells):
        sides = list[int]()  # of the largest square of such cells that ends here
        for i, cell in enumerate(row):
            sides.append(0 if cell != name else 1 + min(sides[i - 1], above[i], above[i - 1]) if i else 1)
            if sides[i] > best:
                best, x, y = sides[i], i, j
        above = sides
    left, width, _ = next(run for run in _runs(cells[y - best // 2]) if run[0] <= x < run[0] + run[1])
    return left + width / 2, y + 1 - best / 2, width, best


# Fonts: our own first, then what the machine has, then a placeholder; never a warning.


@cache
def _families() -> tuple[str, ...]:
    fontManager.addfont(FONT)
    have = {font.name for font in fontManager.ttflist}
    return ("Agent Lab Sans", *(name for name in CJK if name in have), "DejaVu Sans")


@cache
def _characters(family: str) -> frozenset[int]:
    return frozenset(FT2Font(findfont(family)).get_charmap())


def _safe(value: str) -> str:
    return "".join(c if any(ord(c) in _characters(f) for f in _families()) else "□" for c in value)
