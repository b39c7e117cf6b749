"""For the tests: English unless a test chooses otherwise, and every choice undone after it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from agentlib.messages import use_language

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

os.environ["AGENTLIB_LANG"] = "en"
settings.register_profile("lab", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lab")


@pytest.fixture(autouse=True)
def automatic_language() -> Iterator[None]:
    yield
    use_language(None)
