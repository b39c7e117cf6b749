"""Tools in a process of their own: the same results, and an end to those that do not end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentlib.isolated import address, start
from agentlib.tools import ANALYZE_CSV, Tool, analyze_csv

SPAWN = "import pathlib, sys, time; time.sleep(1.5); pathlib.Path(sys.argv[1]).touch()"


def double(number):
    print("this is no part of the result")
    os.write(1, b"nor is this\n")
    return number * 2


def broken():
    raise LookupError("/home/somebody/secret is not there")


def vanish():
    os._exit(7)


def hang_with_a_child(file):
    subprocess.Popen([sys.executable, "-c", SPAWN, file])
    Path(file + ".begun").touch()
    time.sleep(60)


def tool(function, name="tool"):
    return Tool(function, "for tests", {}, name, isolated=True)


def result_of(function, **arguments):
    with start(tool(function), arguments) as child:
        return child.result(timeout=60)


def test_the_same_result_as_in_this_process():
    with start(ANALYZE_CSV, {"relative_path": "sales.csv"}) as child:
        assert child.result(timeout=60) == analyze_csv("sales.csv")


def test_what_it_prints_does_not_mix_with_the_result():
    assert result_of(double, number=21)["data"] == {"value": 42}


def test_large_arguments():
    assert result_of(double, number="键" * 500_000)["data"] == {"value": "键" * 1_000_000}


def test_an_exception():
    error = result_of(broken)["error"]
    assert error["code"] == "TOOL_FAILED"
    assert "LookupError" in error["message"]
    assert "somebody" not in error["message"]


def test_a_process_that_dies():
    error = result_of(vanish)["error"]
    assert error["code"] == "TOOL_FAILED"
    assert "7" in error["message"]


def test_it_is_killed_with_all_that_it_has_started(tmp_path):
    sign = tmp_path / "still here"
    with start(tool(hang_with_a_child), {"file": str(sign)}) as child:
        while not sign.with_name(sign.name + ".begun").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                child.result(timeout=0.1)
        began = time.monotonic()
        child.kill()
        assert child.result(timeout=5)["error"]["code"] == "TOOL_FAILED"
        child.kill()
    assert time.monotonic() - began < 5
    time.sleep(2)
    assert not sign.exists()


@pytest.mark.parametrize("function", [lambda: 1, [].append, type("Odd", (), {"__call__": lambda self: 1})()])
def test_a_function_that_cannot_be_imported(function):
    with pytest.raises(ValueError, match="isolated"):
        address(tool(function))


def test_a_function_of_a_notebook_cell():
    code = "import agentlib.isolated as i\ndef f(): pass\ni.address(i.Tool(f, '', {}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert "ValueError: f cannot run in a process of its own" in done.stderr


def test_as_a_command():
    command = [sys.executable, "-m", "agentlib.isolated", "agentlib.tools:analyze_csv"]
    question = json.dumps({"relative_path": "sales.csv"})
    root = Path(__file__).parent.parent
    done = subprocess.run(command, input=question, cwd=root, capture_output=True, encoding="utf-8", check=True)
    assert json.loads(done.stdout) == analyze_csv("sales.csv")
