"""JupyterLab in a real Chromium: what the browser tests need to start it, open a notebook and look at it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, TimeoutError

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")

ZOOM = 1.25
VIEWPORT = {"width": round(1280 / ZOOM), "height": round(800 / ZOOM)}
"""A projector of 1280 x 800 pixels with the page at 125 %: fewer CSS pixels, each drawn larger."""

READY = """async () => {
    const panel = window.jupyterapp?.shell?.currentWidget;
    if (!panel?.sessionContext) return false;
    await panel.context.ready;
    await panel.sessionContext.ready;
    const kernel = panel.sessionContext.session?.kernel;
    return kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""


def find_chromium() -> str | None:
    """A Chromium of this machine: ``CHROMIUM_PATH``, else one found by its usual names and places."""
    named = os.environ.get("CHROMIUM_PATH")
    found = (named, *map(shutil.which, NAMES), *PLACES)
    return next((path for path in found if path and Path(path).exists()), None)


@dataclass
class Lab:
    """A running JupyterLab: where it is, and when it was launched."""

    url: str
    token: str
    launched: float

    def address(self, notebook: str) -> str:
        return f"{self.url}/lab/tree/{notebook}?token={self.token}&reset"


@contextmanager
def running_lab(folder: Path, notebooks: Path) -> Iterator[Lab]:
    """JupyterLab on loopback with settings of its own: no news pop-up, nothing of the user's, gone at the end."""
    settings = folder / "config" / "labconfig"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
    overrides = {"@jupyterlab/apputils-extension:notification": quiet}
    (settings / "default_setting_overrides.json").write_text(json.dumps(overrides))
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    env = {**os.environ, **own, "IPYTHONDIR": str(folder / "ipython")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env["AGENTLAB_ENV_FILE"] = str(folder / "none.env")
    token = secrets.token_hex(8)
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": 0,
        "ServerApp.root_dir": notebooks,
        "IdentityProvider.token": token,
        "LabApp.expose_app_in_browser": True,
        "LabApp.user_settings_dir": folder / "settings",
        "LabApp.workspaces_dir": folder / "workspaces",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--{name}={value}" for name, value in options.items()]
    launched = time.monotonic()
    with (folder / "lab.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield Lab(_address(process, folder), token, launched)
        finally:
            process.terminate()
            process.wait(20)


def _address(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Where the server listens, as it writes it down once it does."""
    note = folder / "runtime" / f"jpserver-{process.pid}.json"
    for _ in range(900):
        if process.poll() is not None:
            break
        try:
            return f"http://127.0.0.1:{json.loads(note.read_text())['port']}"
        except (OSError, ValueError):  # not there yet, or half written
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{(folder / 'lab.log').read_text()[-2000:]}")


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def run_all(page: Page, lab: Lab, notebook: str) -> None:
    """Open a notebook, wait for its kernel, and begin to run all cells."""
    page.goto(lab.address(notebook))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    wait_until(page, READY)
    page.evaluate("() => { window.ran = window.jupyterapp.commands.execute('notebook:run-all-cells') }")


def wait_until(page: Page, condition: str, seconds: float = 60) -> None:
    """Wait until an asynchronous condition holds. ``wait_for_function`` would take its promise for a yes."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds} s: {condition}")
        page.wait_for_timeout(50)


def wait_until_run(page: Page) -> None:
    """Wait until the last cell has run."""
    page.evaluate("() => window.ran.then(() => true)")


def command(page: Page, name: str, **arguments: Any) -> None:
    """Run one of JupyterLab's commands, without waiting for it."""
    page.evaluate("([name, args]) => { window.jupyterapp.commands.execute(name, args) }", [name, arguments])


def wait_for_text(page: Page, selector: str, wanted: str, seconds: float = 20) -> None:
    """Wait until the first element of the selector holds the text."""
    try:
        page.wait_for_function(
            "([selector, wanted]) => document.querySelector(selector)?.textContent.includes(wanted)",
            arg=[selector, wanted],
            timeout=1000 * seconds,
        )
    except TimeoutError:
        shown = page.locator(selector).all_text_contents()
        raise AssertionError(f"{selector} does not show {wanted!r}; it shows {shown}") from None


KEY_TO_CHANGE = """([selector]) => {
    const text = () => document.querySelector(selector)?.textContent;
    const before = text();
    const changed = new Promise(done => {
        const watcher = new MutationObserver(() => {
            if (text() !== before) { watcher.disconnect(); done(performance.now()); }
        });
        watcher.observe(document.body, {childList: true, subtree: true, characterData: true});
        setTimeout(() => done(NaN), 5000);
    });
    const pressed = new Promise(done => document.addEventListener(
        'keydown', () => done(performance.now()), {once: true, capture: true}));
    window.agentlab = Promise.all([pressed, changed]).then(([from, to]) => to - from);
}"""


def key_to_change(page: Page, key: str, selector: str) -> float:
    """Press a key; the milliseconds, as the page itself measures them, until the selector's text has changed."""
    page.evaluate(KEY_TO_CHANGE, [selector])
    page.keyboard.press(key)
    return float(page.evaluate("() => window.agentlab"))


def tab_to(page: Page, selector: str, back: bool = False, most: int = 150) -> None:
    """Press the Tab key until something that matches the selector has the focus."""
    for _ in range(most):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"{selector} is not reached in {most} presses of the Tab key")
