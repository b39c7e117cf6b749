"""Recordings: played again, a run ends as it did; no key and nobody's name gets in; bad files are explained."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wire_server as wire
from hypothesis import given
from hypothesis import strategies as st

from agentlib import project
from agentlib.limits import PROFILES, Limits
from agentlib.loop import run_task
from agentlib.messages import languages, use_language
from agentlib.model import Model
from agentlib.offline import (
    Line,
    Scripted,
    answer,
    costing,
    endless,
    from_results,
    http_error,
    scripted,
    slow,
    tool_call,
    tool_calls,
    uncounted,
)
from agentlib.recording import RecordingError, record, replay
from agentlib.results import TaskResult

QUESTION = "Which category in sales.csv earns most?"
WIDE = Limits(None, None, None)


def taped(model: Model, path: Path, **options: Any) -> TaskResult:
    tape = record(model, path)
    return run_task(QUESTION, task_id="t", client=tape, on_event=tape.on_event, **options)


def played(path: Path, **options: Any) -> TaskResult:
    return run_task(QUESTION, task_id="t", client=replay(path), **options)


# --- there and back -------------------------------------------------------------------------------------------------

two_files = tool_calls([("analyze_csv", {"relative_path": "sales.csv"}), ("analyze_csv", "{broken")])

STORIES: dict[str, tuple[list[Line], dict[str, Any]]] = {
    "done": ([tool_call(), from_results], {}),
    "two calls at once": ([two_files, from_results], {}),
    "step cap": ([endless(tool_call(says="once more"))], {}),
    "time cap": ([endless(slow(11.3, tool_call()))], {"limits": Limits()}),
    "budget cap": ([endless(costing(tool_call(), 500, 1000))], {"limits": Limits()}),
    "cut by the budget": ([costing(answer("long " * 400), 10, 2000)], {"limits": Limits(max_usd=0.014)}),
    "last word": ([tool_call(), tool_call(), answer("so far")], {"limits": Limits(max_steps=3), "wrap_up": True}),
    "too busy": ([http_error(429, "busy", {"retry-after": "1.5"}), answer("4495")], {}),
    "down": ([http_error(503, "down")] * 3, {}),
    "refused": ([http_error(401, "no such key")], {}),
    "no address": ([Scripted(broken="ConnectError", seconds=0.3), answer("4495")], {}),
    "dropped": ([Scripted(broken="RemoteProtocolError", seconds=2)] * 3, {}),
    "not counted": ([uncounted(tool_call()), from_results], {}),
    "web page": ([Scripted(body="<html>hello</html>")], {}),
    "bad gateway": ([Scripted(status=502, body="<html>oh</html>"), answer("4495")], {}),
    "no JSON": ([Scripted(body="{'a': 1")], {}),
    "a list": ([Scripted(body="[1, 2]")], {}),
    "nested too deep": ([Scripted(body="[" * 100_000)], {}),
    "not a number": ([Scripted(body='{"usage": {"prompt_tokens": NaN}, "choices": []}')], {}),
    "half a character": ([answer("half \ud800 a character")], {}),
    "UTF-16": ([Scripted(body=json.dumps({"choices": [{"message": {"content": "键盘"}}]}).encode("utf-16"))], {}),
    "an error with 200": ([Scripted(body='{"error": {"message": "quota"}}')], {}),
    "filtered": ([Scripted({"role": "assistant", "content": None, "refusal": "no"})], {}),
    "nothing": ([Scripted(body=b"")], {}),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_replay_gives_the_same_result(story: str, tmp_path: Path) -> None:
    script, options = STORIES[story]
    recorded = taped(scripted(*script, pace=0.7), tmp_path / "run.json", **options)
    assert played(tmp_path / "run.json", **options) == recorded


@given(
    limits=st.builds(
        Limits,
        max_steps=st.none() | st.integers(0, 6),
        max_seconds=st.none() | st.integers(0, 40),
        max_usd=st.none() | st.integers(0, 40).map(lambda n: n / 1000),
    ),
    script=st.lists(
        st.sampled_from(
            [tool_call(), slow(7, tool_call()), costing(tool_call(), 900, 700), http_error(500), answer("x")]
        ),
        max_size=8,
    ),
)
def test_any_replay_gives_the_same_result(
    limits: Limits, script: list[Line], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tape") / "run.json"
    recorded = taped(scripted(*script, answer("at last"), pace=0.1), path, limits=limits)
    assert played(path, limits=limits) == recorded
    ended = replay(path).ended
    assert ended and ended["stop_reason"] == recorded["summary"]["stop_reason"]


def test_under_tighter_limits_a_replay_stops_earlier_and_breaks_no_cap(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert (
        taped(scripted(*[costing(tool_call(), 500, 800)] * 5, answer("x")), path, limits=WIDE)["status"] == "completed"
    )
    for cents in range(8):
        summary = played(path, limits=WIDE.change(max_usd=cents / 100))["summary"]
        assert summary["usage"]["usd"] <= cents / 100
    assert played(path, limits=WIDE.change(max_steps=3))["summary"]["stop_reason"] == "stopped:steps"


def test_a_replay_that_asks_for_more_than_was_recorded_is_told_so(tmp_path: Path) -> None:
    taped(scripted(endless(tool_call())), tmp_path / "run.json", limits=WIDE.change(max_steps=2))
    more = played(tmp_path / "run.json", limits=WIDE.change(max_steps=3))
    assert more["summary"]["stop_reason"] == "failed:model"
    assert "only 2 replies" in more["warnings"][0]


def test_a_reply_that_was_not_waited_for_does_not_come_in_the_replay(tmp_path: Path) -> None:
    taped(scripted(slow(50, answer("late"))), tmp_path / "run.json", limits=WIDE.change(max_seconds=10))
    later = played(tmp_path / "run.json", limits=WIDE.change(max_seconds=100))
    assert later["summary"]["stop_reason"] == "stopped:time"


def test_a_price_that_is_not_known_stays_unknown(tmp_path: Path) -> None:
    recorded = taped(scripted(tool_call(), from_results, price=None), tmp_path / "run.json", limits=WIDE)
    assert recorded["summary"]["usage"]["usd"] is None
    assert played(tmp_path / "run.json", limits=WIDE) == recorded


def test_a_real_connection(tmp_path: Path) -> None:
    with wire.Service(
        wire.says(wire.calls()), wire.fails(429, retry_after="0.1"), wire.resets, wire.says(wire.text())
    ) as service:
        recorded = taped(service.model(), tmp_path / "run.json")["summary"]
    again = played(tmp_path / "run.json")["summary"]
    assert again["stop_reason"] == recorded["stop_reason"] == "done"
    for name in ("steps", "tool_results", "answer"):
        assert again[name] == recorded[name]
    for name in ("usd", "requests", "input_tokens", "output_tokens", "estimated"):
        assert again["usage"][name] == recorded["usage"][name]
    assert [event["kind"] for event in again["trace"]] == [event["kind"] for event in recorded["trace"]]
    assert again["usage"]["seconds"] == pytest.approx(recorded["usage"]["seconds"], abs=1)


def test_a_compressed_reply(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps(wire.text("4495")).encode())
    with wire.Service(wire.says(data, headers={"content-encoding": "gzip"})) as service:
        recorded = taped(service.model(), tmp_path / "run.json")
    assert recorded["summary"]["answer"] == played(tmp_path / "run.json")["summary"]["answer"] == "4495"


def test_an_endless_reply_is_not_recorded_without_end(tmp_path: Path) -> None:
    page = b"x" * 2**20
    with wire.Service(wire.says(page * 20)) as service:
        recorded = taped(service.model(), tmp_path / "run.json")
    assert recorded["summary"]["stop_reason"] == "failed:reply"
    assert (tmp_path / "run.json").stat().st_size < 2**16


# --- what never gets in ---------------------------------------------------------------------------------------------

SECRET_HEADERS = {
    "Authorization": "Bearer HIDDEN-a",
    "x-api-key": "HIDDEN-b",
    "Set-Cookie": "session=HIDDEN-c; Path=/",
    "openai-organization": "HIDDEN-d",
    "openai-project": "HIDDEN-e",
    "X-Request-ID": "HIDDEN-f",
    "cf-ray": "HIDDEN-g",
    "content-type": "application/json; note=HIDDEN-h",
    "retry-after": "HIDDEN-i",
    "retry-after-ms": "HIDDEN-j",
    "x-HIDDEN-k": "1",
    "location": "https://HIDDEN-l",
}


@pytest.mark.parametrize("status", [200, 302, 400, 429])
def test_no_header_gets_into_the_file(status: int, tmp_path: Path) -> None:
    with wire.Service(wire.says(wire.text(), status, SECRET_HEADERS), endless=True) as service:
        taped(service.model(), tmp_path / "run.json", retries=0)
        head = service.heads[0]
    content = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert "HIDDEN" not in content
    assert wire.KEY in head["authorization"] and wire.KEY not in content
    assert QUESTION not in content
    assert "127.0.0.1" not in content


ESCAPED = "".join(f"\\u{ord(c):04x}" for c in wire.KEY)

ECHOES = {
    "in the answer": wire.text(f"your key is {wire.KEY}"),
    "in a tool call": wire.calls(wire.call(arguments=json.dumps({"relative_path": wire.KEY}))),
    "as a key": {**wire.text(), "usage": {wire.KEY: 1}},
    "in an error": {"error": {"message": f"wrong key {wire.KEY}", "headers": {"authorization": wire.KEY}}},
    "beside everything": {**wire.text(), "debug": {"authorization": f"Bearer {wire.KEY}"}, wire.KEY: 1},
    "escaped": json.dumps(wire.text("KEY")).replace("KEY", ESCAPED),
    "escaped, and no JSON": '{"error": "' + ESCAPED,
    "on a web page": f"<html>{wire.KEY}</html>",
    "in plain text": f"unauthorized: {wire.KEY}",
    "half of it": {"error": {"message": "Incorrect API key provided: sk-test-****cdef"}},
    "somebody's": {
        "error": {"message": "Rate limit in organization org-abcdefgh12345, req_0123456789ab", "user": "me"}
    },
    "a request id": {"request_id": "d3adb33f-1", "error": {"request_id": "d3adb33f-2"}, "id": "chatcmpl-d3adb33f"},
}


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_that_comes_back_in_a_reply_is_blotted_out(echo: str, status: int, tmp_path: Path) -> None:
    with wire.Service(wire.says(ECHOES[echo], status), endless=True) as service:
        taped(service.model(), tmp_path / "run.json", limits=WIDE.change(max_steps=2), retries=0)
    content = (tmp_path / "run.json").read_text(encoding="utf-8")
    for secret in (wire.KEY, ESCAPED, "sk-test", "org-abc", "req_0123", "d3adb33f"):
        assert secret not in content
    replay(tmp_path / "run.json")


def test_texts_among_the_extras_of_a_request_stay_out(tmp_path: Path) -> None:
    with wire.Service(wire.says(wire.text())) as service:
        extra = {"user": "somebody@example.com", "enable_thinking": False, "metadata": {"who": "me"}}
        taped(service.model(**extra), tmp_path / "run.json")
    assert replay(tmp_path / "run.json").settings.extra == {"enable_thinking": False}
    assert "somebody" not in (tmp_path / "run.json").read_text(encoding="utf-8")


# --- no network -----------------------------------------------------------------------------------------------------


def test_a_replay_opens_no_socket_and_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taped(scripted(*[slow(600, tool_call())] * 3, from_results), tmp_path / "run.json", limits=WIDE)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    summary = played(tmp_path / "run.json", limits=WIDE)["summary"]
    assert (summary["stop_reason"], summary["usage"]["seconds"]) == ("done", 1800)


# --- files that are no recordings -----------------------------------------------------------------------------------


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    """What a good recording holds; its file is ``run.json``."""
    taped(scripted(http_error(429, "", {"retry-after": "1"}), tool_call(), answer("x")), tmp_path / "run.json")
    found: dict[str, Any] = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    return found


def refusal(path: Path) -> str:
    """The code of the error; its sentence names the file, in every language."""
    for language in languages():
        use_language(language)
        with pytest.raises(RecordingError) as caught:
            replay(path)
        assert path.name in str(caught.value)
    return caught.value.code


def test_a_file_cut_anywhere_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    whole = (tmp_path / "run.json").read_bytes().rstrip()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut.json").write_bytes(whole[:length])
        with pytest.raises(RecordingError) as caught:
            replay(tmp_path / "cut.json")
        assert caught.value.code == "DAMAGED"
    assert refusal(tmp_path / "cut.json") == "DAMAGED"


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n\xff", b"category,quantity\n", b"[" * 100_000, "{".encode("utf-16")]
)
def test_a_file_that_is_no_json_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_bytes(data)
    assert refusal(tmp_path / "other.json") == "DAMAGED"


@pytest.mark.parametrize("other", [{}, [], 3, None, {"format": "something"}, {"replies": []}])
def test_other_json_is_refused(other: Any, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert refusal(tmp_path / "other.json") == "FOREIGN"


def drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        *inner, last = path
        for name in inner:
            found = found[name]
        del found[last]

    return change


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        *inner, last = path
        for name in inner:
            found = found[name]
        found[last] = value

    return change


HEAD = ("about", "model", "price", "max_tokens", "max_tokens_name", "extra", "ended", "replies")
CHANGES: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    *(("FOREIGN", drop(name)) for name in HEAD),
    *(("FOREIGN", put({1: 1}, name)) for name in ("about", "model", "max_tokens", "replies")),
    *(("FOREIGN", put(price, "price", "output")) for price in ("-1", "NaN", "sNaN", "Infinity", "x", 3, None, [])),
    *(("OTHER_VERSION", put(version, "version")) for version in (2, 0, None, "1")),
    *(("BAD_REPLY", put(reply, "replies", 1)) for reply in (None, {}, [], "x")),
    *(("BAD_REPLY", drop("replies", 1, name)) for name in ("seconds", "headers", "body", "max_tokens")),
    *(("BAD_REPLY", put(seconds, "replies", 1, "seconds")) for seconds in (-1, float("nan"), float("inf"), "1", True)),
    ("BAD_REPLY", put(10**400, "replies", 1, "seconds")),
    *(("BAD_REPLY", put(status, "replies", 1, "status")) for status in ("200", None, 99, 100_000)),
    *(
        ("BAD_REPLY", put(error, "replies", 1, "broken"))
        for error in ("AsyncClient", "__name__", "", None, "ValueError")
    ),
    *(("BAD_REPLY", put(wait, "replies", 0, "headers", "retry-after")) for wait in ("soon", 10**400)),
]


@pytest.mark.parametrize(("code", "change"), CHANGES)
def test_a_changed_file_is_refused(
    code: str, change: Callable[[dict[str, Any]], None], content: dict[str, Any], tmp_path: Path
) -> None:
    change(content)
    (tmp_path / "changed.json").write_text(json.dumps(content))
    assert refusal(tmp_path / "changed.json") == code


@pytest.mark.parametrize(
    "body", [{"choices": [{"message": 3}]}, {"choices": 3}, {"choices": {}}, {"choices": ["x", None]}, {}]
)
def test_a_body_of_any_shape_is_played(body: dict[str, Any], content: dict[str, Any], tmp_path: Path) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2000}
    content["replies"][1] |= {"body": body | {"usage": usage}}
    (tmp_path / "changed.json").write_text(json.dumps(content))
    for usd in (None, 0.01):
        result = played(tmp_path / "changed.json", limits=WIDE.change(max_usd=usd))
        assert result["summary"]["stop_reason"].startswith(("failed:", "stopped:budget"))


def test_a_file_that_is_not_there_or_may_not_be_read(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing.json") == "NOT_FOUND"
    assert refusal(tmp_path) == "UNREADABLE"


# --- writing --------------------------------------------------------------------------------------------------------


def test_an_older_recording_is_replaced_and_any_other_file_is_left_alone(tmp_path: Path) -> None:
    taped(scripted(answer("one")), tmp_path / "run.json")
    taped(scripted(answer("two")), tmp_path / "run.json")
    assert played(tmp_path / "run.json")["summary"]["answer"] == "two"
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordingError, match=r"notes\.txt"):
        record(scripted(answer("one")), tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes.txt", "run.json"]


def test_a_file_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    for language in languages():
        use_language(language)
        with pytest.raises(RecordingError, match=r"run\.json") as caught:
            record(scripted(answer("x")), tmp_path / "missing" / "run.json")
        assert caught.value.code == "NOT_WRITTEN"


def test_a_disk_that_fails_in_the_middle_costs_the_recording_and_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = record(scripted(tool_call(), from_results), tmp_path / "run.json")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = run_task(QUESTION, client=tape, on_event=tape.on_event)
    assert result["status"] == "completed"
    assert any("run.json" in warning and "No space left" in warning for warning in result["warnings"])


def test_the_file_is_whole_after_each_reply(tmp_path: Path) -> None:
    tape, seen = record(scripted(tool_call(), tool_call(), answer("x")), tmp_path / "run.json"), list[int]()

    def look(event: Any) -> None:
        if event.kind == "reply":
            seen.append(len(replay(tmp_path / "run.json").transport.script))

    run_task(QUESTION, client=tape, on_event=look)
    assert seen == [2, 3, 4]  # the last one says that the recording is over
    assert replay(tmp_path / "run.json").ended is None


# --- the one that ships ---------------------------------------------------------------------------------------------


def test_the_recording_of_lesson_08() -> None:
    path = project.root() / "data" / "recordings" / "month_end.json"
    tape = replay(path)
    assert "the same computer" in tape.about and "本机" in tape.about
    result = run_task(QUESTION, client=tape, limits=PROFILES["relaxed"])
    ended, summary = tape.ended, result["summary"]
    assert ended is not None
    for name in ("stop_reason", "steps", "tool_calls_used", "limits"):
        assert summary[name] == ended[name]
    ours, theirs = summary["usage"], ended["usage"]
    assert ours.pop("seconds") == pytest.approx(theirs.pop("seconds"), abs=0.5)
    assert ours == theirs
    content = path.read_text(encoding="utf-8")
    for stray in ("req_", "session", "127.0.0.1", os.fspath(Path.home())):
        assert stray not in content
