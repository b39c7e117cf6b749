"""Build the four editions of every lesson from its one source.

    python tools/build_notebooks.py            every lesson whose source changed, and all navigation
    python tools/build_notebooks.py 03 05      these lessons, run anew whether they changed or not
    python tools/build_notebooks.py --all      every lesson anew
    python tools/build_notebooks.py --check    write nothing, run everything anew, compare each byte

A source ``notebooks/source/NN_name.md`` becomes ``NN_name.ipynb`` under ``notebooks/en``, ``notebooks/zh``,
``notebooks/instructor/en`` and ``notebooks/instructor/zh``, with outputs. How a source is written stands in
``notebooks/CONTRIBUTING.md``. The same source, package and platform always give the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
LANGUAGES = ("en", "zh")
KERNELS_AT_ONCE = 2
CELL_SECONDS = 120

TAGS = {
    "exercise": "a student's starting point; the instructor edition has the solution in its place",
    "solution": "instructor edition only: replaces the exercise cell before it",
    "check": "has to fail in the student edition and to pass in the instructor edition",
    "instructor": "instructor edition only: teaching notes",
    "raises-exception": "has to raise, in every edition",
    "nbval-ignore-output": "run by the tests, its output not compared",
    "nbval-skip": "not run by the tests",
    "words": "holds strings that a student reads",
}
WORDS = {
    "en": {
        "name": "English", "contents": "Contents", "course": "Agent Lab", "student": "Student edition",
        "intro": "From one raw tool to an agent loop that cannot run away. Every lesson runs offline, without a key.",
        "note": "Instructor edition: with solutions and teaching notes.",
    },
    "zh": {
        "name": "中文", "contents": "目录", "course": "智能体实验室", "student": "学生版",
        "intro": "从直接调用工具，到绝不会失控的智能体循环。每一课都能离线运行，不需要密钥。",
        "note": "教师版：含参考答案与教学提示。",
    },
}  # fmt: skip
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
FOREIGN = ("DASHSCOPE_", "OPENAI_", "MODEL_", "AGENTLIB_", "AGENTLAB_", "PYTHONWARNINGS", "MPLBACKEND", "FORCE_COLOR")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

Cell = Any  # nbformat's NotebookNode: a dict whose keys are attributes too
Notebook = Any


class LessonError(Exception):
    """A source that cannot be built, or a cell that did not do what its tag says."""


# --- the source ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesson:
    """One source file, read and checked."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name without its ending, for instance ``01_call_the_raw_tool``."""
        return self.path.stem

    @property
    def number(self) -> str:
        """The two digits in front."""
        return self.name[:2]

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells of both languages, in order; each has its place (the same for a pair) in its metadata."""
        return read_source(self.path)

    def title(self, language: str) -> str:
        """The first heading, without the lesson's number."""
        first = self._opening(language)[0].lstrip("# ")
        return re.sub(r"^\d\d[\s.:·-]*", "", first)

    def summary(self, language: str) -> str:
        """The paragraph under the first heading, without its links; lines are joined, in Chinese without a blank."""
        lines = (line.strip() for line in self._opening(language)[1].splitlines())
        return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", ("" if language == "zh" else " ").join(lines))

    def _opening(self, language: str) -> list[str]:
        first = next(c for c in self.cells if c.metadata.get("lang") == language)
        return [*first.source.split("\n\n", 2), "", ""]


def lessons(notebooks: Path = NOTEBOOKS) -> list[Lesson]:
    """All lessons, in order."""
    return [Lesson(path) for path in sorted((notebooks / "source").glob("[0-9][0-9]_*.md"))]


def read_source(path: Path) -> list[Cell]:
    """The cells of a source; refuses one that breaks a rule of ``notebooks/CONTRIBUTING.md``."""
    cells = jupytext.read(path, fmt="md:myst").cells
    place = 0
    waiting: Cell = None  # a cell in the first language whose translation has to come next
    for cell in cells:
        where = f"{path.name}, at {cell.source.strip()[:60]!r}"
        language = cell.metadata.get("lang")
        tags = cell.metadata.get("tags", [])
        if unknown := set(tags) - set(TAGS):
            raise LessonError(f"{where}: unknown tag {', '.join(sorted(unknown))}; there are {', '.join(TAGS)}")
        if language is None and cell.cell_type == "markdown":
            raise LessonError(f'{where}: prose without a language; put +++ {{"lang": "en"}} before it')
        if language is not None and language not in LANGUAGES:
            raise LessonError(f"{where}: language {language!r}; there are {', '.join(LANGUAGES)}")
        if not cell.source.strip():
            raise LessonError(f"{where}: an empty cell")
        if cell.cell_type == "code" and cell.source.rstrip().endswith(";"):
            raise LessonError(
                f"{where}: a ';' at the end hides a value from a reader, but not from nbval; assign it instead"
            )
        if waiting is not None:
            kind, twin = (cell.cell_type, tags), (waiting.cell_type, waiting.metadata.get("tags", []))
            if language != LANGUAGES[1] or kind != twin:
                raise LessonError(
                    f"{where}: here the {LANGUAGES[1]} twin of the cell before is due, of its kind and tags"
                )
            waiting = None
        elif language == LANGUAGES[1]:
            raise LessonError(f"{where}: a {LANGUAGES[1]} cell without its {LANGUAGES[0]} twin right before it")
        else:
            place += 1
            waiting = cell if language else None
        cell.metadata["place"] = place
    if waiting is not None:
        raise LessonError(f"{path.name}: the last cell has no {LANGUAGES[1]} twin")
    _check_opening(path, cells)
    _check_exercises(path, cells)
    return list(cells)


