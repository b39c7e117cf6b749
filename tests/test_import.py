"""``import agentlib`` is light, and every name it promises is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentlib

ROOT = Path(__file__).parent.parent
HEAVY = ("openai", "httpx2", "httpx", "pydantic", "anyio", "matplotlib", "ipywidgets", "IPython", "numpy", "asyncio")

MEASURE = """
import json, sys, time
began = time.process_time()
import agentlib
print(json.dumps([time.process_time() - began, sorted(sys.modules)]))
"""


def child(code: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, check=True, encoding="utf-8", cwd=ROOT, timeout=120).stdout


def test_it_is_light() -> None:
    seconds, modules = json.loads(child(MEASURE))
    assert [name for name in HEAVY if name in modules] == []
    others = (json.loads(child(MEASURE))[0] for _ in range(4))
    assert seconds < 0.05 or min(others) < 0.05  # of the processor's time: a busy machine may take longer


@pytest.mark.parametrize(
    "name", ["limits", "plan", "tools", "messages", "results", "run", "analyze_csv", "execute_tool"]
)
def test_the_lower_rooms_need_no_client(name: str) -> None:
    code = f"import sys, agentlib\nfrom agentlib import {name}\nprint(*sys.modules)"
    loaded = child(code).split()
    assert [heavy for heavy in HEAVY if heavy in loaded] == []


def test_nothing_happens_on_import(tmp_path: Path) -> None:
    code = "import agentlib.loop, agentlib.offline, threading; print(threading.active_count())"
    assert child(code) == "1\n"


def test_no_encoding_is_left_to_the_system() -> None:
    code = "import agentlib\nfor name in agentlib.__all__: getattr(agentlib, name)"
    assert child(code, "-X", "warn_default_encoding", "-W", "error::EncodingWarning") == ""


def test_every_name_is_there() -> None:
    assert sorted(agentlib.__all__, key=str.lower) == sorted(set(agentlib.__all__), key=str.lower)
    assert dir(agentlib) == sorted(agentlib.__all__)
    for name in agentlib.__all__:
        assert getattr(agentlib, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        agentlib.nothing_like_it  # noqa: B018
    contract = {"analyze_csv", "TOOLS", "execute_tool", "Limits", "PROFILES", "MAX_STEPS", "run"}
    assert contract | {"run_task", "arun_task", "events", "use_language"} <= set(agentlib.__all__)
