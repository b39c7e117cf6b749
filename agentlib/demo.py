"""A tool that the lessons break things with. It stands in a module so that a child process can import it, too."""

from __future__ import annotations

import time
from pathlib import Path


def slow_note(seconds: float, path: str) -> str:
    """Wait for that long, then write a note into a file: work whose end can be seen."""
    time.sleep(seconds)
    Path(path).write_text("done", encoding="utf-8")
    return path