def _check_opening(path: Path, cells: list[Cell]) -> None:
    for language in LANGUAGES:
        mine = [c for c in cells if c.metadata.get("lang", language) == language]
        code = [c for c in mine if c.cell_type == "code"]
        if not mine or not mine[0].source.startswith("# "):
            raise LessonError(f"{path.name}: the first {language} cell does not begin with '# ' and the title")
        if not code or f'use_language("{language}")' not in code[0].source:
            raise LessonError(f'{path.name}: the first {language} code cell does not say use_language("{language}")')


def _check_exercises(path: Path, cells: list[Cell]) -> None:
    follows = {"exercise": ("", "check"), "solution": ("exercise", "solution"), "check": ("solution", "check")}
    for language in LANGUAGES:
        last = ""
        for cell in cells:
            if cell.cell_type != "code" or cell.metadata.get("lang", language) != language:
                continue
            kind = next((tag for tag in follows if tag in cell.metadata.get("tags", [])), "")
            if (kind and last not in follows[kind]) or (not kind and last == "exercise"):
                raise LessonError(
                    f"{path.name}, at {cell.source[:60]!r}: an exercise is a code cell tagged 'exercise', "
                    "directly followed by one tagged 'solution', then by one tagged 'check'"
                )
            last = kind or last
        if last not in ("", "check"):
            raise LessonError(f"{path.name}: the last exercise has no 'check' cell")


# --- one edition, not yet run ----------------------------------------------------------------------------------


def folder(notebooks: Path, language: str, instructor: bool) -> Path:
    """The folder of one edition."""
    return notebooks / "instructor" / language if instructor else notebooks / language


@dataclass(frozen=True)
class Edition:
    """One lesson in one language, for students or for instructors."""

    lesson: Lesson
    language: str
    instructor: bool
    notebooks: Path = NOTEBOOKS

    @property
    def folder(self) -> Path:
        """Where the built file lies; the kernel works there too."""
        return folder(self.notebooks, self.language, self.instructor)

    @property
    def path(self) -> Path:
        """The built file."""
        return self.folder / f"{self.lesson.name}.ipynb"

    def __str__(self) -> str:
        return str(self.path.relative_to(self.notebooks))

    def cells(self) -> list[Cell]:
        """Fresh cells without outputs or navigation."""
        return [self._cell(c) for c in self.lesson.cells if self._has(c)]

    def _has(self, cell: Cell) -> bool:
        tags = cell.metadata.get("tags", [])
        if cell.metadata.get("lang", self.language) != self.language:
            return False
        if self.instructor:
            return not ("exercise" in tags and cell.cell_type == "code")
        return not {"solution", "instructor"} & set(tags)

    def _cell(self, cell: Cell) -> Cell:
        metadata: dict[str, Any] = {k: v for k, v in cell.metadata.items() if k not in ("place", "tags")}
        tags = list(cell.metadata.get("tags", []))
        if "check" in tags and not self.instructor:
            tags.append("raises-exception")
        if tags:
            metadata["tags"] = tags
        identity = {"id": f"{self.lesson.number}-{cell.metadata.place:03d}", "metadata": metadata}
        if cell.cell_type == "code":
            return nbformat.v4.new_code_cell(cell.source, **identity)
        return nbformat.v4.new_markdown_cell(self._links(cell.source), **identity)

    def _links(self, text: str) -> str:
        """Links are written as seen from ``notebooks/en``; the instructor edition lies one folder deeper."""
        if not self.instructor:
            return text
        siblings = "|".join(LANGUAGES)
        return re.sub(rf"""(\]\(|(?:src|href)=["'])(?=\.\./(?!(?:{siblings})/))""", r"\1../", text)


