"""The lessons as they are, and proof that each check on them can fail."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build_notebooks as build
import check_notebooks as check
import nbformat
import pytest
import rhythm

ROOT = Path(__file__).resolve().parent.parent
COURSE = Path(__file__).parent / "data" / "course"
LESSONS = build.lessons()


# --- the lessons themselves -------------------------------------------------------------------------------------


def test_built_files_match_their_sources() -> None:
    assert build.stale() == [], "run: make notebooks"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_lesson(lesson: build.Lesson) -> None:
    assert check.check_lesson(lesson) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_lesson_keeps_the_rhythm(lesson: build.Lesson) -> None:
    assert rhythm.measure(lesson).beyond() == []


def test_lessons_run_twice_in_one_kernel_from_any_folder(tmp_path: Path) -> None:
    async def run_all() -> list[list[str]]:
        gate = asyncio.Semaphore(build.KERNELS_AT_ONCE)
        return await asyncio.gather(*(run_twice(lesson, tmp_path, gate) for lesson in LESSONS))

    assert [cell for cells in asyncio.run(run_all()) for cell in cells] == []


async def run_twice(lesson: build.Lesson, folder: Path, gate: asyncio.Semaphore) -> list[str]:
    """Run a lesson's code, again in the same kernel, and a third time with each cell twice in a row.

    Returns the cells that then say something else than saved; the third time, those that raise where they should not.
    """
    edition = build.Edition(lesson, "en", False)
    saved = check.code_cells(nbformat.read(edition.path, 4))
    order = [*saved, *saved, *(cell for cell in saved for _ in range(2))]
    cells = [nbformat.v4.new_code_cell(c.source, metadata=c.metadata) for c in order]
    async with gate:
        await build.execute(cells, folder, edition.language)
    return [
        f"{lesson.name}, cell {check.first_line(known)!r}"
        for number, (cell, known) in enumerate(zip(cells, order, strict=True))
        if (says(cell) != says(known) if number < 2 * len(saved) else raises(cell) != raises(known))
        and (lesson.number, check.first_line(known)) not in check.NOT_COMPARED
    ]


def raises(cell: Any) -> bool:
    return any(output.output_type == "error" for output in cell.outputs)


def says(cell: Any) -> list[Any]:
    """What the outputs of a cell say; of an error its last line, since a traceback counts cells."""
    return [
        (output.ename, output.evalue)
        if output.output_type == "error"
        else sorted(check.output_text(output).split("\n"))
        for output in cell.outputs
    ]


def test_contents_pages_and_markdown_pages_have_no_broken_links() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("notebooks/*.md"), *ROOT.glob("docs/*.md")]
    assert check.check_contents() + [problem for page in pages for problem in check.check_page(page)] == []


# --- a small course to break ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample course, built once. Look, don't touch."""
    home = tmp_path_factory.mktemp("course")
    (home / "data").mkdir()
    (home / "data" / "numbers.csv").write_text("3\n4\n", encoding="utf-8")
    shutil.copytree(COURSE, home / "notebooks")
    assert make(home / "notebooks") == []
    return home / "notebooks"


@pytest.fixture
def course(built: Path, tmp_path: Path) -> Path:
    """A copy of the built course that a test may break."""
    shutil.copytree(built.parent, tmp_path / "copy")
    return tmp_path / "copy" / "notebooks"


def make(notebooks: Path, *numbers: str) -> list[str]:
    """Build; returns the problems."""
    files, problems = asyncio.run(build.build(numbers, notebooks=notebooks))
    for file in files:
        file.write()
    return problems


def first(notebooks: Path, language: str = "en", instructor: bool = False) -> build.Edition:
    """One edition of the course's first lesson."""
    return build.Edition(build.lessons(notebooks)[0], language, instructor, notebooks)


def load(notebooks: Path, language: str = "en", instructor: bool = False) -> Any:
    """The same, read."""
    return nbformat.read(first(notebooks, language, instructor).path, 4)


