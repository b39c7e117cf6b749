"""A class logs in at once: N simulated students, each through the log-in form, each with a lesson run to its end.

    python hub/load_test.py --url http://127.0.0.1:8000 --students 10 --lesson notebooks/en/05_run_the_capped_loop.ipynb

For a hub with AGENT_LAB_LOGIN=shared-password; the password is read from AGENT_LAB_PASSWORD. Run on the hub's own
machine, it also reports how much memory each student takes (the proportional set size, so shared pages count once).
Only a hub on this machine is accepted: nobody else's is put under load.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import requests
import websocket

PATIENCE = 300  # seconds, for each thing that is waited for


@dataclass
class Seconds:
    """How long one student waited for each thing, and how many cells the lesson ran."""

    log_in: float
    server: float
    lesson: float
    cells: int


class Student:
    """A browser of one student, as far as the hub can tell."""

    def __init__(self, url: str, name: str) -> None:
        self.hub, self.name, self.session = url, name, requests.Session()
        self.home = f"{url}/user/{name}"

    def work(self, password: str, lesson: str) -> Seconds:
        """Log in, wait for the server and the lessons, run the lesson."""
        moments = [time.monotonic()]
        self._log_in(password)
        moments.append(time.monotonic())
        self._wait_for_server()
        notebook = self._wait_for_lesson(lesson)
        moments.append(time.monotonic())
        cells = self._run(lesson, [cell for cell in notebook["cells"] if cell["cell_type"] == "code"])
        moments.append(time.monotonic())
        log_in, server, ran = (after - before for before, after in pairwise(moments))
        return Seconds(log_in, server, ran, cells)

    def _log_in(self, password: str) -> None:
        form = self.session.get(f"{self.hub}/hub/login", timeout=PATIENCE)
        token = re.search(r'name="_xsrf"\s+value="([^"]*)"', form.text)
        if not token:
            raise RuntimeError("the log-in page has no form")
        fields = {"username": self.name, "password": password, "_xsrf": token[1]}
        done = self.session.post(f"{self.hub}/hub/login?next=/hub/home", data=fields, timeout=PATIENCE)
        if "/hub/login" in done.url:
            raise RuntimeError(f"{self.name} was not let in")

    def _wait_for_server(self) -> None:
        self.session.get(f"{self.hub}/hub/spawn/{self.name}", timeout=PATIENCE)
        for _ in self._moments("the student's server"):
            page = self.session.get(f"{self.home}/lab", timeout=PATIENCE)
            if page.ok and urlsplit(page.url).path.startswith(urlsplit(self.home).path):
                return

    def _wait_for_lesson(self, lesson: str) -> dict[str, Any]:
        """The lesson in the student's home: pulled there when the page opens that a student lands on."""
        start = self.session.get(f"{self.home}/", timeout=PATIENCE)  # redirects to git-pull with its query
        query = urlsplit(start.url).query
        pull = self.session.get(f"{self.home}/git-pull/api", params=query, timeout=PATIENCE, headers=self._token())
        for _ in self._moments(f"{lesson} in the home folder; the last word of git was: {pull.text[-300:]}"):
            found = self.session.get(f"{self.home}/api/contents/agent-lab/{lesson}", timeout=PATIENCE)
            if found.ok:
                return dict(found.json()["content"])
        raise AssertionError  # _moments has raised before

    def _run(self, lesson: str, cells: list[dict[str, Any]]) -> int:
        body: Any = {"path": f"agent-lab/{lesson}", "name": lesson, "type": "notebook", "kernel": {"name": "python3"}}
        made = self.session.post(f"{self.home}/api/sessions", json=body, headers=self._token(), timeout=PATIENCE)
        made.raise_for_status()
        kernel = made.json()["kernel"]["id"]
        address = f"{self.home}/api/kernels/{kernel}/channels".replace("http", "ws", 1)
        cookies = "; ".join(f"{c.name}={c.value}" for c in self.session.cookies if self._is_mine(c.path))
        channel = websocket.create_connection(address, cookie=cookies, origin=self.hub, timeout=PATIENCE)
        try:
            for number, cell in enumerate(cells, 1):
                problem = _execute(channel, "".join(cell["source"]))
                if problem and "raises-exception" not in cell["metadata"].get("tags", ()):
                    raise RuntimeError(f"{self.name}: cell {number} failed: {problem}")
        finally:
            channel.close()
        return len(cells)

    def _token(self) -> dict[str, str]:
        found = (c.value for c in self.session.cookies if c.name == "_xsrf" and self.name in c.path)
        return {"X-XSRFToken": next(found, None) or ""}

    def _is_mine(self, path: str) -> bool:
        return f"{urlsplit(self.home).path}/".startswith(path)

    def _moments(self, awaited: str) -> Iterator[None]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            yield
            time.sleep(0.5)
        raise TimeoutError(f"{self.name} waited {PATIENCE} s for {awaited}")