def editions(lesson: Lesson, notebooks: Path = NOTEBOOKS) -> Iterator[Edition]:
    """The four editions of a lesson."""
    for instructor in (False, True):
        for language in LANGUAGES:
            yield Edition(lesson, language, instructor, notebooks)


def digest(cells: Iterable[Cell]) -> str:
    """What the cells say before they are run, as one short word."""
    plain = [(c.cell_type, c.id, c.source, c.metadata) for c in cells]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def navigation(edition: Edition, course: list[Lesson]) -> str:
    """Previous, contents, next, the other language; in the instructor edition also the student's page."""
    here = [lesson.name for lesson in course].index(edition.lesson.name)
    language, words = edition.language, WORDS[edition.language]
    links = [f"[{words['contents']}](index.ipynb)"]
    if here > 0:
        before = course[here - 1]
        links.insert(0, f"[← {before.number} {before.title(language)}]({before.name}.ipynb)")
    if here + 1 < len(course):
        after = course[here + 1]
        links.append(f"[{after.number} {after.title(language)} →]({after.name}.ipynb)")
    links += [f"[{WORDS[o]['name']}](../{o}/{edition.lesson.name}.ipynb)" for o in LANGUAGES if o != language]
    if edition.instructor:
        links.append(f"[{words['student']}](../../{language}/{edition.lesson.name}.ipynb)")
    return " · ".join(links)


def with_navigation(cells: list[Cell], edition: Edition, course: list[Lesson]) -> Notebook:
    """The whole notebook: navigation above and below the cells, metadata with the digest of what was run."""
    text = navigation(edition, course)
    top, bottom = (
        nbformat.v4.new_markdown_cell(text, id=f"{edition.lesson.number}-{where}", metadata={"tags": ["navigation"]})
        for where in ("top", "bottom")
    )
    return _notebook([top, *cells, bottom], language=edition.language, digest=digest(cells))


def contents_page(language: str, instructor: bool, course: list[Lesson]) -> Notebook:
    """The page that lists all lessons of one edition."""
    words = WORDS[language]
    lines = [f"# {words['course']}", words["intro"]]
    if instructor:
        lines.append(words["note"])
    rows = []
    for lesson in course:
        link = f"- [{lesson.number} {lesson.title(language)}]({lesson.name}.ipynb)"
        rows.append(f"{link}  \n  {lesson.summary(language)}".rstrip())
    lines.append("\n".join(rows))
    links = [f"[{WORDS[o]['name']}](../{o}/index.ipynb)" for o in LANGUAGES if o != language]
    if instructor:
        links.append(f"[{words['student']}](../../{language}/index.ipynb)")
    lines.append(" · ".join(links))
    return _notebook([nbformat.v4.new_markdown_cell("\n\n".join(lines), id="contents")], language=language)


