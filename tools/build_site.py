"""Builds the static site: the lessons in both languages, running wholly in the reader's browser.

    python tools/build_site.py [--out _site] [--notebooks notebooks]

JupyterLite draws the notebooks, Pyodide runs them. The runtime comes from the npm package ``pyodide``, the wheels
from the package index in the versions (and with the hashes) of the project's own lock files; everything is put into
the site, so the finished page asks no other host for anything. Downloads are kept in ``.site-cache/``.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tools" / "site"
CACHE = ROOT / ".site-cache"
LOCKS = (ROOT / "requirements.txt", HERE / "requirements.txt")
LANGUAGES = {"en": "lab", "zh": "lab-zh"}  # language of the lessons -> folder of the Lab that has its menus
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
KERNEL_HAS = {"widgetsnbextension", "jupyterlab-widgets"}  # stand-ins that come with the Pyodide kernel
KEPT = (".html", ".js", ".json", ".css", ".woff2", ".png", ".ico", ".webmanifest")  # what pages are made of


def main() -> None:
    """Build the site in the tools' own environment, which is made at the first run."""
    parser = argparse.ArgumentParser(description="Build the site that runs the lessons in the browser.")
    parser.add_argument("--out", type=Path, default=ROOT / "_site", help="folder to write (default: _site)")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", help="folder that holds en/ and zh/")
    arguments = parser.parse_args()
    own = kept("env", digest(HERE / "requirements.txt"), make_environment)
    if Path(sys.prefix) != own:
        sys.exit(subprocess.run([own / "bin" / "python", *sys.argv]).returncode)
    build(arguments.out.resolve(), arguments.notebooks.resolve())


def build(out: Path, notebooks: Path) -> None:
    """Write the whole site to ``out``, replacing what is there."""
    from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION

    runtime = kept("pyodide", PYODIDE_VERSION, lambda folder: unpack_npm(f"pyodide@{PYODIDE_VERSION}", folder))
    work = CACHE / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    fill_runtime(work / "static" / "pyodide", runtime)
    fill_contents(work / "contents", notebooks)
    for name in ("jupyter-lite.json", "overrides.json"):
        shutil.copy(HERE / name, work)
    run(sys.executable, "-m", "jupyterlite_core", "build", "--apps", "lab", "--no-sourcemaps",
        "--contents", "contents", "--output-dir", "built", cwd=work)  # fmt: skip
    choose_kernel_channel(work / "built")
    add_chinese_lab(work / "built")
    write_landing(work / "built", notebooks)
    keep_for_offline(work / "built")
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(work / "built", out)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{size / 1e6:.1f} MB in {os.path.relpath(out)}")


# --- the tools and the runtime ---


def kept(name: str, version: str, fill: Callable[[Path], None]) -> Path:
    """The cached folder of this name and version; ``fill`` makes it once, completely or not at all."""
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        fill(part)
        part.rename(folder)
    return folder


def digest(*files: Path) -> str:
    """A short name for what the files say."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command quietly; when it fails, show all that it said."""
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")


def make_environment(folder: Path) -> None:
    """A Python environment with the site's tools, in the locked versions."""
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--require-hashes", "-r", HERE / "requirements.txt")


def unpack_npm(package: str, folder: Path) -> None:
    """Fetch a package with npm, which checks its integrity, and unpack it into ``folder``."""
    run("npm", "pack", package, "--silent", cwd=folder)
    archive = next(folder.glob("*.tgz"))
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            member.name = member.name.removeprefix("package/")
            tar.extract(member, folder, filter="data")
    archive.unlink()


# --- Python inside the page ---


