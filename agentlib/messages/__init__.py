"""Every sentence that a person reads, by language: one TOML file each.

Codes, stop reasons and keys are the same in all languages and do not stand here.
A third language is one more file beside ``en.toml``.
"""

from __future__ import annotations

import locale
import os
import sys
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_chosen: str | None = None


@cache
def languages() -> tuple[str, ...]:
    """The languages that have a message file, for instance ``("en", "zh")``."""
    here = files(__package__).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in here if f.name.endswith(".toml")))


def use_language(name: str | None) -> str:
    """Choose the language of all further messages; ``None`` goes back to the automatic choice.

    Returns the language now in force. Raises ``ValueError`` for a language without a message file.
    """
    global _chosen
    if name is not None and name not in languages():
        raise ValueError(f"language {name!r}: choose one of {', '.join(languages())}")
    _chosen = name
    return language()


def language() -> str:
    """The language in force: ``use_language``, else ``AGENTLIB_LANG``, else the system's locale."""
    if _chosen is not None:
        return _chosen
    wanted = os.environ.get("AGENTLIB_LANG", "").strip().lower()[:2]
    if wanted in languages():
        return wanted
    return "zh" if _system_locale().lower().startswith(("zh", "chinese")) else "en"


def text(key: str, /, **values: Any) -> str:
    """The message ``section.name`` in the language in force, its ``{fields}`` filled in."""
    return _template(language(), key).format(**values)


def suit_the_console() -> None:
    """Have a mark stand for each character that the console cannot show: printing it would be an error."""
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")


def _template(lang: str, key: str) -> str:
    section, _, name = key.partition(".")
    return str(_table(lang)[section][name])


@cache
def _table(lang: str) -> dict[str, dict[str, str]]:
    return tomllib.loads((files(__package__) / f"{lang}.toml").read_text(encoding="utf-8"))


def _system_locale() -> str:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(name):
            return os.environ[name]
    return locale.getlocale()[0] or ""