def snapshot(notebooks: Path) -> dict[str, bytes]:
    """The bytes of all built files."""
    return {str(path.relative_to(notebooks)): path.read_bytes() for path in notebooks.rglob("*.ipynb")}


def change_source(notebooks: Path, before: str, after: str) -> None:
    """Replace a piece of the first lesson's source."""
    path = build.lessons(notebooks)[0].path
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


# --- the build ---------------------------------------------------------------------------------------------------


def test_sample_course_passes_all_checks(built: Path) -> None:
    assert build.stale(built) == []
    assert check.check_contents(built) == []
    for lesson in build.lessons(built):
        assert check.check_lesson(lesson, built) == []


def test_building_twice_changes_no_byte(course: Path) -> None:
    before = snapshot(course)
    assert make(course) == []
    assert snapshot(course) == before
    assert make(course, "00") == []  # this one runs the lesson anew
    assert snapshot(course) == before


def test_navigation_leads_back_and_forth(built: Path) -> None:
    top = load(built, "zh").cells[0].source
    assert top == "[目录](index.ipynb) · [01 继续 →](01_go_on.ipynb) · [English](../en/00_first_steps.ipynb)"
    second = nbformat.read(built / "instructor" / "en" / "01_go_on.ipynb", 4)
    assert second.cells[0].source == second.cells[-1].source == (
        "[← 00 Take the first steps](00_first_steps.ipynb) · [Contents](index.ipynb) · "
        "[中文](../zh/01_go_on.ipynb) · [Student edition](../../en/01_go_on.ipynb)"
    )  # fmt: skip


def test_student_and_instructor_editions_differ_as_tagged(built: Path) -> None:
    student, instructor = load(built), load(built, instructor=True)
    assert "answer = ..." in [c.source for c in student.cells]
    assert "answer = 6 * 7" not in [c.source for c in student.cells]
    assert "answer = ..." not in [c.source for c in instructor.cells]
    assert any(c.source.startswith("Three minutes") for c in instructor.cells)
    assert not any(c.source.startswith("Three minutes") for c in student.cells)
    red, green = (next(c for c in nb.cells if c.source.startswith("assert answer")) for nb in (student, instructor))
    assert red.outputs[0].evalue == "not yet: Ellipsis"
    assert green.outputs[0].text == "right\n"
    assert "raises-exception" in red.metadata.tags
    assert "raises-exception" not in green.metadata.tags
    assert "(../../../data/numbers.csv)" in instructor.cells[1].source


def test_a_new_neighbour_changes_navigation_without_running_anything(course: Path) -> None:
    source = course / "source"
    shutil.copy(source / "01_go_on.md", source / "02_go_far.md")
    assert build.stale(course) == [
        *(f"{folder}/index.ipynb" for folder in ("en", "zh", "instructor/en", "instructor/zh")),
        *(f"{folder}/01_go_on.ipynb" for folder in ("en", "zh", "instructor/en", "instructor/zh")),
        *(f"{folder}/02_go_far.ipynb" for folder in ("en", "zh", "instructor/en", "instructor/zh")),
    ]
    edition = build.Edition(build.lessons(course)[1], "en", False, course)
    cells = edition.cells()
    assert build.kept_outputs(edition, cells)


def test_stale_build_is_found(course: Path) -> None:
    change_source(course, "1 + 2", "1 + 3")
    assert set(build.stale(course)) == {str(e) for e in build.editions(build.lessons(course)[0], course)}


def test_edited_build_is_found(course: Path) -> None:
    path = first(course).path
    path.write_text(path.read_text(encoding="utf-8").replace("A small lesson", "A tiny lesson"), encoding="utf-8")
    assert build.stale(course) == ["en/00_first_steps.ipynb"]


