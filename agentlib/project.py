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
    here = Path.cwd()
    for folder in (Path(__file__).resolve().parent.parent, here, *here.parents):
        if (folder / "data" / "input").is_dir():
            return folder
    return here
