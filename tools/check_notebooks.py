"""Check in the built lessons what running them does not show.

    python tools/check_notebooks.py          all lessons
    python tools/check_notebooks.py 03 05    these

nbval runs every cell and compares its output, but it lets pass a notebook that was never run, a picture without
alternative text, an absolute path, or two languages that drifted apart. Each function here returns a list of
sentences, one per problem; an empty list is good news.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import build_notebooks as build
import nbformat
from markdown_it import MarkdownIt

NOT_COMPARED: dict[tuple[str, str], str] = {
    ("05", "from agentlib import PROFILES"): "asks a real service where .env names one",
}
"""Cells that may be tagged nbval-ignore-output or nbval-skip: (lesson, first line of the code) and the reason."""

NUMBERS_MAY_DIFFER: dict[tuple[str, str], str] = {}
"""Cells whose outputs may hold other numbers in the other language: (lesson, first line of the code) and the reason."""

STRAYS = {
    "an address in memory": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "an absolute path": re.compile(
        r"(?<![\w.:/~-])/(?:home|root|Users|tmp|var|usr|opt|private|work|mnt)/|\b[A-Za-z]:\\\w"
    ),
    "something like a key": re.compile(r"\bsk-[\w-]{8,}|\bBearer\s+\S{8,}"),
    "a warning": re.compile(r"\b\w*Warning\b"),
}
CODE_FITS, SOURCE_FITS = 106, 91
"""The columns of a code cell, and of shown source, at 1280 pixels with the file browser open."""

STOP_REASON = re.compile(r"\b(?:stopped|failed):[a-z_]+|\bdone\b")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
PICTURE_DATA = re.compile(r"data:image/[\w+.-]+;base64,[A-Za-z0-9+/=\s]+")

Cell = Any
Notebook = Any


# --- small readers ---------------------------------------------------------------------------------------------


def tags(cell: Cell) -> list[str]:
    """The cell's tags."""
    return list(cell.metadata.get("tags", []))