def test_removed_lesson_is_found(course: Path) -> None:
    (course / "source" / "01_go_on.md").unlink()
    assert "zh/01_go_on.ipynb (no source)" in build.stale(course)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('\n+++ {"lang": "zh"}\n\n## 接下来\n\n把 `answer` 设为六乘七。\n', "", "zh twin of the cell before is due"),
        ('+++ {"lang": "en"}\n\n## The', "+++\n\n## The", "prose without a language"),
        ('+++ {"lang": "en"}\n\n## The', '+++ {"lang": "fr"}\n\n## The', "language 'fr'"),
        ('+++ {"lang": "zh", "tags": ["instructor"]}', '+++ {"lang": "zh"}', "of its kind and tags"),
        (":tags: [exercise]", ":tags: [exercize]", "unknown tag exercize"),
        (":tags: [solution]", ":tags: [words]", "an exercise is a code cell tagged 'exercise'"),
        (":tags: [check]", ":tags: [words]", "the last exercise has no 'check' cell"),
        ('use_language("zh")', 'use_language("en")', 'does not say use_language("zh")'),
        ('json.loads("{")', 'json.loads("{");', "a ';' at the end hides"),
        ("# 00 · Take", "Take", "does not begin with '# '"),
    ],
)
def test_a_source_that_breaks_a_rule_is_refused(course: Path, before: str, after: str, message: str) -> None:
    change_source(course, before, after)
    with pytest.raises(build.LessonError, match=re.escape(message)):
        build.read_source(build.lessons(course)[0].path)


@pytest.mark.parametrize(
    ("before", "after", "instructor", "message"),
    [
        ('json.loads("{")', 'json.loads("{}")', False, "this cell has to raise, and did not"),
        ("answer = ...", "answer = 42", False, "this cell has to raise, and did not"),
        ("answer = 6 * 7", "answer = 6 * 9", True, "AssertionError"),
    ],
)
def test_a_cell_that_breaks_its_promise_fails_the_build(
    course: Path, before: str, after: str, instructor: bool, message: str
) -> None:
    change_source(course, before, after)
    edition = first(course, "en", instructor)
    with pytest.raises(build.LessonError, match=message):
        asyncio.run(build.build_edition(edition, build.lessons(course), asyncio.Semaphore(1), False))


def test_a_failed_build_leaves_the_old_file_and_builds_the_others(course: Path) -> None:
    before = snapshot(course)
    change_source(course, "answer = 6 * 7", "answer = 6 * 9")
    (course / "en" / "01_go_on.ipynb").unlink()
    problems = make(course)
    assert [problem.split(":")[0] for problem in problems] == [
        "instructor/en/00_first_steps.ipynb", "instructor/zh/00_first_steps.ipynb"
    ]  # fmt: skip
    assert snapshot(course) == before


def test_kernel_sees_neither_key_nor_env_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DASHSCOPE_API_KEY", "MODEL_NAME", "MODEL_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    inside = build.kernel_environment("zh")
    assert "secret" not in inside.values()
    assert inside["AGENTLIB_LANG"] == "zh"
    assert inside["AGENTLAB_ENV_FILE"] == os.devnull


# --- the checks: each must be able to fail -----------------------------------------------------------------------


LANGUAGE = "from agentlib import language"


def find(notebook: Any, beginning: str) -> Any:
    """The cell that begins so."""
    return next(c for c in notebook.cells if c.source.startswith(beginning))


def _clear(nb: Any) -> None:
    for cell in check.code_cells(nb):
        cell.outputs, cell.execution_count = [], None


