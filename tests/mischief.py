"""Tools that never end, or end badly, for a process of their own: light to import, and found there by name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

GRANDCHILD = "import pathlib, sys, time; time.sleep(1.5); pathlib.Path(sys.argv[1]).touch()"


def hangs_with_a_child(relative_path: str) -> None:
    subprocess.Popen([sys.executable, "-c", GRANDCHILD, relative_path])
    Path(relative_path + ".begun").touch()
    time.sleep(60)


def spins(relative_path: str) -> None:
    while True:
        pass


def vanishes(relative_path: str) -> None:
    os._exit(7)