def code_cells(notebook: Notebook) -> list[Cell]:
    """The code cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: Notebook) -> list[Cell]:
    """The prose cells, navigation left out."""
    return [cell for cell in notebook.cells if cell.cell_type == "markdown" and "navigation" not in tags(cell)]


def first_line(cell: Cell) -> str:
    """How a cell is named in messages and lists."""
    return str(cell.source.strip().splitlines()[0])


def without_code(markdown: str) -> str:
    """Markdown without fenced and inline code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^(```+|~~~+).*?^\1", "", markdown, flags=re.M | re.S))


def output_text(output: Any) -> str:
    """All that an output says in words and numbers; the bytes of pictures left out."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return build.plain("\n".join([output.ename, output.evalue, *output.traceback]))
    parts = [str(value) for kind, value in output.data.items() if kind.startswith("text/")]
    return PICTURE_DATA.sub("", "\n".join(parts))


def visible_html(text: str) -> str:
    """HTML without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def output_words(output: Any) -> str:
    """What a reader sees of an output."""
    if output.output_type in ("display_data", "execute_result") and "text/html" in output.data:
        return visible_html(output.data["text/html"])
    return output_text(output)


# --- one notebook ----------------------------------------------------------------------------------------------


def run_in_order(notebook: Notebook) -> list[str]:
    """Every code cell was run, once, from top to bottom."""
    return [
        f"cell {first_line(cell)!r}: execution count {cell.execution_count}, expected {wanted}"
        for wanted, cell in enumerate(code_cells(notebook), 1)
        if cell.execution_count != wanted
    ]


def errors_as_promised(notebook: Notebook) -> list[str]:
    """A cell ends in an error exactly if it is tagged so."""
    found = []
    for cell in code_cells(notebook):
        promised = "raises-exception" in tags(cell)
        raised = any(output.output_type == "error" for output in cell.outputs)
        if promised != raised:
            found.append(f"cell {first_line(cell)!r}: {'has to raise' if promised else 'must not raise'}")
    return found


def compared(notebook: Notebook, lesson: str) -> list[str]:
    """Only cells on the list stay uncompared."""
    return [
        f"cell {first_line(cell)!r}: tagged to be left uncompared, but not on the list NOT_COMPARED"
        for cell in code_cells(notebook)
        if {"nbval-ignore-output", "nbval-skip"} & set(tags(cell)) and (lesson, first_line(cell)) not in NOT_COMPARED
    ]


def no_strays(notebook: Notebook) -> list[str]:
    """No address, path of a computer, key or warning in an output; no key anywhere; nothing on stderr."""
    found = []
    for cell in notebook.cells:
        name = f"cell {first_line(cell)!r}"
        if STRAYS["something like a key"].search(cell.source):
            found.append(f"{name}: something like a key in its text")
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                found.append(f"{name}: output on stderr: {output.text[:80]!r}")
            text = output_text(output)
            for what, pattern in STRAYS.items():
                if hit := pattern.search(text):
                    start = max(0, hit.start() - 20)
                    found.append(f"{name}: {what} in its output: {text[start : hit.end() + 30]!r}")
    return found


def pictures_described(notebook: Notebook) -> list[str]:
    """Every picture has an alternative text that JupyterLab gives to its reader.

    JupyterLab 4.6 shows ``image/png`` and ``image/svg+xml`` outputs without one, whatever their metadata say, and gives
    a Mermaid diagram its ``accTitle``. So charts are shown as HTML.
    """
    found = []
    for cell in notebook.cells:
        name = f"cell {first_line(cell)!r}"
        if cell.cell_type == "markdown":
            found += [f"{name}: {problem}" for problem in _prose_pictures(cell.source)]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                found += [f"{name}: {problem} in its output" for problem in _html_pictures(data["text/html"])]
            elif any(kind.startswith("image/") for kind in data):
                found.append(f"{name}: a bare picture as output: JupyterLab gives it no alternative text; show HTML")
    return found


def _prose_pictures(markdown: str) -> Iterator[str]:
    text = without_code(markdown)
    for alt in re.findall(r"!\[([^\]]*)\]\(", text):
        if not alt.strip():
            yield "a picture without alternative text"
    yield from _html_pictures(text)
    for diagram in re.findall(r"^```mermaid\n(.*?)^```", markdown, flags=re.M | re.S):
        if not re.search(r"^\s*accTitle\s*:\s*\S", diagram, flags=re.M):
            yield "a Mermaid diagram without a line 'accTitle: what it shows'"


def _html_pictures(text: str) -> Iterator[str]:
    for tag in re.findall(r"<img\b[^>]*>", text):
        if not re.search(r"""\balt=(?:"[^"]*[^"\s][^"]*"|'[^']*[^'\s][^']*')""", tag):
            yield "an <img> without alt"
    for tag, body in re.findall(r"(<svg\b[^>]*>)(.*?)</svg>", text, flags=re.S):
        if "aria-label" not in tag and "aria-hidden" not in tag and "<title>" not in body:
            yield "an <svg> without aria-label or <title>"


def charts_in_numbers(notebook: Notebook) -> list[str]:
    """What a chart plots also stands as text, in its own cell or in the next one."""
    found = []
    cells = code_cells(notebook)
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        if any("<img" in o.get("data", {}).get("text/html", "") for o in cell.outputs):
            outputs = [*cell.outputs, *(after.outputs if after else [])]
            if len(NUMBER.findall(" ".join(output_words(o) for o in outputs))) < 2:
                found.append(f"cell {first_line(cell)!r}: the numbers of its chart do not stand as text")
    return found


def code_fits(notebook: Notebook) -> list[str]:
    """No code runs out of its cell and no shown source is broken in a word. A check may: its output says all of it."""
    found = []
    for cell in code_cells(notebook):
        shown = "".join(output.get("data", {}).get("text/markdown", "") for output in cell.outputs)
        code = "" if "check" in tags(cell) else cell.source
        for written, most in ((code, CODE_FITS), (shown, SOURCE_FITS)):
            if (widest := max(map(len, written.splitlines()), default=0)) > most:
                found.append(f"cell {first_line(cell)!r}: a line of {widest} columns, where {most} fit")
    return found


def links_lead_somewhere(notebook: Notebook, path: Path) -> list[str]:
    """Relative links point to files that exist, and anchors to headings."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for target in links(cell.source):
                if problem := _broken(target, path, notebook):
                    found.append(f"cell {first_line(cell)!r}: {problem}")
    return found


def bold_is_bold(notebook: Notebook) -> list[str]:
    """No ``**`` is left for a reader to see: ``**词：**词`` is not bold in Markdown, ``**词**：词`` is."""
    return [
        f"cell {first_line(cell)!r}: the ** beside {piece.content[:40]!r} make nothing bold"
        for cell in prose(notebook)
        for block in MarkdownIt("commonmark").enable("table").parse(cell.source)
        for piece in block.children or ()
        if piece.type == "text" and "**" in piece.content
    ]


def links(markdown: str) -> list[str]:
    """The targets of all links and pictures in a text."""
    text = without_code(markdown)
    found = re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r"""\b(?:href|src)=["']([^"']+)""", text)
    return [html.unescape(target) for target in found]


def _broken(target: str, path: Path, notebook: Notebook | None) -> str:
    if re.match(r"(https?|mailto|attachment|data):", target):
        return ""
    name, _, anchor = unquote(target).partition("#")
    other = (path.parent / name).resolve() if name else path
    if not other.exists():
        return f"the link {target} leads nowhere"
    if anchor and other.suffix in (".ipynb", ".md"):
        text = other.read_text(encoding="utf-8")
        if notebook is None or other != path:
            notebook = nbformat.reads(text, as_version=4) if other.suffix == ".ipynb" else None
        pages = [c.source for c in notebook.cells if c.cell_type == "markdown"] if notebook else [text]
        if anchor not in {name for page in pages for name in _anchors(page, notebook is not None)}:
            return f"the link {target} names no heading (JupyterLab's form: the heading's words joined by '-')"
    return ""


def _anchors(markdown: str, lab: bool) -> Iterator[str]:
    for _, title in headings(markdown):
        plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", title)
        yield plain.replace(" ", "-") if lab else re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def headings(markdown: str) -> list[tuple[int, str]]:
    """Level and words of each heading."""
    text = re.sub(r"^(```+|~~~+).*?^\1", "", markdown, flags=re.M | re.S)
    return [(len(marks), title.strip()) for marks, title in re.findall(r"^(#{1,6})\s+(.+?)\s*$", text, flags=re.M)]


