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
from collections.abc import Iterable
from operator import itemgetter

from .inputs import DataError, shown

COLUMNS = ("category", "quantity", "unit_price")
MOST_DIGITS = 18

_OTHER_DELIMITERS = ";\t|；，、"

is_number = re.compile(rf"\s*[0-9]{{1,{MOST_DIGITS}}}\s*").fullmatch
"""Whether a cell is a number by the rule above."""


def revenue_by_category(lines: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Read CSV text row by row. Returns the number of sales and the revenue by category; raises ``DataError``."""
    rows = enumerate(csv.reader(lines, strict=True), start=1)
    row_number, count, revenue = 0, 0, defaultdict[str, int](int)
    try:
        for row_number, header in rows:  # noqa: B007 (told when a quote is left open)
            if not is_blank(header):
                break
        else:
            raise DataError("EMPTY_CSV", "empty")
        width, pick = len(header), itemgetter(*positions(header))

        for row_number, row in rows:
            if len(row) != width:
                if is_blank(row):
                    continue
                raise DataError("INVALID_ROW", "cells", row=row_number, found=len(row), wanted=width)
            category, quantity, price = pick(row)
            digits = quantity + price
            plain = digits.isdigit() and digits.isascii() and 0 < len(quantity) <= MOST_DIGITS >= len(price) > 0
            if not plain and not (is_number(quantity) and is_number(price)):
                if is_blank(row):
                    continue
                column, cell = ("unit_price", price) if is_number(quantity) else ("quantity", quantity)
                cell = shown(cell)
                raise DataError("INVALID_ROW", "number", row=row_number, column=column, cell=cell, most=MOST_DIGITS)
            category = category.strip()
            if not category:
                raise DataError("INVALID_ROW", "no_category", row=row_number)
            revenue[category] += int(quantity) * int(price)
            count += 1
    except csv.Error as problem:
        key = "field_too_long" if "limit" in str(problem) else "quotes"
        raise DataError("INVALID_CSV", key, row=row_number + 1, most=csv.field_size_limit()) from None
    if not count:
        raise DataError("EMPTY_CSV", "empty")
    return count, dict(revenue)


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
