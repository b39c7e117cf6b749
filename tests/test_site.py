"""The built site in a real Chromium: what a student without any installation would see.

``make site-test-all`` runs these, ``make site-test`` all but those marked ``full``; plain ``make test`` leaves them
out, since they take some minutes and need npm.
The site is served below a path, as on most static hosts, with a content policy that makes the browser report whatever
a page or one of its workers wants from any other host.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from browser import FLAGS, ROOT, find_chromium, key_to_change, wait_for_text, wait_until
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

pytestmark = [pytest.mark.site, pytest.mark.timeout(900)]

BELOW = "/some/sub/path"
LABS = {"en": "lab", "zh": "lab-zh"}
BRIEF = ("zh-03", "en-04", "zh-05", "en-06")
"""The lessons that ``make site-test`` runs."""
LESSONS = [path for lang in LABS for path in sorted((ROOT / "notebooks" / lang).glob("[0-9]*.ipynb"))]
OTHERWISE = {
    "00-008": (r"(?m)^OK    (ipykernel|ipywidgets|jupyterlab|matplotlib)\n", ""),  # a page brings its own notebook
    "07-015": ("TOOL_TIMEOUT", "ok"),  # without threads and processes a slow tool is not cut but runs to its end
    "07-021": (r"TOOL_TIMEOUT(.*\n)False", r"ok\1True"),
}
"""Cells that say something else in the page: what is saved there, and what stands in its place. Of all other cells
every printed line must be the saved one."""
LIVE = ".env.example"
"""An output that names this file is about a real endpoint. Here it says that those are switched off."""
PATIENCE = 240_000  # milliseconds; the machine may be busy with other things

READY = """async () => {
    const panel = window.jupyterapp?.shell?.currentWidget;
    if (!panel?.sessionContext) return false;
    await panel.context.ready;
    await panel.sessionContext.ready;
    return panel.sessionContext.session?.kernel?.status === 'idle';
}"""
RUN_CELLS = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    window.agentlab = {};
    (async () => {
        await window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs');
        for (let i = 0; i < notebook.widgets.length; i++) {
            notebook.activeCellIndex = i;
            notebook.deselectAll();
            await window.jupyterapp.commands.execute('notebook:run-cell');
            window.agentlab.spoke ||= Boolean(notebook.widgets[i].model.outputs?.length);
        }
        window.agentlab.done = true;
    })();
}"""  # one by one, as a student does: JupyterLite's "Run All" stops at a cell that is meant to fail
RUN_ONE = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    await kernel.requestExecute({code: '0'}).done;
}"""
ALL_KEPT = f"""async () => {{
    const names = (await caches.keys()).filter(name => name.startsWith('agent-lab-'));
    const kept = await (await caches.open(names[0])).keys();
    return names.length === 1 && kept.some(request => request.url.endsWith('{BELOW}/service-worker.js'));
}}"""  # the last file that the service worker keeps
NOTEBOOK = "() => window.jupyterapp.shell.currentWidget.content.model.toJSON()"


class Host(SimpleHTTPRequestHandler):
    """A static host below a path. Subclasses say what is special about it."""

    extensions_map: ClassVar[dict[str, str]] = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".mjs": "text/javascript",
    }
    headers_of_all: ClassVar[dict[str, str]] = {
        "Content-Security-Policy-Report-Only": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
        f"report-uri {BELOW}/violation"
    }
    violations: ClassVar[list[str]] = []
    before: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[tuple[str, int]]] = []
    sent = 0

    def translate_path(self, path: str) -> str:
        inside = path.startswith(f"{BELOW}/")
        return super().translate_path(path.removeprefix(BELOW)) if inside else str(Path(self.directory) / "absent")

    def do_GET(self) -> None:
        extra = next((text for name, text in self.before.items() if self.path.endswith(name)), None)
        if extra is None:
            return super().do_GET()
        body = extra + Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(self.path))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def do_POST(self) -> None:
        self.violations.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def send_response(self, code: int, message: str | None = None) -> None:
        self.asked.append((self.path, code))
        super().send_response(code, message)

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length":
            type(self).sent += int(value)
        super().send_header(keyword, value)

    def end_headers(self) -> None:
        for name, value in self.headers_of_all.items():
            super().send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class OldBrowserHost(Host):
    """A host whose page cannot switch stacks, as in browsers without WebAssembly's JavaScript promise integration."""

    before: ClassVar = {"pyodide.mjs": b"delete WebAssembly.Suspending; delete WebAssembly.promising;\n"}