def fill_runtime(folder: Path, runtime: Path) -> None:
    """Pyodide, every wheel the lessons need, and the lock file that tells Pyodide where each import lives."""
    lock = json.loads((runtime / "pyodide-lock.json").read_text(encoding="utf-8"))
    platform = f"pyemscripten_{lock['info']['abi_version']}_wasm32"
    version = digest(*LOCKS, ROOT / "pyproject.toml", runtime / "pyodide-lock.json")
    wheels = kept("wheels", version, lambda part: fetch_wheels(part, platform))
    folder.mkdir(parents=True)
    for name in RUNTIME:
        shutil.copy(runtime / name, folder)
    for wheel in wheels.glob("*.whl"):
        shutil.copy(wheel, folder)
    build_own_wheel(folder)
    lock["packages"] = {entry["name"]: entry for entry in map(lock_entry, sorted(folder.glob("*.whl")))}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock, indent=1), encoding="utf-8")


def fetch_wheels(folder: Path, platform: str) -> None:
    """The wheels of the lessons for the page's Python: first those named here, then what they ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"ipython", "ipywidgets", "micropip", "packaging", *asked_for(project["dependencies"])}
    pins = {name: line for lock in LOCKS for name, line in read_pins(lock)}
    have: set[str] = set()
    while wanted:
        (folder / "wanted.txt").write_text("".join(pins[name] for name in sorted(wanted)), encoding="utf-8")
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes",
            "--platform", platform, "--platform", "any", "--python-version", page_markers()["python_version"],
            "--abi", "cp" + page_markers()["python_version"].replace(".", ""), "--abi", "none",
            "-d", folder, "-r", folder / "wanted.txt")  # fmt: skip
        have |= wanted
        wanted = {name for wheel in folder.glob("*.whl") for name in dependencies(wheel)} - have


def read_pins(lock: Path) -> Iterator[tuple[str, str]]:
    """Each package of a lock file that holds for the page's Python, with its line: the version and the hashes."""
    from packaging.requirements import Requirement

    for block in re.findall(r"^[a-z0-9].*(?:\n .*)*", lock.read_text(encoding="utf-8"), re.MULTILINE):
        requirement = Requirement(block.split(" \\", 1)[0])
        if asked_for([str(requirement)]):
            hashes = "".join(f" {option}" for option in re.findall(r"--hash=\S+", block))
            yield requirement.name, f"{requirement.name}{requirement.specifier}{hashes}\n"


def dependencies(wheel: Path) -> list[str]:
    """The names of the packages that a wheel asks for in the page."""
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return asked_for(email.message_from_bytes(archive.read(file)).get_all("Requires-Dist") or [])


def asked_for(requirements: Iterable[str]) -> list[str]:
    """The names of the requirements that count in the page and do not come with its kernel."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    counting = (r for r in map(Requirement, requirements) if r.marker is None or r.marker.evaluate(page_markers()))
    return [name for r in counting if (name := str(canonicalize_name(r.name))) not in KERNEL_HAS]


def page_markers() -> dict[str, str]:
    """What the page's Python answers to the conditions of a requirement."""
    from jupyterlite_pyodide_kernel.constants import PYODIDE_PYTHON_VERSION

    return {
        "python_version": PYODIDE_PYTHON_VERSION,
        "python_full_version": f"{PYODIDE_PYTHON_VERSION}.0",
        "implementation_version": f"{PYODIDE_PYTHON_VERSION}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "emscripten",
        "platform_system": "Emscripten",
        "platform_machine": "wasm32",
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }


def build_own_wheel(folder: Path) -> None:
    """agentlib as a wheel, with a digest in its file name: a browser never mistakes an old copy for a new one."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    wheel = next(folder.glob("agentlib-*.whl"))
    name, version, tags = wheel.name.split("-", 2)
    wheel.rename(folder / f"{name}-{version}-0{digest(wheel)}-{tags}")


def lock_entry(wheel: Path) -> dict[str, Any]:
    """What Pyodide's lock file says of one wheel."""
    from packaging.utils import parse_wheel_filename

    name, version, _, _ = parse_wheel_filename(wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        files = [file for file in archive.namelist() if file.endswith((".py", ".so")) and ".dist-info/" not in file]
    return {
        "name": str(name),
        "version": str(version),
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted({file.split("/")[0].split(".")[0] for file in files}),
        "depends": dependencies(wheel),
        "unvendored_tests": False,
    }


# --- what the reader sees ---


def lessons(notebooks: Path, language: str) -> list[Path]:
    """The lessons of one language, in order."""
    return sorted((notebooks / language).glob("[0-9]*.ipynb"))


def fill_contents(folder: Path, notebooks: Path) -> None:
    """The student edition and its data, laid out as in the repository, so that ``agentlib`` finds ``data/input``."""
    own_files = shutil.ignore_patterns("*.db*", ".*")
    for part in (*LANGUAGES, "images"):
        if (notebooks / part).is_dir():
            shutil.copytree(notebooks / part, folder / "notebooks" / part, ignore=own_files)
    shutil.copytree(ROOT / "data", folder / "data", ignore=own_files)
    for notebook in folder.rglob("*.ipynb"):
        content = whole_strings(json.loads(notebook.read_text(encoding="utf-8")))
        notebook.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def whole_strings(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with each text in one piece. A Jupyter server joins the lines of a file; a static host does not."""
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", ()):
            for texts in (output, output.get("data", {})):
                for key, value in texts.items():
                    if isinstance(value, list) and key != "traceback":
                        texts[key] = "".join(value)
    return notebook


def choose_kernel_channel(site: Path) -> None:
    """Let every page talk to its kernel in the way that works on every host.

    On a cross-origin isolated host the kernel would use shared memory instead of the service worker, and hang there
    after some cells (seen with jupyterlite-pyodide-kernel 0.8.6).
    """
    page = site / "lab" / "index.html"
    plain, head = page.read_text(encoding="utf-8"), "<head>"
    if plain.count(head) != 1:
        sys.exit(f"{head} is not there once in {page.name}")
    channel = '<script>Object.defineProperty(globalThis, "crossOriginIsolated", {value: false});</script>'
    page.write_text(plain.replace(head, f"{head}\n    {channel}"), encoding="utf-8")


def add_chinese_lab(site: Path) -> None:
    """A second Lab with Chinese menus: the same files and the same saved work, its own settings."""
    lab = shutil.copytree(site / "lab", site / LANGUAGES["zh"])
    file = lab / "jupyter-lite.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["jupyter-config-data"] |= json.loads((HERE / "lab-zh.json").read_text(encoding="utf-8"))
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")


def write_landing(site: Path, notebooks: Path) -> None:
    """The first page: what to click, in both languages.

    Each lesson has a workspace of its own: else the Lab would open all earlier lessons with it, each with a kernel.
    """
    page = Template((HERE / "index.html").read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for language, lab in LANGUAGES.items():
        links = {f"{lab}/index.html?workspace={lesson.stem}&amp;path=notebooks/{language}/{lesson.name}": title(lesson)
                 for lesson in lessons(notebooks, language)}  # fmt: skip
        words[f"start_{language}"] = next(iter(links))
        words[f"lessons_{language}"] = "\n".join(
            f'        <li><a href="{link}">{html.escape(text)}</a></li>' for link, text in links.items()
        )
    (site / "index.html").write_text(page.substitute(words), encoding="utf-8")


def keep_for_offline(site: Path) -> None:
    """Have the site's service worker keep the site: first lessons and data, then all but what Pyodide loads anyway."""
    worker = site / "service-worker.js"
    files = {file.relative_to(site).as_posix(): file for file in sorted(site.rglob("*")) if file.is_file()}
    lessons = [path for path in files if path.startswith(("files/", "api/"))]
    rest = [path for path in files if path.endswith(KEPT) and not path.startswith(("files/", "api/", "static/"))]
    words = {"version": digest(*files.values()), "lessons": json.dumps(lessons), "rest": json.dumps(rest)}
    ours = Template((HERE / "offline.js").read_text(encoding="utf-8")).substitute(words)
    worker.write_text(ours + worker.read_text(encoding="utf-8"), encoding="utf-8")


def title(lesson: Path) -> str:
    """The first heading of a notebook."""
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown" and (found := re.search(r"^# (.+)$", "".join(cell["source"]), re.MULTILINE)):
            return found[1].strip()
    return lesson.stem


if __name__ == "__main__":
    main()