def _bare_picture(nb: Any) -> None:
    data = {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure size 600x400>"}
    metadata = {"image/png": {"alt": "two bars"}}
    find(nb, "from IPython").outputs = [nbformat.v4.new_output("display_data", data, metadata=metadata)]


def _say(text: str, stream: str = "stdout") -> Callable[[Any], None]:
    def breaks(nb: Any) -> None:
        find(nb, LANGUAGE).outputs[0].update(text=text, name=stream)

    return breaks


def _html(text: str) -> Callable[[Any], None]:
    def breaks(nb: Any) -> None:
        find(nb, "from IPython").outputs[0].data["text/html"] = text

    return breaks


def _show(source: str) -> Callable[[Any], None]:
    def breaks(nb: Any) -> None:
        find(nb, "from IPython").outputs[0].data["text/markdown"] = f"```python\n{source}\n```"

    return breaks


def _prose(before: str, after: str) -> Callable[[Any], None]:
    def breaks(nb: Any) -> None:
        cell = next(c for c in nb.cells if before in c.source and "navigation" not in check.tags(c))
        cell.source = cell.source.replace(before, after)

    return breaks


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (_clear, "execution count None, expected 1"),
        (lambda nb: find(nb, "import ipyw").update(execution_count=9), "execution count 9, expected 5"),
        (lambda nb: find(nb, "import json").update(outputs=[]), "has to raise"),
        (lambda nb: find(nb, "import json").metadata.tags.clear(), "must not raise"),
        (lambda nb: find(nb, "import ipyw").metadata.update(tags=["nbval-skip"]), "not on the list NOT_COMPARED"),
        (_say("en 3", "stderr"), "output on stderr"),
        (_say("<object object at 0x7f3c2a10>"), "an address in memory"),
        (_say("/home/anna/agent-lab/data"), "an absolute path"),
        (_say(r"C:\Users\anna"), "an absolute path"),
        (_say("key sk-0123456789abcdef"), "something like a key"),
        (_say("DeprecationWarning: old"), "a warning"),
        (_prose("Set `answer`", "Set sk-0123456789abcdef"), "something like a key in its text"),
        (_bare_picture, "a bare picture as output"),
        (_html('<img src="data:image/png;base64,iVBORw0KGgo="> 3, 4'), "an <img> without alt in its output"),
        (_html('<img alt=" " src="data:image/png;base64,iVBORw0KGgo="> 3, 4'), "an <img> without alt in its output"),
        (_html("<svg><path/></svg>"), "an <svg> without aria-label"),
        (_html('<img alt="two bars" src="x.png">'), "the numbers of its chart do not stand as text"),
        (lambda nb: find(nb, LANGUAGE).update(source=f"{LANGUAGE}  # {'wide ' * 20}"), "where 106 fit"),
        (_show("def wide():\n" + "    return" + " 1 +" * 21), "where 91 fit"),
        (_prose("Set `answer`", "![](x.png) Set `answer`"), "a picture without alternative text"),
        (_prose("  accTitle: one step leads to the next\n", ""), "a Mermaid diagram without"),
        (_prose("../../data/numbers.csv", "../../data/gone.csv"), "leads nowhere"),
        (_prose("#The-way-on", "#The-way-off"), "names no heading"),
        (_prose("Set `answer`", "**Now:**set `answer`"), "make nothing bold"),
        (
            _prose("## The way on\n\nSet `answer` to six times seven.", "## 接下来\n\n把 `answer` 设为六乘七。"),
            "not English",
        ),
    ],
)
def test_broken_notebook_is_found(course: Path, breaks: Callable[[Any], None], message: str) -> None:
    notebook = load(course)
    breaks(notebook)
    found = check.check_edition(first(course), notebook)
    assert any(message in problem for problem in found)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (lambda nb: nb.cells.pop(4), "do not have the same cells"),
        (_prose("print(language(), 1 + 2)", "print(language(), 2 + 1)"), "other code"),
        (_prose("## 接下来", "### 接下来"), "other headings"),
        (_prose("```mermaid", "```text"), "a diagram is missing"),
        (_say("zh 4"), "other numbers"),
        (_say("zh 3 stopped:time"), "other stop reasons"),
    ],
)
def test_languages_that_drift_apart_are_found(course: Path, breaks: Callable[[Any], None], message: str) -> None:
    english, chinese = load(course), load(course, "zh")
    breaks(chinese)
    assert [p for p in check.alike(english, chinese, "00") if message in p]


