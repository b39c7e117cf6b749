"""Where the project's files are, whatever folder the caller stands in."""

from __future__ import annotations

import os
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


def _holds_data(folder: Path) -> bool:
    return (folder / "data" / "input").is_dir()
