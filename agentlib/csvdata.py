"""The rules for sales data, and the sum of quantity times price by category.

- The first row that is not blank is the header. It has the columns ``category``, ``quantity`` and ``unit_price``, in
  any order and possibly among others; blanks around a name and its letter case do not matter. No name stands twice.
- Rows are counted as Excel counts them: the header of an ordinary file is row 1, a blank row counts, and a cell with
  line breaks in it is part of one row.
- A row of nothing but blanks and commas is skipped. Every other row has as many cells as the header.
- A category is any text; blanks at its ends are taken off, and something must be left.
- A number is 1 to 18 of the digits 0 to 9; blanks around it are taken off. Nothing else is a number: no sign, point,
  thousands comma or full-width digit.
- A row of totals in which all three cells are filled cannot be told from a sale, so it is counted as one.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter, mul

from .inputs import DataError, shown

COLUMNS = ("category", "quantity", "unit_price")
MOST_DIGITS = 18
BATCH = 100
"""Rows that are looked at together: in the usual case, one check of a hundred rows is faster than a hundred checks."""

Row = list[str]
Column = Sequence[str]

_OTHER_DELIMITERS = ";\t|；，、"

is_number = re.compile(rf"\s*[0-9]{{1,{MOST_DIGITS}}}\s*").fullmatch
"""Whether a cell is a number by the rule above."""


def revenue_by_category(lines: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Read CSV text. Returns the number of sales and the revenue by category; raises ``DataError``."""
    table, count, revenue = None, 0, defaultdict[str, int](int)
    for row_number, rows in batches(lines):
        if table is None:
            before = next((index for index, row in enumerate(rows) if not is_blank(row)), None)
            if before is None:
                continue
            table, rows, row_number = Table(rows[before]), rows[before + 1 :], row_number + before + 1
        categories, quantities, prices = table.sales(rows, row_number)
        for category, amount in zip(categories, map(mul, map(int, quantities), map(int, prices)), strict=True):
            revenue[category] += amount
        count += len(categories)
    if not count:
        raise DataError("EMPTY_CSV", "empty")
    return count, dict(revenue)


def batches(lines: Iterable[str]) -> Iterator[tuple[int, list[Row]]]:
    """The rows in batches, each with the number of its first row. A broken row is told after the rows above it."""
    reader, row_number = csv.reader(lines, strict=True), 1
    while True:
        rows = list[Row]()
        try:
            rows.extend(islice(reader, BATCH))
        except csv.Error as problem:
            yield row_number, rows
            key = "field_too_long" if "limit" in str(problem) else "quotes"
            broken = row_number + len(rows)
            raise DataError("INVALID_CSV", key, row=broken, most=csv.field_size_limit()) from None
        if not rows:
            return
        yield row_number, rows
        row_number += len(rows)


class Table:
    """What the header says: how many cells a row has, and which three of them count."""

    def __init__(self, header: Row) -> None:
        self.width = len(header)
        self.pick = itemgetter(*positions(header))

    def sales(self, rows: list[Row], row_number: int) -> tuple[Column, Column, Column]:
        """The categories, quantities and prices in these rows, of which the first has this number."""
        if set(map(len, rows)) == {self.width}:
            categories, quantities, prices = self.columns(rows)
            if all(categories) and all_digits([*quantities, *prices]):
                return categories, quantities, prices  # the usual case: nothing to skip, nothing wrong
        sales = [row for number, row in enumerate(rows, row_number) if self.is_sale(row, number)]
        return self.columns([[cell.strip() for cell in row] for row in sales])

    def columns(self, rows: list[Row]) -> tuple[Column, Column, Column]:
        """The three columns of complete rows."""
        categories, quantities, prices = self.pick(list(zip(*rows, strict=True))) if rows else ((), (), ())
        return [category.strip() for category in categories], quantities, prices

    def is_sale(self, row: Row, row_number: int) -> bool:
        """Whether to count the row: not if it is blank. Raises ``DataError`` if it breaks a rule."""
        if is_blank(row):
            return False
        if len(row) != self.width:
            raise DataError("INVALID_ROW", "cells", row=row_number, found=len(row), wanted=self.width)
        category, *numbers = self.pick(row)
        for column, cell in zip(COLUMNS[1:], numbers, strict=True):
            if not is_number(cell):
                cell = shown(cell)
                raise DataError("INVALID_ROW", "number", row=row_number, column=column, cell=cell, most=MOST_DIGITS)
        if not category.strip():
            raise DataError("INVALID_ROW", "no_category", row=row_number)
        return True


def positions(header: list[str]) -> list[int]:
    """Where the three columns stand in the header."""
    names = [name.strip().lower() for name in header]
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        raise DataError("INVALID_CSV", "column_twice", column=shown(twice[0]))
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        found = shown(",".join(header), 120)
        used = next((mark for mark in _OTHER_DELIMITERS if mark in header[0]), None)
        if len(header) == 1 and used:
            raise DataError("INVALID_CSV", "delimiter", found=found, used=repr(used))
        raise DataError("INVALID_CSV", "columns", found=found, missing=", ".join(missing))
    return [names.index(name) for name in COLUMNS]


def is_blank(row: list[str]) -> bool:
    """Whether a row holds nothing but blanks."""
    return not "".join(row).strip()


def all_digits(cells: list[str]) -> bool:
    """Whether all cells are numbers that have not even blanks around them."""
    together = "".join(cells)
    return together.isascii() and together.isdigit() and all(cells) and max(map(len, cells)) <= MOST_DIGITS