def _notebook(cells: list[Cell], **about: str) -> Notebook:
    metadata = {**METADATA, "agentlab": about}
    return nbformat.from_dict({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def serialise(notebook: Notebook) -> bytes:
    """The file's bytes: the same on every platform."""
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook, version=4)
    return (text.rstrip("\n") + "\n").encode()


# --- running ---------------------------------------------------------------------------------------------------


def kernel_environment(language: str) -> dict[str, str]:
    """The environment of a lesson's kernel: no key, no endpoint, no ``.env``, no colours of this terminal."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(FOREIGN)}
    return {**kept, "AGENTLIB_LANG": language, "AGENTLAB_ENV_FILE": os.devnull, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


async def execute(cells: list[Cell], folder: Path, language: str) -> None:
    """Run the cells in a kernel of their own, fill in their outputs, and check what their tags promise."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = _notebook(cells)
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", record_timing=False, coalesce_streams=True,
        store_widget_state=False, extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    try:
        await client.async_execute(env=kernel_environment(language))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as problem:
        raise LessonError(plain(str(problem)).strip()) from None
    cells[:] = notebook.cells
    settle(cells)
    for cell in cells:
        promised = "raises-exception" in cell.metadata.get("tags", [])
        if promised and not any(o.output_type == "error" for o in cell.get("outputs", [])):
            raise LessonError(f"this cell has to raise, and did not:\n{cell.source}")


def plain(text: str) -> str:
    """Text without terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def settle(cells: list[Cell]) -> None:
    """Take out of the outputs what differs from run to run: widget ids, files of this machine in tracebacks."""
    views = 0
    for cell in cells:
        for output in cell.get("outputs", []):
            if WIDGET_VIEW in output.get("data", {}):
                views += 1
                output.data[WIDGET_VIEW]["model_id"] = hashlib.md5(f"{cell.id} {views}".encode()).hexdigest()
            if output.output_type == "error":
                output.traceback = [part for part in output.traceback if not re.match(r"File .*[/\\]", plain(part))]


# --- building --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """One file as it should be, beside the file as it is."""

    path: Path
    wanted: bytes

    @property
    def differs(self) -> bool:
        """Whether the file is missing or another."""
        return not self.path.is_file() or self.path.read_bytes() != self.wanted

    def write(self) -> bool:
        """Write the file if it differs; says whether it did."""
        if not self.differs:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.wanted)
        return True


def kept_outputs(edition: Edition, cells: list[Cell]) -> bool:
    """Fill in the outputs of the built file, if that was built from these very cells."""
    try:
        old = nbformat.reads(edition.path.read_text(encoding="utf-8"), as_version=4)
    except (OSError, ValueError):
        return False
    by_id = {c.id: c for c in old.cells if c.cell_type == "code"}
    code = [c for c in cells if c.cell_type == "code"]
    if old.metadata.get("agentlab", {}).get("digest") != digest(cells) or not by_id.keys() >= {c.id for c in code}:
        return False
    for cell in code:
        cell.outputs, cell.execution_count = by_id[cell.id].outputs, by_id[cell.id].execution_count
    return True


async def build_edition(edition: Edition, course: list[Lesson], gate: asyncio.Semaphore, anew: bool) -> Built:
    """Make one file: with the outputs that are there if nothing changed, else by running it."""
    cells = edition.cells()
    if anew or not kept_outputs(edition, cells):
        async with gate:
            start = time.monotonic()
            await execute(cells, edition.folder, edition.language)
            print(f"ran {edition} in {time.monotonic() - start:.1f} s", flush=True)
    return Built(edition.path, serialise(with_navigation(cells, edition, course)))


async def build(
    chosen: Iterable[str] = (), anew: bool = False, notebooks: Path = NOTEBOOKS
) -> tuple[list[Built], list[str]]:
    """All files as they should be, and what went wrong. ``chosen`` lessons (their numbers) are run anew."""
    course = lessons(notebooks)
    chosen = set(chosen)
    if strangers := chosen - {lesson.number for lesson in course}:
        raise LessonError(f"no lesson {', '.join(sorted(strangers))} in {notebooks / 'source'}")
    gate = asyncio.Semaphore(KERNELS_AT_ONCE)
    wanted = [
        edition for lesson in course if not chosen or lesson.number in chosen for edition in editions(lesson, notebooks)
    ]
    results = await asyncio.gather(
        *(build_edition(e, course, gate, anew or bool(chosen)) for e in wanted), return_exceptions=True
    )
    built, problems = [], []
    for edition, result in zip(wanted, results, strict=True):
        if isinstance(result, Built):
            built.append(result)
        elif isinstance(result, LessonError):
            problems.append(f"{edition}: {result}")
        else:
            raise result
    return [*built, *contents_pages(course, notebooks)], problems


def contents_pages(course: list[Lesson], notebooks: Path) -> list[Built]:
    """The contents page of each edition."""
    return [
        Built(
            folder(notebooks, language, instructor) / "index.ipynb",
            serialise(contents_page(language, instructor, course)),
        )
        for instructor in (False, True)
        for language in LANGUAGES
    ]


def stale(notebooks: Path = NOTEBOOKS) -> list[str]:
    """Built files that do not match their source, found without running anything; strangers are named too."""
    course = lessons(notebooks)
    pages = contents_pages(course, notebooks)
    wanted = [edition for lesson in course for edition in editions(lesson, notebooks)]
    found = [str(page.path.relative_to(notebooks)) for page in pages if page.differs]
    for edition in wanted:
        cells = edition.cells()
        fresh = kept_outputs(edition, cells)
        if not fresh or Built(edition.path, serialise(with_navigation(cells, edition, course))).differs:
            found.append(str(edition))
    known = {edition.path for edition in wanted} | {page.path for page in pages}
    for path in notebooks.rglob("*.ipynb"):
        if path not in known and ".ipynb_checkpoints" not in path.parts:
            found.append(f"{path.relative_to(notebooks)} (no source)")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("lessons", nargs="*", metavar="NN", help="numbers of lessons to run anew")
    parser.add_argument("--all", action="store_true", help="run every lesson anew")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if any byte would change")
    options = parser.parse_args(arguments)
    try:
        built, problems = asyncio.run(build(options.lessons, anew=options.all or options.check))
    except LessonError as refused:
        print(refused, file=sys.stderr)
        return 1
    changed = [b.path for b in built if (b.differs if options.check else b.write())]
    for path in changed:
        print("differs:" if options.check else "wrote", path.relative_to(ROOT))
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    return 1 if problems or (options.check and changed) else 0


if __name__ == "__main__":
    sys.exit(main())
