import asyncio
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from runlog_runs import (
    beginning,
    die_in_the_second_step,
    ending,
    play,
    tool_step,
    whole_run,
    write_runs,
    write_until_killed,
)

from agentlib.journal import Event
from agentlib.limits import PROFILES, Limits
from agentlib.loop import run_task
from agentlib.messages import language, use_language
from agentlib.offline import scenario, scripted, tool_call
from agentlib.results import error
from agentlib.runlog import RunLog, RunLogError, RunRow, listener, log, store, timestamp, writer
from agentlib.runlog.__main__ import aligned, main
from agentlib.runlog.sample import make_runs

SPAWN = multiprocessing.get_context("spawn")


QUARTER = listener.FLUSH_SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy test computer may take longer to write a row; that is another test's matter."""
    monkeypatch.setattr(listener, "FLUSH_SECONDS", 30.0)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    """The end of a run waits as long as it does in service."""
    monkeypatch.setattr(listener, "FLUSH_SECONDS", QUARTER)


@pytest.fixture
def runlog(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "runs.db")


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """What another program does that holds the file."""
    RunLog(path).add([])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        db.close()


# One run, one row


def test_a_run_becomes_a_row_and_its_steps_become_rows(runlog: RunLog) -> None:
    one = runlog.listener(kind="totals")
    play(one, whole_run("stopped:steps", steps=2))
    (run,) = runlog.runs()
    assert run["id"] == one.run_id
    wanted = {"stop_reason": "stopped:steps", "steps": 2, "tool_calls": 2, "requests": 2, "seconds": 2.0, "usd": 0.002}
    wanted |= {"task_id": "task-1", "model": "m", "kind": "totals", "profile": "standard", "pid": os.getpid()}
    wanted |= {"model_seconds": 1.5, "tool_seconds": 0.5, "limits": PROFILES["standard"].as_dict(), "question": None}
    assert {key: run[key] for key in wanted} == wanted
    assert run["day"] == run["started"][:10] == timestamp()[:10]
    assert run["started"].endswith("Z")
    first, second = runlog.steps(run["id"])
    assert second == {**first, "step": 2}
    assert first == {
        "run_id": run["id"], "step": 1, "model_seconds": 0.75, "usd": 0.001, "input_tokens": 100, "output_tokens": 20,
        "requests": 1, "tools": [{"tool": "analyze_csv", "status": "ok", "code": None, "seconds": 0.25}],
        "tool_seconds": 0.25,
    }  # fmt: skip


def test_an_unknown_cost_stays_unknown(runlog: RunLog) -> None:
    play(runlog, [beginning(), *tool_step(1, usd=None), ending("stopped:steps", 1, usd=None)])
    (run,) = runlog.runs()
    assert run["usd"] is None
    assert runlog.steps(run["id"])[0]["usd"] is None
    assert runlog.cost_to_cap()[0]["usd"] is None


def test_a_step_that_was_cut_shows_how_long_it_waited_and_what_it_waited_for(runlog: RunLog) -> None:
    cut_model = [
        Event("step", 2, 1.0, 0.001, {}),
        Event("request", 2, 1.0, 0.001, {"attempt": 1}),
        ending("stopped:time", 3),
    ]
    play(runlog, [beginning(), *tool_step(1)[:4], *cut_model])
    (run,) = runlog.runs()
    first, second = runlog.steps(run["id"])
    assert first["tools"] == [{"tool": "analyze_csv", "status": None, "code": None, "seconds": None}]
    assert (second["model_seconds"], second["requests"], second["input_tokens"]) == (2.0, 1, None)


def test_a_tool_error_is_kept_by_its_code_alone(runlog: RunLog) -> None:
    play(runlog, [beginning(), *tool_step(1, result=error("FILE_NOT_FOUND", "no secret-name.csv")), ending("done", 1)])
    (call,) = runlog.steps(runlog.runs()[0]["id"])[0]["tools"]
    assert (call["status"], call["code"]) == ("error", "FILE_NOT_FOUND")


