"""Replies and errors as they were met in the wild, played over a real socket: what the loop must make of each.

The cases stand in ``data/wire``: ``replies`` in short form (see ``play``), and under ``expect`` the stop reason, the
requests (a number, or the least and the most), the tool codes in order, and what must and must not be there to read.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from request_rules import broken_rules
from wire_server import KEY, PRICE, Play, Service, completion, drips_lines, says
from wire_server import call as wire_call

from agentlib import Limits, Tool, analyze_csv, run_task
from agentlib.tools import ANALYZE_CSV

CASES = [
    case for file in sorted(Path(__file__).parent.glob("data/wire/*.json")) for case in json.loads(file.read_bytes())
]
SALES = "category,quantity,unit_price\nfruit,2,5\nveg,3,4\nfruit,1,10\n"
USUAL = Limits(max_steps=20, max_seconds=60, max_usd=10)


def play(reply: Mapping[str, Any]) -> Play:
    """``calls``, ``text``, ``message``, ``finish``, ``usage`` make a completion; a ``body`` is sent as it is."""
    if "body" in reply:
        return says(reply["body"], reply["status"], reply.get("headers"))
    message = {"content": reply.get("text"), **reply.get("message", {"content": reply.get("text")})}
    if reply.get("message") == {}:
        message = {}
    if "calls" in reply:
        message["tool_calls"] = [_call(call) for call in reply["calls"]]
    usage = reply.get("usage", (100, 20))
    body = completion(message, reply.get("finish", "tool_calls" if "calls" in reply else "stop"), usage)
    if "choices" in reply:
        body["choices"] = reply["choices"]
    if "drip" in reply:
        return drips_lines(body, *reply["drip"])
    return says(body, delay=reply.get("delay", 0.0))


def _call(call: dict[str, Any]) -> Any:
    if "raw" in call:
        return call["raw"]
    named = {key: call[key] for key in ("name", "arguments") if key in call}
    extra = {"extra_content": call["extra_content"]} if "extra_content" in call else {}
    return {**wire_call(call["id"], **named), **extra}


class Spy:
    """``analyze_csv`` that counts its runs, and in one of them, or in all, does as the case says."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.mischief, self.runs = case.get("tool", {}), 0

    def __call__(self, relative_path: str) -> Any:
        self.runs += 1
        if self.mischief.get("run") in {self.runs, "all"}:
            time.sleep(self.mischief.get("sleeps", 0))
            if self.mischief.get("raises"):
                return 1 // 0
        return analyze_csv(relative_path)

    @property
    def toolbox(self) -> dict[str, Tool]:
        return {"analyze_csv": Tool(self, ANALYZE_CSV.description, ANALYZE_CSV.parameters, "analyze_csv")}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data" / "input"
    folder.mkdir(parents=True)
    (folder / "sales.csv").write_text(SALES, encoding="utf-8")
    monkeypatch.setenv("AGENTLAB_ROOT", str(tmp_path))
    return folder


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any], project: Path) -> None:
    if "rows" in case:
        rows = "".join(f"item{n:05},1,1\n" for n in range(case["rows"]))
        (project / "many.csv").write_text("category,quantity,unit_price\n" + rows, encoding="utf-8")
    expect, spy, caps = case["expect"], Spy(case), [USUAL.change(**case.get("limits", {}))]
    with Service(*map(play, case["replies"]), endless=case.get("endless", False)) as service:
        model = service.model(case.get("price", PRICE))
        meanwhile(case, service, caps)
        began = time.monotonic()
        result = run_task("What is the total?", client=model, limits=lambda: caps[0], toolbox=spy.toolbox)
        took = time.monotonic() - began
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    assert list(wrong(expect, result, service.requests, spy.runs, took)) == []
    if expect.get("again"):
        with Service(play({"text": "The total is 32."})) as service:
            assert run_task("Again?", client=service.model())["status"] == "completed"