class IsolatedHost(Host):
    """A host that asks for cross-origin isolation, as some do so that pages may share memory with their workers."""

    headers_of_all: ClassVar = {
        **Host.headers_of_all,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew; downloads of an earlier build are used again."""
    folder = tmp_path_factory.mktemp("site") / "_site"
    subprocess.run([sys.executable, ROOT / "tools" / "build_site.py", "--out", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def serve(site: Path) -> Iterator[Callable[[type[Host]], ThreadingHTTPServer]]:
    servers: list[ThreadingHTTPServer] = []

    def start(kind: type[Host]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=str(site)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        stop(server)


def stop(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


def address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}{BELOW}"


@pytest.fixture(scope="module")
def url(serve: Callable[[type[Host]], ThreadingHTTPServer]) -> str:
    return address(serve(Host))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    if not chromium:
        pytest.fail("no Chromium was found: install one, or name it in AGENTLAB_CHROMIUM")
    with sync_playwright() as playwright:
        chosen = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield chosen
        chosen.close()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[BrowserContext]:
    """Somebody who opens the site for the first time."""
    opened = browser.new_context(viewport={"width": 1200, "height": 900})
    yield opened
    opened.close()


@pytest.fixture
def page(visitor: BrowserContext) -> Page:
    return visitor.new_page()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Write a measured figure into pytest's report."""

    def write(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return write


def called(lesson: Path) -> str:
    """The language and number of a lesson: en-05."""
    return f"{lesson.parent.name}-{lesson.stem[:2]}"


def each(*lessons: Path) -> list[Any]:
    """The lessons as parameters of a test; all but the brief ones are marked."""
    marks = {name: [] if name in BRIEF else [pytest.mark.full] for name in map(called, lessons)}
    return [pytest.param(lesson, id=called(lesson), marks=marks[called(lesson)]) for lesson in lessons]


def open_lesson(page: Page, url: str, lesson: Path) -> None:
    """Open a lesson as its link on the first page does, and wait until its kernel can run something."""
    lang = lesson.parent.name
    page.goto(f"{url}/{LABS[lang]}/index.html?workspace={lesson.stem}&path=notebooks/{lang}/{lesson.name}")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=PATIENCE)
    wait_until(page, READY, PATIENCE / 1000)


def run_cells(page: Page) -> list[dict[str, Any]]:
    """Run all cells, one by one; the cells as they are then."""
    page.evaluate(RUN_CELLS)
    page.wait_for_function("() => window.agentlab.done", timeout=PATIENCE)
    return list(page.evaluate(NOTEBOOK)["cells"])


def shown(output: dict[str, Any]) -> str:
    """What an output says in plain text. The page's kernel writes an error's class in another way."""
    if output["output_type"] == "error":
        name = re.sub(r"<class '(?:.*\.)?(\w+)'>", r"\1", output["ename"])
        return f"{name}: {output['evalue']}"
    said = output.get("text") or output["data"].get("text/plain", "")
    return said if isinstance(said, str) else "".join(said)


def differences(saved: list[dict[str, Any]], ran: list[dict[str, Any]]) -> Iterator[str]:
    """Where a run in the page did not say what is saved."""
    assert len(saved) == len(ran)
    for number, (before, now) in enumerate(zip(saved, ran, strict=True)):
        if before["cell_type"] != "code":
            continue
        lines: list[Any] = ["".join(map(shown, cell["outputs"])) for cell in (before, now)]
        if LIVE in lines[0]:
            lines = [re.findall(r"\w+:\w+", line)[:1] for line in lines]
        elif before["id"] in OTHERWISE:
            lines[0] = re.sub(*OTHERWISE[before["id"]], lines[0])
        if lines[0] != lines[1] or now["execution_count"] is None:
            yield f"cell {number}: saved {lines[0]!r}, in the page {lines[1]!r}"


def test_the_first_page_says_what_to_click(url: str, browser: Browser, say: Callable[[str], None]) -> None:
    phone = {"width": 390, "height": 844}
    visitor = browser.new_context(java_script_enabled=False, viewport=phone)
    page = visitor.new_page()
    began = time.monotonic()
    page.goto(f"{url}/")
    for words in ("Start in English", "开始中文课程"):
        start = page.get_by_role("link", name=words)
        start.wait_for()
        assert (box := start.bounding_box()) and box["y"] + box["height"] < phone["height"]
    took = time.monotonic() - began
    links = [link.get_attribute("href") or "" for link in page.locator("a").all()]
    for lesson in LESSONS:
        assert any(link.endswith(f"={lesson.stem}&path=notebooks/{lesson.parent.name}/{lesson.name}") for link in links)
    for link in links:
        place, path = link.split("?")[0], link.split("path=")[1]
        assert visitor.request.get(f"{url}/{place}").ok and visitor.request.get(f"{url}/files/{path}").ok, link
    visitor.close()
    say(f"first page in {took:.2f} s")
    assert took < 5


def test_links_between_the_lessons_lead_somewhere(site: Path) -> None:
    files = site / "files" / "notebooks"
    for notebook in files.rglob("*.ipynb"):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            for link in re.findall(r"\]\(([^):#]+)\)", "".join(cell["source"])) * (cell["cell_type"] == "markdown"):
                assert (notebook.parent / link).exists(), f"{notebook.relative_to(files)} links to {link}"


def test_seconds_to_the_first_output(url: str, browser: Browser, site: Path, say: Callable[[str], None]) -> None:
    lesson = next(lesson for lesson in LESSONS if lesson.name.startswith("05"))
    visitor = browser.new_context()
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    say(f"the site has {size / 1e6:.1f} MB")
    for visit in ("cold", "warm"):
        page, sent, began = visitor.new_page(), Host.sent, time.monotonic()
        open_lesson(page, url, lesson)
        ready = time.monotonic() - began
        page.evaluate(RUN_CELLS)
        page.wait_for_function("() => window.agentlab.spoke", timeout=PATIENCE)
        took = time.monotonic() - began
        loaded = (Host.sent - sent) / 1e6
        say(f"{visit}: kernel ready in {ready:.1f} s, first output in {took:.1f} s, {loaded:.1f} MB loaded")
        page.close()
    visitor.close()


def the_lesson(name: str) -> Path:
    """A lesson by its language and number."""
    return next(lesson for lesson in LESSONS if called(lesson) == name)


def check_run(page: Page, lesson: Path) -> None:
    """Run all cells of the open lesson; they must say what is saved."""
    saved = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    assert not list(differences(saved, run_cells(page)))


@pytest.mark.parametrize("lesson", each(*(path for path in LESSONS if path.stem[:2] != "06")))
def test_a_lesson_runs_to_its_end_as_saved(lesson: Path, url: str, page: Page) -> None:
    open_lesson(page, url, lesson)
    check_run(page, lesson)


@pytest.mark.parametrize("lesson", each(*(path for path in LESSONS if path.stem[:2] == "06")))
def test_lesson_06_runs_as_saved_and_its_slider_and_stop_work(
    lesson: Path, url: str, page: Page, say: Callable[[str], None]
) -> None:
    open_lesson(page, url, lesson)
    check_run(page, lesson)
    panel, steps = ".al-RunPanel", ".al-RunPanel .al-bar > span:nth-of-type(2)"

    def press(selector: str) -> None:
        page.locator(f"{panel} {selector}").first.focus()
        page.keyboard.press("Space")

    page.locator(panel).first.scroll_into_view_if_needed()
    press(".al-profile button:nth-of-type(3)")  # relaxed: twelve steps
    press(".al-scenario button:nth-of-type(4)")  # slow
    press(".al-start")
    wait_for_text(page, steps, "1 / 12", 60)
    page.locator(f"{panel} .al-max_steps .noUi-handle").first.focus()
    took = key_to_change(page, "ArrowLeft", steps)
    wait_for_text(page, steps, "1 / 11", 60)
    press(".al-stop")
    wait_for_text(page, f"{panel} .al-ending", "stopped:user", 60)
    say(f"{lesson.parent.name}: key to change of the bar while a model call waits {took:.0f} ms")


@pytest.mark.parametrize("later", [None, pytest.param("zh-06", marks=pytest.mark.full)])
def test_without_a_network_it_goes_on(
    later: str | None, serve: Callable[[type[Host]], ThreadingHTTPServer], page: Page
) -> None:
    """The host goes away once the kernel runs: the open lesson runs to its end, and so does one that is opened then."""
    server, lesson = serve(Host), the_lesson("en-05")
    open_lesson(page, address(server), lesson)
    page.evaluate(RUN_ONE)
    wait_until(page, ALL_KEPT, PATIENCE / 1000)
    stop(server)
    if later:
        lesson = the_lesson(later)
        open_lesson(page, address(server), lesson)
    check_run(page, lesson)


@pytest.mark.full
@pytest.mark.parametrize("kind", [OldBrowserHost, IsolatedHost])
def test_other_browsers_and_hosts_do_as_well(
    kind: type[Host], serve: Callable[[type[Host]], ThreadingHTTPServer], page: Page
) -> None:
    lesson = the_lesson("en-05")
    open_lesson(page, address(serve(kind)), lesson)
    check_run(page, lesson)


@pytest.mark.full
def test_the_chinese_lab_has_chinese_menus_and_opens_one_lesson_at_a_time(url: str, page: Page) -> None:
    for name in ("zh-00", "zh-01"):
        open_lesson(page, url, the_lesson(name))
        wait_for_text(page, ".lm-MenuBar-content", "文件", 60)
        assert page.locator(".jp-NotebookPanel").count() == len(page.workers) == 1


@pytest.mark.full
def test_a_changed_lesson_can_be_had_back(url: str, page: Page) -> None:
    path = f"notebooks/{LESSONS[0].parent.name}/{LESSONS[0].name}"
    first = """async path => {
        const got = await window.jupyterapp.serviceManager.contents.get(path, {type: 'notebook', content: true});
        return String(got.content.cells[0].source);
    }"""
    open_lesson(page, url, LESSONS[0])
    page.evaluate("""async () => {
        const panel = window.jupyterapp.shell.currentWidget;
        panel.content.model.cells.get(0).sharedModel.setSource('changed');
        await panel.context.save();
    }""")
    assert page.evaluate(first, path) == "changed"
    page.evaluate("async path => { await window.jupyterapp.serviceManager.contents.delete(path) }", path)
    page.goto(f"{url}/lab/index.html")
    page.wait_for_function("() => window.jupyterapp?.serviceManager.isReady", timeout=PATIENCE)
    assert page.evaluate(first, path) != "changed"


def test_nothing_was_asked_of_another_host() -> None:
    assert not Host.violations
    outside = {path for path, _ in Host.asked if not path.startswith(f"{BELOW}/")}
    assert outside <= {"/favicon.ico", "/api/service-worker-heartbeat"}  # the browser's and JupyterLite's own habit
    absent = {path for path, code in Host.asked if code >= 400 and path.startswith(BELOW)}
    assert not {path for path in absent if "/api/" not in path and not path.startswith(f"{BELOW}/images/")}