def test_untranslated_prose_is_found(course: Path) -> None:
    chinese = load(course, "zh")
    find(chinese, "## 接下来").source = "## The way on\n\nSet `answer` to six times seven."
    assert any("not translated" in problem for problem in check.check_edition(first(course, "zh"), chinese))


def test_missing_edition_is_found(course: Path) -> None:
    first(course, "zh", True).path.unlink()
    assert check.check_lesson(build.lessons(course)[0], course) == ["instructor/zh/00_first_steps.ipynb: not built"]


def test_rhythm_is_measured_and_limited(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rhythm, "EXCEPTIONS", {})
    figures = rhythm.measure(build.lessons(built)[0])
    assert figures.lines == (2, 3, 2, 2, 2, 1, 2)
    assert figures.cells == 10
    assert (figures.words_en, figures.words_zh) == (30, 40)
    assert f"{figures.lesson}: 10 cells, not 30 to 60" in figures.beyond()
    long = rhythm.Rhythm("09_long", 61, (4, 26, 4), 100, 2000)
    assert [sentence.split(": ")[1].split(",")[0] for sentence in long.beyond()] == [
        "61 cells", "the median code cell has 4 lines", "only 67% of the code cells have at most 10 lines",
        "a code cell of 26 lines", "2.9 words for each line of code", "58.8 字 for each line of code",
    ]  # fmt: skip


# --- nbval: the same, by running ---------------------------------------------------------------------------------


CODE = """from IPython.display import HTML
print("step", 3)
HTML('<img alt="two bars" src="data:image/png;base64,AAAA"> 3, 4')"""
ERROR = 'raise ValueError("no")'
MUTATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text changed": (CODE, lambda cell: cell.outputs[0].update(text="step 4\n")),
    "value changed": (CODE, lambda cell: cell.outputs[1].data.update({"text/plain": "None"})),
    "alternative text changed": (
        CODE,
        lambda cell: cell.outputs[1].data.update({"text/html": "<img alt='bars'> 3, 4"}),
    ),
    "output removed": (CODE, lambda cell: cell.outputs.pop()),
    "outputs cleared": (CODE, lambda cell: cell.update(outputs=[])),
    "code changed": (CODE, lambda cell: cell.update(source=CODE.replace("3)", "5)"))),
    "error changed": (ERROR, lambda cell: cell.outputs[0].update(ename="KeyError")),
    "error no longer raised": (ERROR, lambda cell: cell.update(source="pass")),
    "error not expected": (ERROR, lambda cell: cell.metadata.tags.clear()),
}
HARMLESS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "unchanged": (CODE, lambda cell: None),
    "unchanged error": (ERROR, lambda cell: None),
    "picture drawn on another machine": (
        CODE, lambda c: c.outputs[1].data.update({"text/html": c.outputs[1].data["text/html"].replace("AAAA", "BB/+=")})
    ),
}  # fmt: skip


def test_nbval_finds_changed_outputs(tmp_path: Path) -> None:
    both = {**MUTATIONS, **HARMLESS}
    cells = [
        nbformat.v4.new_code_cell(code, metadata={"tags": ["raises-exception"] if code == ERROR else []})
        for code, _ in both.values()
    ]
    asyncio.run(build.execute(cells, tmp_path, "en"))
    for cell, (_, breaks) in zip(cells, both.values(), strict=True):
        breaks(cell)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "broken.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    command += ["--rootdir=.", "--color=no", "-rf", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=ROOT, check=False)
    failed = {int(n) for n in re.findall(r"^FAILED .*::Cell (\d+)", run.stdout, flags=re.M)}
    assert {name for place, name in enumerate(both) if place in failed} == set(MUTATIONS), run.stdout