def meanwhile(case: Mapping[str, Any], service: Service, caps: list[Limits]) -> None:
    """What the case wants done while a request waits: change a limit, or interrupt as the kernel does."""

    def change() -> None:
        values = dict(case["change"])
        service.wait_for(values.pop("during_request"))
        caps[0] = caps[0].change(**values)

    def interrupt() -> None:
        service.wait_for(case["interrupt"]["at_request"])
        time.sleep(case["interrupt"]["after"])
        signal.raise_signal(signal.SIGINT)

    for name, work in (("change", change), ("interrupt", interrupt)):
        if name in case:
            threading.Thread(target=work, daemon=True).start()


def wrong(
    expect: Mapping[str, Any], result: Any, requests: list[dict[str, Any]], runs: int, took: float
) -> Iterator[str]:
    """What is not as the case wants it, one line each."""
    summary, warnings = result["summary"], "\n".join(result["warnings"])
    codes = [_code(done["result"]) for done in summary["tool_results"]]
    least, most = expect["requests"] if isinstance(expect.get("requests"), list) else [expect.get("requests")] * 2
    checks: dict[str, tuple[bool, Any]] = {
        "stop": (summary["stop_reason"] == expect["stop"], summary["stop_reason"]),
        "status": ((result["status"] == "completed") == (expect["stop"] == "done"), result["status"]),
        "requests": (least is None or least <= len(requests) <= most, len(requests)),
        "counted": (summary["usage"]["requests"] == len(requests), summary["usage"]),
        "codes": (codes == expect.get("codes", codes), codes),
        "kept": (codes.count("ok") >= expect.get("kept", 0), codes),
        "runs": (runs == expect.get("runs", runs), runs),
        "answer": (summary.get("answer") == expect.get("answer", summary.get("answer")), summary.get("answer")),
        "usd": (summary["usage"]["usd"] == expect.get("usd", summary["usage"]["usd"]), summary["usage"]),
        "estimated": (summary["usage"]["estimated"] >= expect.get("estimated", False), summary["usage"]),
        "within": (took <= expect.get("within", 60), took),
        "limits": (summary["limits"].items() >= expect.get("limits", {}).items(), summary["limits"]),
        "key": (KEY not in str(result), "the key is in the result"),
    }
    yield from (f"{name}: {seen!r}, wanted {expect.get(name)!r}" for name, (good, seen) in checks.items() if not good)
    for key, words in (("answer", summary.get("answer") or ""), ("warning", warnings), ("result", str(result))):
        yield from (
            f"{key} lacks {part!r}: {words[:300]!r}" for part in expect.get(f"{key}_has", []) if part not in words
        )
        yield from (f"{key} has {part!r}: {words[:300]!r}" for part in expect.get(f"{key}_lacks", []) if part in words)
    yield from (f"request {n}: {line}" for n, body in enumerate(requests, 1) for line in broken_rules(body))
    for number, wish in expect.get("sent", {}).items():
        yield from (f"request {number}: {line}" for line in _not_sent(wish, requests[int(number) - 1]))


def _code(result: Mapping[str, Any]) -> str:
    return result["error"]["code"] if result["error"] else "ok"


def _not_sent(wish: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """What a case wants of one request: of its last assistant message, and of the tool messages."""
    spoken = [message for message in body["messages"] if message["role"] == "assistant"][-1]
    answers = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    called = spoken.get("tool_calls", [])
    seen: dict[str, Callable[[], Any]] = {
        "assistant": lambda: {key: spoken.get(key) for key in wish["assistant"]},
        "arguments": lambda: [call["function"]["arguments"] for call in called],
        "extra": lambda: [call.get("extra_content") for call in called],
        "answers": lambda: len(answers),
        "lacks": lambda: [part for part in wish["lacks"] if part not in json.dumps(body)],
        "answers_have": lambda: [part for part in wish["answers_have"] if part in "".join(answers)],
        "longest_answer": lambda: max(wish["longest_answer"], *map(len, answers), 0),
    }
    for key, value in wish.items():
        if seen[key]() != value:
            yield f"{key} is {seen[key]()!r}, wanted {value!r}"
    yield from ("a tool message is no JSON" for words in answers if not isinstance(json.loads(words), dict))
