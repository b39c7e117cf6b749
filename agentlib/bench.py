"""The check before the first lesson: are the packages there, and is there a model to reach?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .messages import text
from .settings import SettingsError, load_settings, missing
from .waiting import HAS_THREADS

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


def check_packages() -> None:
    """Print a line for Python and each package of the lessons: OK, or FAIL with what is wanted and what is there."""
    lines = list(_lines())
    print("\n".join(lines))
    print(text("bench.fix" if any(line.startswith("FAIL") for line in lines) else "bench.all_there"))


def _lines() -> Iterator[str]:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    about = metadata("agentlib")
    yield _line("Python", SpecifierSet(about["Requires-Python"]), ".".join(map(str, sys.version_info[:3])))
    # A web page brings its own notebook and draws charts without matplotlib.
    extras = ("", "lab") if HAS_THREADS else ("",)
    for requirement in map(Requirement, about.get_all("Requires-Dist", [])):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield _line(requirement.name, requirement.specifier, _version(requirement.name))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _line(name: str, wanted: SpecifierSet, found: str | None) -> str:
    if found is not None and wanted.contains(found, prereleases=True):
        return f"OK    {name}"
    return f"FAIL  {name}: " + text("bench.wanted", wanted=wanted, found=found or text("bench.nothing"))


def check_endpoint() -> None:
    """Say whether lessons can reach a real model or stay offline, and what is missing in ``.env``. Shows no key."""
    absent = missing()
    if absent:
        print(text("bench.offline", names=", ".join(absent)))
        return
    try:
        settings = load_settings()
    except SettingsError as problem:
        print(text("bench.refused", problem=problem))
        return
    priced = text("bench.price_known" if settings.price else "bench.price_unknown")
    print(text("bench.live", model=settings.model, host=urlsplit(settings.base_url).hostname, price=priced))