# --- two languages ---------------------------------------------------------------------------------------------


def alike(one: Notebook, other: Notebook, lesson: str) -> list[str]:
    """Two languages of one edition: the same cells, code, headings, numbers and stop reasons."""
    if [(c.id[2:], c.cell_type) for c in one.cells] != [(c.id[2:], c.cell_type) for c in other.cells]:
        return ["the two languages do not have the same cells"]
    found = []
    for mine, yours in zip(one.cells, other.cells, strict=True):
        name = f"cell {first_line(mine)!r}"
        if mine.cell_type == "markdown":
            if [level for level, _ in headings(mine.source)] != [level for level, _ in headings(yours.source)]:
                found.append(f"{name}: other headings in the other language")
            if mine.source.count("```mermaid") != yours.source.count("```mermaid"):
                found.append(f"{name}: a diagram is missing in the other language")
            continue
        if "lang" not in mine.metadata and mine.source != yours.source:
            found.append(f"{name}: other code in the other language")
        ours, theirs = (" ".join(output_words(o) for o in c.outputs) for c in (mine, yours))
        if STOP_REASON.findall(ours) != STOP_REASON.findall(theirs):
            found.append(f"{name}: other stop reasons in the other language's output")
        if sorted(NUMBER.findall(ours)) != sorted(NUMBER.findall(theirs)) and (
            lesson, first_line(mine)
        ) not in NUMBERS_MAY_DIFFER:  # fmt: skip
            found.append(f"{name}: other numbers in the other language's output")
    return found


def translated(notebook: Notebook, language: str) -> list[str]:
    """Prose is in its language: Chinese cells have Chinese in them, English cells are not Chinese."""
    found = []
    for cell in prose(notebook):
        text = without_code(cell.source)
        chinese, latin = len(re.findall(r"[\u4e00-\u9fff]", text)), len(re.findall(r"[A-Za-z]{2,}", text))
        if language == "zh" and not chinese and latin > 2:
            found.append(f"cell {first_line(cell)!r}: not translated")
        if language == "en" and chinese > latin:
            found.append(f"cell {first_line(cell)!r}: not English")
    return found


# --- all of it -------------------------------------------------------------------------------------------------


def check_edition(edition: build.Edition, notebook: Notebook) -> list[str]:
    """All checks on one built notebook."""
    number = edition.lesson.number
    found = [
        *run_in_order(notebook), *errors_as_promised(notebook), *compared(notebook, number), *no_strays(notebook),
        *pictures_described(notebook), *charts_in_numbers(notebook), *code_fits(notebook),
        *links_lead_somewhere(notebook, edition.path),
        *translated(notebook, edition.language), *bold_is_bold(notebook),
    ]  # fmt: skip
    return [f"{edition}: {problem}" for problem in found]


def check_lesson(lesson: build.Lesson, notebooks: Path = build.NOTEBOOKS) -> list[str]:
    """All checks on the four editions of a lesson."""
    missing = [str(e) for e in build.editions(lesson, notebooks) if not e.path.is_file()]
    if missing:
        return [f"{name}: not built" for name in missing]
    read = {e: nbformat.read(e.path, 4) for e in build.editions(lesson, notebooks)}
    found = [problem for edition, notebook in read.items() for problem in check_edition(edition, notebook)]
    for instructor in (False, True):
        (edition, one), (_, other) = ((e, nb) for e, nb in read.items() if e.instructor == instructor)
        found += [f"{edition}: {problem}" for problem in alike(one, other, lesson.number)]
    return found


def check_contents(notebooks: Path = build.NOTEBOOKS) -> list[str]:
    """The links of the contents pages."""
    pages = (
        build.folder(notebooks, language, who) / "index.ipynb" for who in (False, True) for language in build.LANGUAGES
    )
    found = []
    for path in pages:
        problems = links_lead_somewhere(nbformat.read(path, 4), path) if path.is_file() else ["not built"]
        found += [f"{path.relative_to(notebooks)}: {problem}" for problem in problems]
    return found


def check_page(path: Path) -> list[str]:
    """The links of a Markdown page."""
    problems = (_broken(target, path, None) for target in links(path.read_text(encoding="utf-8")))
    return [f"{path.name}: {problem}" for problem in problems if problem]


def main(numbers: Iterable[str]) -> int:
    """The command line."""
    chosen = set(numbers)
    found = [] if chosen else check_contents()
    try:
        course = [lesson for lesson in build.lessons() if not chosen or lesson.number in chosen]
        stale = [name for name in build.stale() if not chosen or any(Path(name).name.startswith(n) for n in chosen)]
        found += [f"{name}: not built from the source as it is; make notebooks" for name in stale]
        for lesson in course:
            found += check_lesson(lesson)
    except build.LessonError as problem:
        found.append(str(problem))
    print("\n".join(found) or "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
