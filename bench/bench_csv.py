"""How fast and how small ``analyze_csv`` is, beside the same rules written with ``csv.DictReader``."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentlib import inputs
from agentlib.csvdata import revenue_by_category
from agentlib.tools import analyze_csv

ROWS = 200_000
BIG = 200 * 2**20
ROUNDS = 5
CATEGORIES = ("键盘", "鼠标", "显示器", "耳机", "cable, 2 m")

is_number = re.compile(r"\s*[0-9]{1,18}\s*").fullmatch


def with_dictreader(lines: Iterable[str]) -> tuple[int, dict[str, int]]:
    """The yardstick: all the rules of ``agentlib.csvdata``, as one would write them with ``csv.DictReader``."""
    reader = csv.DictReader(lines, strict=True)
    count, revenue = 0, dict[str, int]()
    try:
        while reader.fieldnames is not None and not "".join(reader.fieldnames).strip():
            reader.fieldnames = None
        if reader.fieldnames is None:
            raise inputs.DataError("EMPTY_CSV", "empty")
        names = [name.strip().lower() or f"#{index}" for index, name in enumerate(reader.fieldnames)]
        if max(Counter(names).values()) > 1 or not {"category", "quantity", "unit_price"} <= set(names):
            raise inputs.DataError("INVALID_CSV", "columns")
        reader.fieldnames = names
        for row in reader:
            category, quantity, price = row["category"], row["quantity"], row["unit_price"]
            whole = None not in row and None not in row.values()
            if not (whole and category.strip() and is_number(quantity) and is_number(price)):
                cells = [*row.pop(None, ()), *row.values()]
                if not any(cell and cell.strip() for cell in cells):
                    continue
                raise inputs.DataError("INVALID_ROW", "cells")
            category = category.strip()
            revenue[category] = revenue.get(category, 0) + int(quantity.strip()) * int(price.strip())
            count += 1
    except csv.Error:
        raise inputs.DataError("INVALID_CSV", "quotes") from None
    if not count:
        raise inputs.DataError("EMPTY_CSV", "empty")
    return count, revenue


@contextmanager
def project() -> Iterator[Path]:
    """An empty project in a temporary folder; gives its ``data/input``."""
    before = os.environ.get("AGENTLAB_ROOT")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENTLAB_ROOT"] = folder
        below = Path(folder, inputs.FOLDER)
        below.mkdir(parents=True)
        try:
            yield below
        finally:
            os.environ.pop("AGENTLAB_ROOT")
            if before is not None:
                os.environ["AGENTLAB_ROOT"] = before


def sales(rows: int, biggest: int) -> str:
    """A CSV file of so many rows, the same each time."""
    pick = random.Random(4)
    lines = (
        f'"{pick.choice(CATEGORIES)}",{pick.randint(0, biggest)},{pick.randint(0, biggest)}\n' for _ in range(rows)
    )
    return "category,quantity,unit_price\n" + "".join(lines)


def seconds(work: Callable[[], object]) -> float:
    """How much of the processor's time one call takes: other programs do not count."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def speed(biggest: int) -> tuple[float, float]:
    """Best times of ``analyze_csv`` and of the yardstick, taken in turns, in nanoseconds per row."""
    with project() as folder:
        (folder / "sales.csv").write_text(sales(ROWS, biggest), encoding="utf-8")

        def yardstick() -> tuple[int, dict[str, int]]:
            with inputs.reading(("sales.csv",)) as lines:
                return with_dictreader(lines)

        with inputs.reading(("sales.csv",)) as lines:
            assert revenue_by_category(lines) == yardstick()
        times = [(seconds(lambda: analyze_csv("sales.csv")), seconds(yardstick)) for _ in range(ROUNDS)]
    ours, theirs = (min(each) / ROWS * 1e9 for each in zip(*times, strict=True))
    return ours, theirs


MEMORY = """
import json, re, resource, sys
from pathlib import Path
from agentlib import analyze_csv

def peak():
    if sys.platform == "linux":  # ru_maxrss begins with the peak of the parent there
        return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text(encoding="ascii"))[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)

assert analyze_csv("small.csv")["status"] == "ok"
before = peak()
result = analyze_csv("big.csv")
print(json.dumps([result["data"]["row_count"], before, peak()]))
"""


def memory() -> tuple[int, float, float]:
    """Rows of a file of 200 MB, and the peak memory of a process, in MB, before and after it read that file."""
    block = sales(10_000, 1000)
    header, _, rows = block.partition("\n")
    with project() as folder:
        (folder / "small.csv").write_text(block, encoding="utf-8")
        with (folder / "big.csv").open("w", encoding="utf-8", newline="") as big:
            big.write(header + "\n")
            for _ in range(BIG // len(rows.encode("utf-8")) + 1):
                big.write(rows)
        command = [sys.executable, "-c", MEMORY]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        answer = subprocess.run(command, env=env, capture_output=True, check=True, encoding="utf-8").stdout
    count, before, after = json.loads(answer)
    return count, before, after


def main() -> None:
    """Print the figures."""
    for name, biggest in (("small numbers", 1000), ("large numbers", 10**17)):
        ours, theirs = speed(biggest)
        ratio = theirs / ours
        print(f"analyze_csv, {name}: {ours:.0f} ns a row, DictReader {theirs:.0f}: {ratio:.2f} x the speed (wanted: 2)")
    if sys.platform != "win32":
        count, before, after = memory()
        print(f"200 MB, {count} rows: peak memory {before:.0f} -> {after:.0f} MB (wanted: under 60)")


if __name__ == "__main__":
    main()
