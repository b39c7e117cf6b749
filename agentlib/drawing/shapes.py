"""What a picture is made of: bars or a grid of cells, in looks that can be told apart without colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import east_asian_width

INK, TRACK, WARNING = "#222222", "#e4e4e4", "#D55E00"
WIDTH_PX = 760
"""How wide a picture stands in a notebook."""


class Look(NamedTuple):
    """A colour of the Okabe–Ito set, a pattern that says the same without colour, and what is written on it."""

    color: str
    hatch: str = ""
    ink: str = INK

    @property
    def line(self) -> str:
        """The colour of the pattern and of the edges."""
        return INK if self.color == "white" else "white"


LOOKS = {
    "used": Look("#0072B2", ink="white"),
    "over": Look(WARNING, "//", "white"),
    "next": Look("white", "//"),
    "rest": Look(TRACK),
    "others": Look("#999999"),
    "stopped": Look("#0072B2", ink="white"),
    "stopped:steps": Look("#0072B2", ink="white"),
    "stopped:time": Look("#56B4E9", "//"),
    "stopped:budget": Look("#E69F00", ".."),
    "stopped:user": Look("#CC79A7", "xx"),
    "failed": Look("#999999", "\\\\"),
    "done": Look(TRACK),
}


class Segment(NamedTuple):
    """A part of a bar: its length in the bar's own unit, its look, and what is written in it where there is room."""

    size: float
    look: str
    label: str = ""


class Bar(NamedTuple):
    """A row. ``full`` is the value at its right edge, ``limit`` a line across it, ``warning`` stands at its end."""

    label: str
    segments: tuple[Segment, ...]
    value: str
    full: float
    limit: float | None = None
    warning: str = ""

    def spans(self) -> Iterator[tuple[float, float, Segment]]:
        """Left edge and width of each segment, as shares of the row."""
        left = 0.0
        for segment in self.segments:
            width = self._share(segment.size)
            yield left, width, segment
            left += width

    def limit_at(self) -> float | None:
        """Where the limit stands, as a share of the row."""
        return None if self.limit is None else self._share(self.limit)

    def _share(self, value: float) -> float:
        return value / self.full if self.full > 0 else 0.0


class Bars(NamedTuple):
    """Bars, one below the other, with a legend of looks (and of the limit line, if it has a name)."""

    title: str
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...] = ()
    limit_name: str = ""


class Grid(NamedTuple):
    """Cells in columns ``x`` and rows ``y`` (upwards), each with a look; ``legend`` says what the looks mean."""

    title: str
    x_label: str
    y_label: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, str], ...]


def every(count: int, most: int) -> range:
    """At most ``most`` of the numbers 0 … count-1, at a round distance from each other."""
    distance = next(d for d in (k * 10**n for n in range(9) for k in (1, 2, 5)) if d * most >= count)
    return range(0, count, distance)


def columns(value: str) -> int:
    """How wide a text stands in a fixed-width font: a hanzi counts two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in value)


def shorten(label: str, most: int = 24) -> str:
    """The label on one line, cut to so many columns."""
    label = " ".join(label.split())
    if columns(label) <= most:
        return label
    label = label[:most]  # no character is narrower than a column
    while columns(label) > most - 1:
        label = label[:-1]
    return label.rstrip() + "…"
