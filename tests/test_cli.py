"""The command line, as a person or a program meets it: what is printed, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from wire_server import Service, calls, hangs, says, text

from agentlib import use_language
from agentlib.__main__ import main
from agentlib.plan import main as plan_main

ROOT = Path(__file__).parent.parent
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "AGENTLIB_"))}


def command(*words: str, module: str = "agentlib", stdin: str = "", env: dict[str, str] | None = None, **options: Any):
    """The command in a process of its own; output and errors as bytes."""
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        **{"input": stdin.encode(), "env": {**CLEAN, "PYTHONPATH": str(ROOT), **(env or {})}, **options},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The environment of a live run against a service."""

    def of(service: Service) -> dict[str, str]:
        values = {"DASHSCOPE_API_KEY": "sk-test-of-the-cli", "MODEL_BASE_URL": service.url, "MODEL_NAME": "m"}
        values |= {"MODEL_PRICE_INPUT": "1", "MODEL_PRICE_OUTPUT": "10"}
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        return values

    return of


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(words)
    return code, json.loads(capsys.readouterr().out)


# --- exit codes -------------------------------------------------------------------------------------------------------


def test_completed_is_0_and_failed_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, result = ran(capsys, "--offline")
    assert (code, result["status"], result["summary"]["stop_reason"]) == (0, "completed", "done")
    assert "9692" in result["summary"]["answer"]
    endings = {
        "tool-error": (0, "done"),
        "runaway": (1, "stopped:steps"),
        "slow": (1, "stopped:time"),
        "costly": (1, "stopped:steps"),
    }
    for scenario, ending in endings.items():
        code, result = ran(capsys, "--offline", scenario)
        assert (code, result["summary"]["stop_reason"]) == ending
    code, result = ran(capsys, "--offline", "costly", "--max-steps", "none")
    assert (code, result["summary"]["stop_reason"]) == (1, "stopped:budget")


WRONG_USE = [
    ["--bogus"],
    ["one", "two"],
    ["--offline", "nosuch"],
    ["--offline", "", "?"],
    ["--lang", "xx", "?"],
    ["--max-steps", "2.5", "?"],
    ["--max-steps", "-1", "?"],
    ["--max-steps", "many", "?"],
    ["--max-steps"],
    ["--max-seconds", "nan", "?"],
    ["--max-seconds", "-3", "?"],
    ["--max-usd", "inf", "?"],
    ["--max-usd", "cheap", "?"],
]


@pytest.mark.parametrize("words", WRONG_USE, ids=" ".join)
def test_wrong_use_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_wrong_limits_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--max-usd", "nan", "?"])
    assert "max_usd" in capsys.readouterr().err


def test_the_caps_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--offline", "runaway", "--max-steps", "7", "--max-seconds", "12.5", "--max-usd", "none"]
    limits = ran(capsys, *words)[1]["summary"]["limits"]
    assert (limits["max_steps"], limits["max_seconds"], limits["max_usd"]) == (7, 12.5, None)
    limits = ran(capsys, "--offline")[1]["summary"]["limits"]
    assert (limits["max_steps"], limits["max_seconds"], limits["max_usd"]) == (4, 30.0, 0.05)


# --- in a process of its own ------------------------------------------------------------------------------------------


def test_as_in_the_readme() -> None:
    done = command("--offline")
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]["answer"]
    assert done.stderr == b""
    assert command("--help").returncode == 0
    assert command("--max-steps", "x", "?").returncode == 2


def test_from_another_folder(tmp_path: Path) -> None:
    assert json.loads(command("--offline", cwd=tmp_path).stdout)["status"] == "completed"


def test_no_question_is_asked_for(endpoint: Any) -> None:
    with Service(says(text())) as service:
        done = command(stdin="What is the total?\n", env=endpoint(service))
        assert done.returncode == 0
        assert done.stdout.startswith(b"Question: {")
        assert service.requests[0]["messages"][1]["content"] == "What is the total?"


def closes_its_input() -> None:
    os.close(0)


UNASKED: dict[str, dict[str, Any]] = {
    "nothing": {"stdin": ""},
    "text in another encoding": {"input": "销售额".encode("gbk"), "env": {"PYTHONIOENCODING": "utf-8"}},
    "no input": {"input": None, "preexec_fn": closes_its_input},
}


