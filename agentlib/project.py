"""Where the project's files are, whatever folder the caller stands in."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def root() -> Path:
    """The folder that holds ``data/input`` and ``.env``.

    ``AGENTLAB_ROOT`` if it is set; else the checkout that this package runs from; else the
    current folder or the nearest folder above it that has a ``data/input``; else the current folder.
    """
    named = os.environ.get("AGENTLAB_ROOT", "").strip()
    if named:
        return Path(named).resolve()
    checkout = Path(__file__).resolve().parent.parent
    if _holds_data(checkout):
        return checkout
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _holds_data(folder)), here)


def databases() -> Path:
    """The folder for SQLite files: the project's ``data``.

    In a web page it is a ``data`` in the temporary folder, gone with the page: an SQLite file on the page's drive,
    which writes whole files at a time, comes out malformed.
    """
    if sys.platform != "emscripten":
        return root() / "data"
    folder = Path(tempfile.gettempdir()) / "data"
    folder.mkdir(exist_ok=True)
    return folder


def _holds_data(folder: Path) -> bool:
    return (folder / "data" / "input").is_dir()
