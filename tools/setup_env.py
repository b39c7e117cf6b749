"""Make the virtual environment ``.venv`` with exactly the packages of ``requirements.txt``, hashes checked.

    python3 tools/setup_env.py

``make`` calls this; where there is no make (Windows), call it by hand. It needs nothing but Python, and it does
nothing when the environment is up to date. Written so that an old Python can still read it and say that it is too old.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

OLDEST, TOO_NEW = (3, 11), (3, 15)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "agent-lab.stamp"
BIN = VENV / ("Scripts" if sys.platform == "win32" else "bin")
PYTHON = BIN / ("python.exe" if sys.platform == "win32" else "python")
INPUTS = ("requirements.txt", "pyproject.toml", "tools/setup_env.py")
LAB_SETTINGS = {  # of this environment only: no question about news on the first screen
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
NO_NETWORK = """
The packages could not be installed. If the lines above speak of a connection, a name or a proxy:
  - is this computer online? The first set-up downloads about 150 MB; later ones nothing.
  - behind a proxy, set HTTPS_PROXY; with a mirror of the package index, set PIP_INDEX_URL and UV_DEFAULT_INDEX.
Then run the same command again.
安装依赖失败。若上面的报错与网络、域名或代理有关：请检查网络；使用代理请设置 HTTPS_PROXY，
使用镜像源请设置 PIP_INDEX_URL 与 UV_DEFAULT_INDEX，然后重新运行同一条命令。
"""


def fingerprint() -> str:
    """What the environment is made from, as one word: the inputs, the interpreter and where the project lies."""
    word = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for name in INPUTS:
        word.update((ROOT / name).read_bytes())
    return word.hexdigest()


def call(*command: object) -> bool:
    """Run a command in the project's folder; say whether it succeeded."""
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode == 0


def pip(*arguments: object) -> bool:
    """Run the environment's own pip."""
    return call(PYTHON, "-m", "pip", "--disable-pip-version-check", *arguments)


def create() -> None:
    """An empty environment, unless a usable one of this Python is there."""
    probe = "import sys; print(sys.version_info[:2])"
    try:
        found = subprocess.run([str(PYTHON), "-c", probe], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        found = ""
    if found != str(tuple(sys.version_info[:2])):
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:
            sys.exit("This Python has no venv or pip. On Debian and Ubuntu: sudo apt install python3-venv python3-pip")


def install() -> bool:
    """The pinned packages: with uv, which takes seconds; with pip where uv cannot be had."""
    pinned = ["--require-hashes", "-r", "requirements.txt"]
    if pip("install", "-q", "uv") and call(PYTHON, "-m", "uv", "pip", "install", "-q", "--python", PYTHON, *pinned):
        return True
    print("uv did not do it; trying pip, which takes longer")
    return pip("install", "-q", *pinned)


def main() -> None:
    """Bring the environment up to date."""
    if not OLDEST <= sys.version_info[:2] < TOO_NEW:
        sys.exit(
            "Agent Lab needs Python 3.11 to 3.14; this is {}.{}. Install one of them and run, for instance, "
            "make lab PYTHON=python3.13\n需要 Python 3.11 至 3.14；当前是 {}.{}。".format(*sys.version_info[:2] * 2)
        )
    wanted = fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        STAMP.touch()
        return
    print("Setting up .venv with Python {}.{} (once) …".format(*sys.version_info[:2]), flush=True)
    create()
    # The project itself: no build isolation, no dependencies, so nothing more is downloaded.
    if not install() or not pip("install", "-q", "--no-deps", "--no-build-isolation", "-e", "."):
        sys.exit(NO_NETWORK)
    settings = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(LAB_SETTINGS, indent=2), encoding="utf-8")
    call(PYTHON, "-c", "import matplotlib.font_manager")  # builds the font cache now, not in a student's first chart
    STAMP.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
