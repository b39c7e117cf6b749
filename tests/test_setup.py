"""The set-up: pinned packages, make, the first lesson in JupyterLab, CI."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from io import StringIO
from pathlib import Path

import lab
import pytest
import setup_env
import yaml
from dotenv import dotenv_values
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- what is installed -------------------------------------------------------------------------------------------


def pins() -> list[tuple[Requirement, int]]:
    """Each pinned requirement with the number of its hashes."""
    entries = re.sub(r"\\\n", " ", read("requirements.txt")).splitlines()
    kept = [entry.split("#")[0].strip() for entry in entries]
    return [(Requirement(entry.split("--hash")[0].strip()), entry.count("--hash=sha256:")) for entry in kept if entry]


def test_every_package_is_pinned_with_hashes() -> None:
    assert len(pins()) > 100
    for requirement, hashes in pins():
        assert re.fullmatch(r"==[\w.+]+", str(requirement.specifier)), requirement
        assert hashes, requirement


def test_requirements_name_no_place() -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|-i |@ ", read("requirements.txt"))


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("python", PYTHONS)
def test_pins_fit_the_project_everywhere(python: str, system: str) -> None:
    here = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
    }
    pinned = {r.name: r for r, _ in pins() if r.marker is None or r.marker.evaluate(here)}
    extras = PROJECT["optional-dependencies"]
    for wanted in map(Requirement, [*PROJECT["dependencies"], *extras["lab"], *extras["test"]]):
        version = str(pinned[wanted.name].specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{wanted} is pinned to {version}: make requirements"


def test_uv_takes_the_pins_as_they_are() -> None:
    # constraints in [tool.uv] would count as requirements without hashes, and uv would refuse the whole file
    assert "uv" not in tomllib.loads(read("pyproject.toml"))["tool"]


def test_all_places_speak_of_the_same_pythons() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    assert [p for p in ("3.10", *PYTHONS, "3.15") if supported.contains(p)] == list(PYTHONS)
    assert (setup_env.OLDEST, setup_env.TOO_NEW) == ((3, 11), (3, 15))
    jobs = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    assert tuple(jobs["linux"]["strategy"]["matrix"]["python"]) == PYTHONS


def test_conda_installs_the_same() -> None:
    environment = yaml.safe_load(read("environment.yml"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    *conda, by_pip = environment["dependencies"]
    python, *others = conda
    assert others == ["pip", "make"]
    (version,) = re.findall(r"^python=(3\.\d+)$", python)  # one version: Binder's parser cannot read a range
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)
    assert by_pip == {"pip": ["-r requirements.txt"]}


def test_package_carries_its_data(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = [p for p in (ROOT / "agentlib").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {p.relative_to(ROOT).as_posix() for p in data} <= inside
    assert {"agentlib/py.typed", "agentlib/messages/en.toml", "agentlib/messages/zh.toml"} <= inside


# --- the script that sets up -------------------------------------------------------------------------------------


def test_an_old_python_can_read_the_script_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ast.parse(read("tools/setup_env.py"), feature_version=(3, 6))
    monkeypatch.setattr(setup_env, "OLDEST", (3, 99))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 to 3\.14; this is 3\.\d+\.") as refused:
        setup_env.main()
    assert "需要 Python" in str(refused.value)


def test_without_network_the_advice_is_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []
    monkeypatch.setattr(setup_env, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(setup_env, "create", lambda: None)
    monkeypatch.setattr(setup_env, "call", lambda *command: calls.append(" ".join(map(str, command))) or False)
    with pytest.raises(SystemExit, match="is this computer online"):
        setup_env.main()
    assert [("uv" in call, "--require-hashes" in call) for call in calls] == [(True, False), (False, True)]
    assert not (tmp_path / "stamp").exists()


def test_pip_takes_over_where_uv_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def call(*command: object) -> bool:
        calls.append(" ".join(map(str, command)))
        return "-m uv" not in calls[-1]

    monkeypatch.setattr(setup_env, "call", call)
    assert setup_env.install()
    assert len(calls) == 3
    assert calls[-1].endswith("install -q --require-hashes -r requirements.txt")


def test_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup_env, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(setup_env, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup_env, "call", lambda *command: pytest.fail(f"called {command}"))
    (tmp_path / "stamp").write_text(setup_env.fingerprint(), encoding="utf-8")
    setup_env.main()


def test_the_fingerprint_follows_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = setup_env.fingerprint()
    for name in setup_env.INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    moved = setup_env.fingerprint()
    with (tmp_path / "requirements.txt").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert len({before, moved, setup_env.fingerprint()}) == 3


# --- the first lesson in JupyterLab ------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_lab_opens_the_first_lesson_in_the_language(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    monkeypatch.setenv("AGENTLIB_LANG", language)
    command = lab.command(["--no-browser", "--port=9999"])
    assert command[-2:] == ["--no-browser", "--port=9999"]
    (url,) = (part.partition("=")[2] for part in command if part.startswith("--LabApp.default_url="))
    assert re.fullmatch(rf"/lab/tree/notebooks/{language}/(00_\w+|index)\.ipynb", url)
    assert (ROOT / url.removeprefix("/lab/tree/")).is_file()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no root")
@pytest.mark.parametrize("user", [0, 1000])
def test_lab_allows_root_only_to_root(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ("--allow-root" in lab.command([])) == (user == 0)


# --- make, git, CI -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_make_help_names_every_goal() -> None:
    command = ["make", "--no-print-directory", "help"]  # under `make test` this is a make within a make
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (phony,) = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), flags=re.M)
    assert {line.split()[0] for line in text.splitlines()} == set(phony.split())


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("bash"), reason="needs bash and the mode of files")
@pytest.mark.parametrize(
    ("make", "npm", "made", "ends"),
    [
        ("true", "true", ["test", "site-test"], 0),
        ("true", "false", ["test"], 0),
        ("false", "true", ["test"], 1),
        ('[ "$1" = test ]', "true", ["test", "site-test"], 1),
    ],
)
def test_ci_runs_what_the_machine_allows_and_fails_with_it(
    tmp_path: Path, make: str, npm: str, made: list[str], ends: int
) -> None:
    stubs = {"make": f'echo "made $1"; {make}', "npm": npm, "fc-list": "echo Noto Sans CJK"}
    for name in (*stubs, "chromium", "python3", "apt-get", "sudo"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{stubs.get(name, 'true')}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], env=env, capture_output=True, text=True, check=False)
    assert re.findall(r"^made (.*)$", done.stdout, flags=re.M) == made
    assert (done.returncode != 0) == ends


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="not a checkout")
def test_secrets_are_ignored_and_line_ends_pinned() -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout

    assert git("check-ignore", ".env", ".venv/x").split() == [".env", ".venv/x"]
    assert git("ls-files", ".env") == ""
    for name in ("data/input/sales.csv", "notebooks/en/index.ipynb"):
        assert git("check-attr", "eol", name).strip() == f"{name}: eol: lf"


def test_env_example_is_complete_in_each_block_and_holds_no_key() -> None:
    required = {"DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME"}
    blocks = re.split(r"^# --- .*$", read(".env.example"), flags=re.M)[1:7]
    for block in blocks:
        values = dotenv_values(stream=StringIO(re.sub(r"^# (?=[A-Z_]+=)", "", block, flags=re.M)))
        assert required <= values.keys()
        assert values["DASHSCOPE_API_KEY"] in ("", "ollama", "local")
    active = dotenv_values(ROOT / ".env.example")
    assert set(active) == required
