"""How a chart becomes a picture: one description, drawn by matplotlib or, where that is missing, as plain HTML.

Nothing here knows what the numbers mean: :mod:`agentlib.charts` and :mod:`agentlib.phases` say that.
"""

from __future__ import annotations

import html
from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..messages import text
from . import plain
from .shapes import LOOKS, WIDTH_PX, Bar, Bars, Grid, Segment, columns, every

__all__ = ["LOOKS", "Bar", "Bars", "Drawing", "Grid", "Segment", "every"]


@dataclass(frozen=True, repr=False)
class Drawing:
    """A chart for a notebook cell: ``alt`` says what it shows, ``numbers`` are its rows under ``head``.

    As the last value of a cell it shows itself: a picture with alternative text, and the numbers to unfold below it.
    Printed, it is the alternative text and the numbers.
    """

    picture: Bars | Grid
    alt: str
    head: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]

    @cached_property
    def png(self) -> bytes:
        """The picture by matplotlib; the same input gives the same bytes. ``ImportError`` without matplotlib."""
        from . import picture

        return picture.png(self.picture)

    @property
    def table(self) -> str:
        """The numbers as aligned text."""
        rows = [tuple(map(str, row)) for row in (self.head, *self.numbers)]
        widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    @property
    def html(self) -> str:
        """What a notebook shows: the PNG with its alternative text, or plain HTML where matplotlib is missing."""
        try:
            data = b64encode(self.png).decode()
            shown = f'<img alt="{html.escape(self.alt)}" width="{WIDTH_PX}" src="data:image/png;base64,{data}">'
        except ImportError:
            shown = plain.drawn(self.picture, self.alt)
        summary, table = html.escape(text("charts.numbers")), html.escape(self.table)
        return f"{shown}\n<details><summary>{summary}</summary><pre>{table}</pre></details>"

    def __repr__(self) -> str:
        return f"{self.alt}\n\n{self.table}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # Not as image/png: JupyterLab 4.6 draws that without an alt attribute, whatever its metadata say.
        return {"text/html": self.html, "text/plain": repr(self)}
