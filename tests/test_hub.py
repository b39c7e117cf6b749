"""The hub's sample configuration, started for real: ten students log in at once and run a lesson to its end.

``make hub-test`` runs these; plain ``make test`` leaves them out: they need npm, and an environment of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from build_site import CACHE, digest

ROOT = Path(__file__).resolve().parent.parent
HUB = ROOT / "hub"
PASSWORD = "only-for-this-test"
STUDENTS = int(os.environ.get("HUB_STUDENTS", "10"))

pytestmark = [pytest.mark.hub, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def environment() -> Path:
    """What a school installs: the lessons' packages, the hub's, agentlib; and the proxy. Kept for the next time."""
    pins = (ROOT / "requirements.txt", HUB / "requirements.txt")
    folder = CACHE / f"hub-{digest(*pins, HUB / 'package.json', *sorted((ROOT / 'agentlib').rglob('*.py')))}"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
        for file in pins:
            subprocess.run([*pip, "--require-hashes", "-r", file], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", ROOT], check=True)
        shutil.copy(HUB / "package.json", folder)
        subprocess.run(["npm", "install", "--silent", "--no-package-lock"], cwd=folder, check=True)
        ready.touch()
    return folder


@pytest.fixture(scope="session")
def settings(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a hub that runs beside everything else on this machine, with a copy of these lessons."""
    state = tmp_path_factory.mktemp("hub")
    lessons = state / "lessons.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, lessons], check=True)
    branch = subprocess.run(
        ["git", "branch", "--show-current"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        urls = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    own = {
        "LOGIN": "shared-password",
        "PASSWORD": PASSWORD,
        "SPAWNER": "simple",
        "STATE": str(state),
        "FIRST_PORT": "21000",
        "REPO": str(lessons),
        "BRANCH": branch.strip() or "HEAD",
        **dict(zip(("URL", "HUB_URL", "PROXY_URL"), urls, strict=True)),
    }
    programs = [environment / "bin", environment / "node_modules" / ".bin"]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **{f"AGENT_LAB_{name}": value for name, value in own.items()}}


@pytest.fixture(scope="session")
def hub(environment: Path, settings: dict[str, str]) -> Iterator[str]:
    state, url = Path(settings["AGENT_LAB_STATE"]), settings["AGENT_LAB_URL"]
    command = [environment / "bin" / "jupyterhub", "-f", HUB / "jupyterhub_config.py"]
    with (state / "hub.log").open("w") as log:
        process = subprocess.Popen(command, cwd=state, env=settings, stdout=log, stderr=log, start_new_session=True)
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{url}/hub/health", timeout=5).read()
                    break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, (state / "hub.log").read_text()[-3000:]
                    time.sleep(0.5)
            yield url
        finally:
            process.terminate()  # the hub then stops the students' servers and its proxy
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def test_ten_students_at_once_run_a_lesson_to_its_end(
    hub: str, environment: Path, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = [environment / "bin" / "python", HUB / "load_test.py", "--url", hub, "--students", str(STUDENTS)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stderr[-3000:]
    homes = Path(settings["AGENT_LAB_STATE"]) / "homes"
    assert len(list(homes.glob("*/agent-lab/data/input/sales.csv"))) == STUDENTS


@pytest.mark.parametrize("spawner", ["systemd", "simple"])
def test_every_setting_is_one_that_the_hub_knows(spawner: str, environment: Path, settings: dict[str, str]) -> None:
    script = """
import sys
from jupyterhub.app import JupyterHub
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
app = JupyterHub.instance()
app.load_config_file(sys.argv[1])
classes = {JupyterHub, SharedPasswordAuthenticator, *app.classes, *app.config.JupyterHub.spawner_class.mro()}
known = {cls.__name__: cls.class_trait_names() for cls in classes if hasattr(cls, "class_trait_names")}
print([f"{section}.{name}" for section in app.config for name in app.config[section] if name not in known[section]])
"""
    done = subprocess.run(
        [environment / "bin" / "python", "-c", script, HUB / "jupyterhub_config.py"],
        env={**settings, "AGENT_LAB_SPAWNER": spawner},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
