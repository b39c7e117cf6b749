"""``python -m agentlib.runlog``: the trigger rates of a run log as a table."""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from ..messages import languages, suit_the_console, text, use_language
from .log import COLUMNS, RunLog
from .store import RunLogError, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 if that worked, 2 if the file cannot be used (argparse: wrong arguments)."""
    suit_the_console()
    given = _parser(arguments).parse_args(arguments)
    log = RunLog(given.file)
    try:
        table = _stops(log, given.by, given.reason) if given.reason else _overview(log, given.by)
        waiting = [run["state"] for run in log.unfinished()]
    except RunLogError as error:
        print(error, file=sys.stderr)
        return 2
    ended = sum(int(line[1]) for line in table[1:])
    print(text("runlog.title", file=shown(log.path), runs=ended), end="\n\n")
    print(aligned(table))
    if waiting:
        print()
        print(text("runlog.unfinished", running=waiting.count("running"), died=waiting.count("died")))
    return 0


def aligned(table: Sequence[Sequence[str]]) -> str:
    """The table as lines: the first column to the left, the others to the right, a Chinese character as wide as two."""
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *others in table:
        cells = [first + _blanks(first, widths[0])]
        cells += [_blanks(cell, width) + cell for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(cell: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in cell)


def _blanks(cell: str, width: int) -> str:
    return " " * (width - _width(cell))


def _overview(log: RunLog, by: str) -> list[list[str]]:
    """A line per group: how many runs, and the share that ended for each reason; all failures in one column."""
    groups: dict[str | None, dict[str, Any]] = {}
    for row in log.trigger_rates(by):
        line = groups.setdefault(row[by], {"runs": row["runs"], "failed": 0.0})
        name = "failed" if row["reason"].startswith("failed:") else row["reason"]
        line[name] = line.get(name, 0.0) + row["rate"]
    reasons = [*sorted({name for line in groups.values() for name in line} - {"runs", "failed"}), "failed"]
    table = [[text(f"runlog.{by}"), text("runlog.runs"), *reasons[:-1], text("runlog.failures")]]
    for group, line in groups.items():
        table.append([_cell(group), str(line["runs"]), *(f"{line[name]:.1%}" for name in reasons)])
    return table


def _stops(log: RunLog, by: str, reason: str) -> list[list[str]]:
    """A line per group: how often this reason came up, and what the runs had used by then."""
    names = ("runs", "fired", "rate", "median_seconds", "median_usd")
    costs = {row[by]: row for row in log.cost_to_cap(by, reason)}
    table = [[text(f"runlog.{name}") for name in (by, *names)]]
    for row in log.trigger_rates(by, reason):
        cost = costs.get(row[by], {"seconds": None, "usd": None})
        counts = [str(row["runs"]), str(row["fired"]), f"{row['rate']:.1%}"]
        table.append([_cell(row[by]), *counts, _cell(cost["seconds"], ".1f"), _cell(cost["usd"], ".4f")])
    return table


def _cell(value: str | float | None, form: str = "") -> str:
    return text("runlog.unknown") if value is None else format(value, form)


def _parser(arguments: Sequence[str] | None) -> argparse.ArgumentParser:
    """The command line. The language is read first, so that the help is in it too; without one, it stays as it is."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--lang", choices=languages())
    if lang := first.parse_known_args(arguments)[0].lang:
        use_language(lang)
    parser = argparse.ArgumentParser(prog="python -m agentlib.runlog", description=text("runlog.description"))
    parser.add_argument("file", nargs="?", help=text("runlog.help_file", file=shown(RunLog().path)))
    parser.add_argument("--by", choices=COLUMNS, default="day", help=text("runlog.help_by"))
    parser.add_argument("--reason", help=text("runlog.help_reason"))
    parser.add_argument("--lang", choices=languages(), help=text("runlog.help_lang"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