@pytest.mark.parametrize("name", UNASKED)
@pytest.mark.filterwarnings("ignore:.*preexec_fn")
def test_no_question_to_be_had_is_wrong_use(name: str) -> None:
    if sys.platform == "win32" and "preexec_fn" in UNASKED[name]:
        pytest.skip("a process there begins with its input")
    done = command(**UNASKED[name])
    assert (done.returncode, b"question" in done.stderr, b"Traceback" in done.stderr) == (2, True, False)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_ctrl_c_instead_of_a_question() -> None:
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-m", "agentlib"], env=CLEAN, cwd=ROOT, **streams) as process:
        assert process.stdout and process.stdout.read(10) == b"Question: "
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (2, b"python -m agentlib: no question was given\n")


def test_without_an_endpoint_it_says_what_to_set() -> None:
    done = command("What is the total?", env={"AGENTLAB_ENV_FILE": os.devnull})
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["summary"]["stop_reason"] == "failed:config"
    assert "DASHSCOPE_API_KEY" in result["warnings"][0]


@pytest.mark.parametrize("encoding", ["gbk", "ascii", "cp437", "latin-1", "utf-8"])
def test_any_console(encoding: str, endpoint: Any) -> None:
    """What a console cannot show is escaped, and the output stays JSON."""
    answer = "键盘 4495 🏆 é"
    with Service(says(text(answer))) as service:
        done = command("总额是多少？🤔", env={**endpoint(service), "PYTHONIOENCODING": encoding, "AGENTLIB_LANG": "zh"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode(encoding))["summary"]["answer"] == answer


@pytest.mark.parametrize("words", [["agentlib.plan"], ["agentlib.plan", "-h"], ["agentlib.runlog", "-h"]])
def test_any_console_shows_the_other_commands(words: list[str]) -> None:
    done = command(*words[1:], module=words[0], env={"PYTHONIOENCODING": "cp1252", "AGENTLIB_LANG": "zh"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" in done.stdout


def test_a_warning_in_chinese_on_a_gbk_console_is_readable() -> None:
    done = command("--offline", "runaway", "--lang", "zh", env={"PYTHONIOENCODING": "gbk"})
    assert done.returncode == 1
    assert "达到步数上限 MAX_STEPS=4，仍未收到最终文本回答" in done.stdout.decode("gbk")


def test_no_encoding_is_left_to_the_system() -> None:
    words = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-m", "agentlib", "--offline"]
    done = subprocess.run([sys.executable, *words], capture_output=True, timeout=120, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_ctrl_c_prints_what_was_done(endpoint: Any) -> None:
    with Service(says(calls()), hangs) as service:
        words = [sys.executable, "-m", "agentlib", "What is the total?"]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**CLEAN, **endpoint(service)}, cwd=ROOT
        )
        service.wait_for(2)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    result = json.loads(out)
    assert (process.returncode, err) == (1, b"")
    assert result["summary"]["stop_reason"] == "stopped:user"
    assert len(result["summary"]["tool_results"]) == 1


# --- the plan ---------------------------------------------------------------------------------------------------------

LINES = {
    "zh": [
        "默认上限：stopped:steps 步数=5",
        "时间上限：stopped:time 步数=2",
        "预算上限：stopped:budget 步数=2",
        "全放开：done 步数=6",
    ],
    "en": [
        "default limits: stopped:steps steps=5",
        "time cap: stopped:time steps=2",
        "budget cap: stopped:budget steps=2",
        "all open: done steps=6",
    ],
}


@pytest.mark.parametrize("lang", LINES)
def test_the_four_lines_of_the_plan(lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    use_language(lang)
    plan_main()
    assert capsys.readouterr().out.splitlines() == LINES[lang]


@pytest.mark.parametrize(
    ("env", "lang"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "zh_TW.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({}, "en"),
        ({"AGENTLIB_LANG": "zh", "LANG": "en_US.UTF-8"}, "zh"),
        ({"AGENTLIB_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
    ],
)
def test_the_plan_as_a_command(env: dict[str, str], lang: str) -> None:
    done = command(module="agentlib.plan", env={**env, "PYTHONIOENCODING": "utf-8"})
    assert done.stdout.decode().splitlines() == LINES[lang]
    assert (done.returncode, done.stderr) == (0, b"")
    assert command("--help", module="agentlib.plan").returncode == 0
    assert command("default", module="agentlib.plan").returncode == 2


def test_the_help_is_in_the_language_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for lang, word in (("zh", "问题"), ("en", "question")):
        with pytest.raises(SystemExit) as caught:
            main(["--lang", lang, "--help"])
        assert caught.value.code == 0
        assert word in capsys.readouterr().out
