"""Measure how the lessons move: cells, lines of code, words of prose.

    python tools/rhythm.py          all lessons
    python tools/rhythm.py 03 05    these

Counted in the student editions, navigation left out. A line of code is one that is not blank; prose is counted in
words, Chinese in characters (字), each without code blocks, links' targets and HTML.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import build_notebooks as build

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("00", "cells"): "a check of the bench, not a lesson: the rest of its hour is for installations that are late",
    ("00", "en"): "half of its text is about what happens outside the cells: set-up, .env, the map of the course",
    ("07", "cells"): "five small bugs to mend, each an exercise of its own",
    ("07", "zh"): "the bugs are code to read, and hardly any prose",
}
"""Limits that a lesson may leave: (lesson, name of the limit) and the reason."""


@dataclass(frozen=True)
class Rhythm:
    """The figures of one lesson."""

    lesson: str
    cells: int
    lines: tuple[int, ...]
    words_en: int
    words_zh: int

    @property
    def median(self) -> float:
        """Lines of the median code cell."""
        return median(self.lines)

    @property
    def short(self) -> float:
        """The share of code cells with at most ten lines."""
        return sum(n <= 10 for n in self.lines) / len(self.lines)

    @property
    def longest(self) -> int:
        """Lines of the longest code cell."""
        return max(self.lines)

    @property
    def en_per_line(self) -> float:
        """English words of prose for each line of code."""
        return self.words_en / sum(self.lines)

    @property
    def zh_per_line(self) -> float:
        """Chinese characters of prose for each line of code."""
        return self.words_zh / sum(self.lines)

    def beyond(self) -> list[str]:
        """The limits that this lesson leaves without a reason on the list."""
        limits = {
            "cells": (30 <= self.cells <= 60, f"{self.cells} cells, not 30 to 60"),
            "median": (self.median <= 3, f"the median code cell has {self.median:g} lines, more than 3"),
            "short": (self.short >= 0.9, f"only {self.short:.0%} of the code cells have at most 10 lines"),
            "longest": (self.longest <= 25, f"a code cell of {self.longest} lines, more than 25"),
            "en": (8 <= self.en_per_line <= 15, f"{self.en_per_line:.1f} words for each line of code, not 8 to 15"),
            "zh": (15 <= self.zh_per_line <= 30, f"{self.zh_per_line:.1f} 字 for each line of code, not 15 to 30"),
        }
        return [
            f"{self.lesson}: {sentence}"
            for name, (kept, sentence) in limits.items()
            if not kept and (self.lesson[:2], name) not in EXCEPTIONS
        ]


def measure(lesson: build.Lesson) -> Rhythm:
    """The figures of a lesson, from its source."""
    student = {language: build.Edition(lesson, language, False).cells() for language in build.LANGUAGES}
    code = [c for c in student["en"] if c.cell_type == "code"]
    lines = tuple(sum(bool(line.strip()) for line in c.source.splitlines()) for c in code)
    prose = {lang: "\n".join(c.source for c in cells if c.cell_type == "markdown") for lang, cells in student.items()}
    words_en = len(re.findall(r"[A-Za-z0-9][\w'’.-]*", readable(prose["en"])))
    words_zh = len(re.findall(r"[\u4e00-\u9fff]|[A-Za-z0-9][\w'’.-]*", readable(prose["zh"])))
    return Rhythm(lesson.name, len(student["en"]), lines, words_en, words_zh)


def readable(markdown: str) -> str:
    """The prose that a person reads: no fenced blocks, targets of links or tags; inline code counts as words."""
    text = re.sub(r"^(```+|~~~+).*?^\1", "", markdown, flags=re.M | re.S)
    return re.sub(r"\]\([^)]*\)|<[^>]*>", " ", text)


def table(rhythms: Iterable[Rhythm]) -> str:
    """The figures as a table, one lesson a line."""
    head = f"{'lesson':30} cells  code  median  ≤10 lines  longest  words/line  字/line"
    rows = [
        f"{r.lesson:30} {r.cells:5} {len(r.lines):5} {r.median:7g} {r.short:10.0%} {r.longest:8} "
        f"{r.en_per_line:11.1f} {r.zh_per_line:8.1f}"
        for r in rhythms
    ]
    return "\n".join([head, *rows])


def main(numbers: Iterable[str]) -> int:
    """The command line."""
    chosen = set(numbers)
    rhythms = [measure(lesson) for lesson in build.lessons() if not chosen or lesson.number in chosen]
    print(table(rhythms))
    beyond = [sentence for rhythm in rhythms for sentence in rhythm.beyond()]
    print("\n".join(["", *beyond]) if beyond else "")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
