"""Open the first lesson in JupyterLab, in the language in force.

    .venv/bin/python tools/lab.py [options of jupyter lab]        Windows: .venv\\Scripts\\python tools\\lab.py

``AGENTLIB_LANG=zh`` or ``AGENTLIB_LANG=en`` chooses a language other than the system's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from agentlib.messages import language

ROOT = Path(__file__).resolve().parent.parent


def command(arguments: list[str]) -> list[str]:
    """The command that starts JupyterLab; later options win over ours."""
    folder = ROOT / "notebooks" / language()
    first = next(iter(sorted(folder.glob("00_*.ipynb"))), folder / "index.ipynb")
    lab = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
    lab.append(f"--LabApp.default_url=/lab/tree/{first.relative_to(ROOT).as_posix()}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        lab.append("--allow-root")
    return [*lab, *arguments]


if __name__ == "__main__":
    print("Starting JupyterLab; Ctrl-C ends it. 正在启动 JupyterLab，按 Ctrl-C 结束。", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(subprocess.call(command(sys.argv[1:]), cwd=ROOT))