def _execute(channel: websocket.WebSocket, code: str) -> str | None:
    """Run one cell in a kernel, until it says that it is idle again; the error, if there was one."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": uuid.uuid4().hex}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
    message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    channel.send(json.dumps(message))
    problem = None
    while True:
        answer = json.loads(channel.recv())
        if answer["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        if answer["msg_type"] == "error":
            problem = f"{answer['content']['ename']}: {answer['content']['evalue']}"
        if answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
            return problem


def memory(students: set[str]) -> dict[str, list[float]]:
    """Megabytes (proportional set size) of the hub's own processes and of each student's, of hubs on this machine."""
    found: dict[str, list[float]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            kind = _kind(process, students)
            size = re.search(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE) if kind else None
        except OSError:  # it has just ended, or it is somebody else's
            continue
        if kind and size:
            found.setdefault(kind, []).append(int(size[1]) / 1024)
    return found


def _kind(process: Path, students: set[str]) -> str | None:
    """``server`` and ``kernel`` for what runs in a student's name, ``proxy`` and ``hub`` for what serves all."""
    command = (process / "cmdline").read_text().replace("\0", " ")
    if any(f"JUPYTERHUB_USER={name}\0" in (process / "environ").read_text(errors="replace") for name in students):
        return "server" if "jupyterhub-singleuser" in command else "kernel" if "ipykernel" in command else "other"
    if "configurable-http-proxy" in command:
        return "proxy"
    return "hub" if re.search(r"bin/jupyterhub |jupyterhub_idle_culler", command) else None


def load(url: str, password: str, lesson: str, students: int) -> tuple[list[Seconds], dict[str, list[float]]]:
    """Let that many students come at once; what each waited for, and the memory at the end, all kernels still up."""
    names = [f"student{number:02d}" for number in range(1, students + 1)]
    with ThreadPoolExecutor(students) as crowd:
        waits = list(crowd.map(lambda name: Student(url, name).work(password, lesson), names))
    return waits, memory(set(names))


def report(waits: list[Seconds], sizes: dict[str, list[float]]) -> Iterator[str]:
    """The figures, as lines of text."""
    for what in ("log_in", "server", "lesson"):
        took = [getattr(wait, what) for wait in waits]
        yield f"{what:<8} median {median(took):6.1f} s   longest {max(took):6.1f} s"
    for kind, each in sorted(sizes.items()):
        yield f"{kind:<8} {len(each):3} processes, {sum(each) / len(each):6.1f} MB each, {sum(each):7.1f} MB in all"
    own = sum(sum(sizes.get(kind, ())) for kind in ("server", "kernel", "other"))
    yield f"one student with one open lesson: {own / len(waits):.0f} MB"


def main() -> None:
    """Put a hub on this machine under the load of one class, and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--students", type=int, default=10)
    parser.add_argument("--lesson", default="notebooks/en/05_run_the_capped_loop.ipynb")
    options = parser.parse_args()
    if urlsplit(options.url).hostname not in ("127.0.0.1", "localhost", "::1"):
        sys.exit("only a hub on this machine is put under load")
    began = time.monotonic()
    waits, sizes = load(options.url, os.environ["AGENT_LAB_PASSWORD"], options.lesson, options.students)
    print(f"{len(waits)} students ran {waits[0].cells} cells each; all done after {time.monotonic() - began:.1f} s")
    print(*report(waits, sizes), sep="\n")


if __name__ == "__main__":
    main()