def test_questions_arguments_and_data_are_not_in_the_file(runlog: RunLog) -> None:
    play(runlog, [beginning(question="my private question"), *tool_step(1), ending("done", 1)])
    content = b"".join(each.read_bytes() for each in runlog.path.parent.iterdir())
    assert b"analyze_csv" in content
    assert b"private" not in content
    assert b"secret" not in content


def test_the_question_is_kept_when_that_is_asked_for(runlog: RunLog) -> None:
    play(RunLog(runlog.path, keep_question=True), whole_run())
    assert runlog.runs()[0]["question"] == "How much?"


def test_the_profile_is_found_by_its_limits_unless_it_is_given(runlog: RunLog) -> None:
    relaxed, own = PROFILES["relaxed"], Limits(max_steps=7)
    play(runlog, [beginning(relaxed), ending("done", 0, limits=relaxed)])
    play(runlog, [beginning(relaxed), ending("done", 0, limits=own)])  # a slider was moved in the middle
    play(runlog.listener(profile="class"), [beginning(relaxed), ending("done", 0, limits=own)])
    assert [run["profile"] for run in runlog.runs()] == ["relaxed", "custom", "class"]


def test_another_prompt_has_another_name(runlog: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    play(runlog, whole_run())
    use_language("zh")  # the same prompt all the same
    play(runlog, whole_run())
    monkeypatch.setattr("agentlib.runlog.listener.SYSTEM", "Other words.")
    play(runlog, whole_run())
    play(runlog.listener(prompt="v4"), whole_run())
    english, chinese, other, given = (run["prompt"] for run in runlog.runs())
    assert english == chinese != other
    assert given == "v4"


def test_a_run_that_was_refused_before_it_began_is_counted(runlog: RunLog) -> None:
    one = runlog.listener()
    play(one, whole_run())
    play(one, [ending("failed:config", 0)])
    assert [run["stop_reason"] for run in runlog.runs()] == ["done", "failed:config"]


def test_events_before_the_beginning_are_nobodys(runlog: RunLog) -> None:
    play(runlog, tool_step(1))
    play(runlog, whole_run())
    assert len(runlog.runs()) == 1


def test_the_real_loop(runlog: RunLog) -> None:
    for name, limits in (("answers", Limits()), ("runaway", Limits(max_steps=3)), ("tool-error", Limits())):
        result = run_task("How much?", client=scenario(name), limits=limits, runlog=runlog.listener(kind=name))
        assert result["warnings"] == [] or result["status"] == "failed"
        (run,) = runlog.runs(kind=name)
        summary = result["summary"]
        assert (run["task_id"], run["stop_reason"]) == (result["task_id"], summary["stop_reason"])
        assert (run["steps"], run["tool_calls"]) == (summary["steps"], summary["tool_calls_used"])
        assert {key: run[key] for key in ("seconds", "usd", "requests")}.items() <= summary["usage"].items()
        steps = runlog.steps(run["id"])
        assert [step["step"] for step in steps] == list(range(1, summary["steps"] + 1))
        tools = [(call["tool"], call["status"]) for step in steps for call in step["tools"]]
        assert tools == [(each["tool"], each["result"]["status"]) for each in summary["tool_results"]]
    assert run_task(" ", client=scenario("answers"), runlog=runlog)["summary"]["stop_reason"] == "failed:config"
    assert len(runlog.runs(reason="failed")) == 1


# Many at once


def test_one_log_hears_runs_in_many_threads(runlog: RunLog) -> None:
    threads = [threading.Thread(target=play, args=(runlog, whole_run(steps=n))) for n in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run["steps"] for run in runlog.runs()) == list(range(1, 21))
    assert all(len(runlog.steps(run["id"])) == run["steps"] for run in runlog.runs())


def test_one_log_hears_interleaved_runs_of_one_event_loop(runlog: RunLog) -> None:
    async def slowly(events: list[Event]) -> None:
        for event in events:
            runlog.on_event(event)
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        await asyncio.gather(*(slowly(whole_run(steps=n)) for n in range(1, 11)))

    asyncio.run(all_at_once())
    assert sorted((run["steps"], len(runlog.steps(run["id"]))) for run in runlog.runs()) == [
        (n, n) for n in range(1, 11)
    ]


def test_eight_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    workers = [SPAWN.Process(target=write_runs, args=(path, 200)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 8
    runs = RunLog(path).runs(reason="done")
    assert Counter(run["kind"] for run in runs) == {str(worker.pid): 200 for worker in workers}
    with store.reading(path) as db:
        assert db.execute("SELECT COUNT(*) FROM steps").fetchone() == (3200,)


# Runs that never end


def test_a_process_that_is_killed_in_the_middle_loses_no_finished_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    told = set()
    for _ in range(3):
        here, there = SPAWN.Pipe(duplex=False)
        worker = SPAWN.Process(target=write_until_killed, args=(path, there))
        worker.start()
        there.close()
        told.add(here.recv())
        time.sleep(random.uniform(0.05, 0.2))
        worker.kill()
        worker.join()
        with pytest.raises(EOFError):
            while True:
                told.add(here.recv())
    assert len(told) > 10
    assert told <= {run["id"] for run in RunLog(path).runs(reason="done")}
    assert all(run["state"] == "died" for run in RunLog(path).unfinished())
    with store.reading(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a run counts as died when its signs of life stop")
def test_a_run_whose_process_died_is_found_with_what_it_had_done(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    worker = SPAWN.Process(target=die_in_the_second_step, args=(path,))
    worker.start()
    worker.join()
    (run,) = RunLog(path).unfinished()
    assert (run["state"], run["stop_reason"], run["steps"], run["tool_calls"]) == ("died", None, 2, 2)
    first, second = RunLog(path).steps(run["id"])
    assert (first["tools"][0]["status"], second["tools"][0]["status"]) == ("ok", None)
    assert RunLog(path).trigger_rates() == []


def test_a_run_gives_signs_of_life_as_long_as_somebody_works_on_it(
    runlog: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(log, "DIED_SECONDS", 0.6)
    one = runlog.listener()
    play(one, [beginning(), *tool_step(1)])
    time.sleep(0.8)
    (run,) = runlog.unfinished()
    assert run["state"] == "running"
    assert run["seen"] > run["started"]
    del one
    time.sleep(0.8)
    assert runlog.unfinished()[0]["state"] == "died"
    assert runlog.close()  # and its thread has ended


def test_a_run_on_another_computer_is_judged_by_its_signs_of_life_alone(runlog: RunLog) -> None:
    now, before = timestamp(), "2026-01-01T00:00:00.000Z"
    runlog.add(
        [RunRow("a", before, now, host="elsewhere", pid=1), RunRow("b", before, before, host="elsewhere", pid=1)]
    )
    assert {run["id"]: run["state"] for run in runlog.unfinished()} == {"a": "running", "b": "died"}


# Trouble with the file


def test_a_locked_file_holds_a_run_up_for_a_moment_only_and_is_written_later(runlog: RunLog, hurried: None) -> None:
    with lock(runlog.path):
        began = time.monotonic()
        with pytest.raises(RunLogError) as caught:
            play(runlog, whole_run())
        assert time.monotonic() - began < QUARTER + 0.4
        assert caught.value.code == "LATE"
        assert not runlog.flush(0.05)
    assert runlog.flush()
    assert [run["stop_reason"] for run in runlog.runs()] == ["done"]


def test_a_time_cap_holds_while_another_process_holds_the_file(runlog: RunLog, hurried: None) -> None:
    with lock(runlog.path):
        model = scripted(tool_call(), tool_call(), tool_call(), pace=1.5)
        began = time.monotonic()
        result = run_task("How much?", limits=Limits(max_seconds=2.0, max_usd=None), client=model, runlog=runlog)
        assert time.monotonic() - began < 2.0 + QUARTER + 0.75
    assert result["summary"]["stop_reason"] == "stopped:time"
    assert result["summary"]["usage"]["seconds"] < 2.1
    assert any("runs.db" in warning for warning in result["warnings"])
    runlog.flush()
    assert len(runlog.runs(reason="stopped:time")) == 1


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder and its files may only be read, also if the tests are run by root."""
    files = list(folder.iterdir())
    for each in files:
        each.chmod(0o444)
    folder.chmod(0o555)
    for parent in [folder, *folder.parents]:
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(0o755)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
        for each in files:
            each.chmod(0o644)


@pytest.mark.skipif(os.name != "posix", reason="folders have no such rights elsewhere")
def test_a_read_only_folder_gives_a_warning_and_keeps_the_result(tmp_path: Path) -> None:
    existing, missing = RunLog(tmp_path / "runs.db"), RunLog(tmp_path / "new.db")
    play(existing, whole_run())
    existing.close()
    with read_only(tmp_path):
        for each in (existing, missing):
            result = run_task("How much?", client=scenario("answers"), runlog=each)
            assert result["status"] == "completed"
            assert len(result["warnings"]) == 1
            assert "read-only" in result["warnings"][0]
        assert len(existing.runs()) == 1  # reading goes on


def test_a_full_disk_gives_a_warning_and_keeps_the_result(runlog: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    play(runlog, whole_run())
    runlog.close()

    def full(path: Path) -> sqlite3.Connection:
        db = store.open_to_write(path)
        db.execute("PRAGMA max_page_count = 1")  # SQLite takes the pages that are there already
        return db

    monkeypatch.setattr(writer, "open_to_write", full)
    results = [run_task("How much?", client=scenario("answers"), runlog=runlog) for _ in range(30)]
    assert {result["status"] for result in results} == {"completed"}
    assert "disk is full" in results[-1]["warnings"][0]
    runlog.close()
    monkeypatch.undo()
    play(runlog, whole_run())
    assert 2 <= len(runlog.runs()) < 32


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE photos (name TEXT)")
    db.close()


def newer(path: Path) -> None:
    RunLog(path).add([])
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {store.SCHEMA_VERSION + 1}")
    db.close()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.write_text("name,units\n" * 100), "NOT_A_RUN_LOG"),
        (lambda path: path.mkdir(), "FAILED"),
        (foreign, "NOT_A_RUN_LOG"),
        (newer, "OTHER_VERSION"),
    ],
)
def test_a_file_that_is_something_else_is_left_alone(runlog: RunLog, make: Any, code: str) -> None:
    make(runlog.path)
    before = runlog.path.read_bytes() if runlog.path.is_file() else None
    attempts = (lambda: play(runlog, whole_run()), runlog.runs, lambda: runlog.add([]))
    for attempt in attempts:
        with pytest.raises(RunLogError) as caught:
            attempt()
        assert caught.value.code == code
        assert runlog.path.name in str(caught.value)
    assert before is None or runlog.path.read_bytes() == before


def test_a_log_that_is_not_there_is_not_made_by_asking(runlog: RunLog) -> None:
    with pytest.raises(RunLogError) as caught:
        runlog.trigger_rates()
    assert caught.value.code == "NOT_FOUND"
    assert not runlog.path.exists()


def test_a_row_that_cannot_be_written_takes_no_other_with_it(runlog: RunLog, hurried: None) -> None:
    bad, good = runlog.listener(kind="\ud800"), runlog.listener(kind="good")
    with lock(runlog.path):  # both wait in one batch
        for one in (bad, good):
            with pytest.raises(RunLogError):
                play(one, whole_run())
    assert runlog.flush()
    assert [run["kind"] for run in runlog.runs()] == ["good"]


def test_names_with_special_characters(tmp_path: Path) -> None:
    odd = RunLog(tmp_path / "运行 #1?%20.db")
    play(odd, whole_run())
    assert len(odd.runs()) == 1


END_OF_PROGRAM = """
import sys
from agentlib.runlog import RunLog, RunLogError
from runlog_runs import play, whole_run
try:
    play(RunLog(sys.argv[1]), whole_run())
except RunLogError as late:
    print(late.code, flush=True)
"""


def program(path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", END_OF_PROGRAM, str(path)]
    where = {"cwd": Path(__file__).parent, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(command, **where)  # type: ignore[call-overload]
    assert child.stdout.readline() == "LATE\n"
    return child  # type: ignore[no-any-return]


def test_the_last_run_of_a_program_is_written_before_the_program_ends(runlog: RunLog) -> None:
    with lock(runlog.path):
        child = program(runlog.path)
        time.sleep(0.3)
    assert child.communicate(timeout=10) == ("", "")
    assert len(runlog.runs(reason="done")) == 1


def test_a_program_does_not_wait_for_a_locked_file_for_ever(runlog: RunLog) -> None:
    with lock(runlog.path):
        child = program(runlog.path)
        began = time.monotonic()
        assert child.communicate(timeout=10) == ("", "")
        assert time.monotonic() - began < 3
    assert runlog.runs() == []


# Questions


def made_up(count: int, seed: int = 1) -> list[RunRow]:
    dice = random.Random(seed)
    reasons = ["done", "done", "stopped:steps", "stopped:time", "stopped:budget", "stopped:user", "failed:model", None]
    rows = []
    for number in range(count):
        started = f"2026-10-{dice.randint(1, 14):02}T{dice.randint(0, 23):02}:00:00.000Z"
        row = RunRow(str(number), started, started, stop_reason=dice.choice(reasons), seconds=dice.randint(0, 300) / 10)
        row.kind, row.profile = dice.choice(["a", "b", None]), dice.choice(list(PROFILES))
        row.usd, row.steps = dice.choice([None, 0.01, 0.02, 0.03]), dice.randint(0, 9)
        rows.append(row)
    return rows


def test_the_answers_agree_with_counting_by_hand(runlog: RunLog) -> None:
    rows = made_up(3000)
    runlog.add(rows)
    ended = [row for row in rows if row.stop_reason]
    rates = runlog.trigger_rates(by=("day", "profile"), reason="stopped:steps")
    assert len(rates) == 14 * 3
    for line in rates:
        group = [r for r in ended if (r.started[:10], r.profile) == (line["day"], line["profile"])]
        fired = sum(r.stop_reason == "stopped:steps" for r in group)
        assert (line["runs"], line["fired"], line["rate"]) == (len(group), fired, fired / len(group))
    for line in runlog.cost_to_cap(by="kind", day="2026-10-03"):
        key = (line["kind"], line["reason"])
        group = [r for r in ended if (r.kind, r.stop_reason) == key and r.started.startswith("2026-10-03")]
        known = [r.usd for r in group if r.usd is not None]
        assert (line["runs"], line["seconds"]) == (len(group), round(median(r.seconds for r in group), 6))
        assert line["usd"] == (round(median(known), 6) if known else None)
    for line in runlog.averages(by="profile", reason="stopped"):
        group = [r for r in ended if r.profile == line["profile"] and str(r.stop_reason).startswith("stopped")]
        assert line["runs"] == len(group)
        assert line["steps"] == pytest.approx(sum(r.steps for r in group) / len(group), abs=1e-6)
        assert line["tool_seconds"] is None  # no tool was called
    assert len(runlog.unfinished()) == len(rows) - len(ended)


def test_a_rate_of_every_reason_and_of_a_family(runlog: RunLog) -> None:
    reasons = ["done"] * 5 + ["stopped:steps"] * 2 + ["stopped:time"] + ["failed:model"] * 2 + [None] * 7
    runlog.add(RunRow(str(n), timestamp(), timestamp(), stop_reason=each, kind="a") for n, each in enumerate(reasons))
    assert {row["reason"]: row["rate"] for row in runlog.trigger_rates("kind")} == {
        "done": 0.5, "stopped:steps": 0.2, "stopped:time": 0.1, "failed:model": 0.2,
    }  # fmt: skip
    family = {"kind": "a", "reason": "stopped", "runs": 10, "fired": 3, "rate": 0.3}
    assert runlog.trigger_rates("kind", "stopped") == [family]
    assert [row["fired"] for row in runlog.trigger_rates("kind", "stop")] == [0]
    assert [row["runs"] for row in runlog.cost_to_cap("kind", "stopped")] == [3]


def test_the_runs_behind_a_figure(runlog: RunLog) -> None:
    rows = made_up(3000)
    runlog.add(rows)
    (line,) = runlog.trigger_rates(by=("day", "kind"), reason="stopped:steps", day="2026-10-05", kind="a")
    behind = runlog.runs(reason="stopped:steps", day="2026-10-05", kind="a")
    assert len(behind) == line["fired"] > 0
    assert [run["started"] for run in behind] == sorted(run["started"] for run in behind)
    assert len(runlog.runs(kind=None)) == sum(row.kind is None for row in rows)
    assert len(runlog.runs(limit=3)) == 3


def test_an_unknown_column_is_refused(runlog: RunLog) -> None:
    runlog.add([])
    for ask in (lambda: runlog.trigger_rates("1; DROP TABLE runs"), lambda: runlog.runs(colour="red")):
        with pytest.raises(ValueError, match="day, profile, kind"):
            ask()
    assert runlog.runs(kind="'; DROP TABLE runs --") == []


def test_runs_are_counted_from_the_index_alone_and_without_sorting(runlog: RunLog) -> None:
    runlog.add(made_up(10))
    question = f"SELECT {log._INDEXED}, COUNT(*) FROM runs WHERE stop_reason IS NOT NULL GROUP BY {log._INDEXED}"
    with store.reading(runlog.path) as db:
        plan = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {question}")]
    assert plan == ["SCAN runs USING COVERING INDEX runs_counted"]


def test_the_rates_of_100_000_runs_take_less_than_a_fifth_of_a_second(runlog: RunLog) -> None:
    runlog.add(made_up(100_000))
    best = min(timed(lambda: runlog.trigger_rates(by="day", reason="stopped:steps")) for _ in range(3))
    assert best < 0.2


def timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# The table


def test_the_table_of_the_two_weeks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_runs(tmp_path / "two_weeks.db")
    assert main([str(path), "--by", "day", "--reason", "stopped:steps"]) == 0
    title, _, head, *lines, _, unfinished = capsys.readouterr().out.splitlines()
    assert title.endswith("two_weeks.db: ended runs: 1276")
    assert head.split() == ["day", "(UTC)", "runs", "fired", "rate", "median", "seconds", "median", "dollars"]
    assert lines[11].split() == ["2026-10-30", "101", "38", "37.6%", "5.9", "0.0174"]
    assert len({len(line) for line in lines}) == 1
    assert unfinished == "Not ended: 0 running, 4 died"


def test_the_table_in_chinese_is_aligned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_runs(tmp_path / "two_weeks.db")
    assert main([str(path), "--by", "profile", "--lang", "zh"]) == 0
    _, _, head, *lines, _, unfinished = capsys.readouterr().out.splitlines()
    assert head.startswith("配置档 ")
    assert {len(line) for line in lines} == {len(head.encode("gbk"))}  # two bytes for each wide character
    assert unfinished == "未结束：0 次仍在运行，4 次意外中断"


def test_the_table_leaves_the_language_as_it_is(runlog: RunLog, capsys: pytest.CaptureFixture[str]) -> None:
    runlog.add([])
    use_language("zh")
    assert main([str(runlog.path)]) == 0
    assert "已结束" in capsys.readouterr().out
    assert language() == "zh"


def test_a_table_of_wide_and_narrow_cells() -> None:
    assert aligned([["键盘", "x"], ["a", "数"]]) == "键盘   x\na     数"


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing.db")]) == 2
    assert "There is no run log" in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    assert main([str(tmp_path / "notes.txt"), "--lang", "zh"]) == 2
    assert "不是运行日志" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["--by", "colour"])
    assert caught.value.code == 2


def test_an_empty_log_has_a_table_too(runlog: RunLog, capsys: pytest.CaptureFixture[str]) -> None:
    runlog.add([])
    assert main([str(runlog.path)]) == 0
    assert main([str(runlog.path), "--reason", "stopped:steps"]) == 0
    assert "ended runs: 0" in capsys.readouterr().out


# The two weeks of lesson 08


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> RunLog:
    return RunLog(make_runs(tmp_path_factory.mktemp("weeks") / "two_weeks.db"))


def rates(two_weeks: RunLog, by: str, **where: str) -> dict[str, float]:
    return {row[by]: row["rate"] for row in two_weeks.trigger_rates(by, "stopped:steps", **where)}


SPIKE = "2026-10-30"


def test_one_day_goes_wrong(two_weeks: RunLog) -> None:
    by_day = rates(two_weeks, "day")
    spike = by_day.pop(SPIKE)
    assert len(by_day) == 13
    assert spike > 2 * max(by_day.values())


def test_it_is_not_the_prompt(two_weeks: RunLog) -> None:
    assert rates(two_weeks, "prompt")["v4"] > 1.3 * rates(two_weeks, "prompt")["v3"]  # tempting
    by_day = rates(two_weeks, "day", prompt="v4")
    del by_day[SPIKE]
    assert list(by_day) == ["2026-10-28", "2026-10-29", "2026-10-31", "2026-11-01"]
    assert max(by_day.values()) < 0.11


def test_it_is_not_the_tool(two_weeks: RunLog) -> None:
    per_call = {row["day"]: row["tool_seconds"] for row in two_weeks.averages("day")}
    assert per_call[SPIKE] == max(per_call.values())  # tempting
    usual = {row["kind"]: row["tool_seconds"] for row in two_weeks.averages("kind")}
    for row in two_weeks.averages("kind", day=SPIKE):
        assert row["tool_seconds"] == pytest.approx(usual[row["kind"]], rel=0.05)


def test_it_is_the_tasks(two_weeks: RunLog) -> None:
    rows = two_weeks.trigger_rates(("day", "kind"), "stopped:steps")
    share = {row["day"]: row["runs"] for row in rows if row["kind"] == "compare-files"}
    assert share.pop(SPIKE) > 4 * max(share.values())
    within = rates(two_weeks, "kind", day=SPIKE)
    usual = rates(two_weeks, "kind")
    assert within["compare-files"] == pytest.approx(usual["compare-files"], abs=0.06)
    assert within["totals"] == usual["totals"] == 0


def test_made_up_runs_keep_to_their_limits_and_add_up(two_weeks: RunLog) -> None:
    for run in two_weeks.runs()[::10]:
        steps, limits = two_weeks.steps(run["id"]), Limits(**run["limits"])
        assert len(steps) == run["steps"] <= limits.max_steps
        assert run["seconds"] <= limits.max_seconds
        assert run["usd"] <= limits.max_usd
        assert run["usd"] == pytest.approx(sum(step["usd"] for step in steps), abs=1e-6)
        assert run["tool_calls"] == sum(len(step["tools"]) for step in steps)


def test_the_two_weeks_are_always_the_same(two_weeks: RunLog, tmp_path: Path) -> None:
    path = make_runs(tmp_path / "again.db")
    again = RunLog(path)
    assert again.runs() == two_weeks.runs()
    assert again.averages("day") == two_weeks.averages("day")
    before = path.stat().st_mtime_ns
    assert make_runs(path).stat().st_mtime_ns == before
    assert [each.name for each in tmp_path.iterdir()] == ["again.db"]
